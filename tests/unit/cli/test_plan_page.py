"""The page of `dsjob plan --html`: it needs nothing else, and shows what users wrote as text."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from deepspeed_operator.cli.plan_style import STYLE
from tests.unit.cli.command import dsjob
from tests.unit.cli.plans import LLAMA_7B, job

_VOID = {"meta", "br"}


class Page(HTMLParser):
    """Its tags, which must close in order, and its texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.tags: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def page(text: str, directory: Path, *arguments: object) -> str:
    file = directory / "plan.html"
    assert dsjob("plan", "-", *arguments, "--html", file, stdin=text).exit_code == 0
    return file.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> str:
    return page(json.dumps(LLAMA_7B), tmp_path_factory.mktemp("page"))


def test_it_says_what_the_command_says(llama: str) -> None:
    text = Page(llama).text
    assert "Stage 1, micro batch 2, accumulation 8" in text
    assert "61.9 of 80.0 GiB, 11.8 s a step, 22.1 k tokens/s, MFU 39 %; 1 B tokens take 12.6 h" in text
    assert "×1.13 by zero_optimization.stage: 1" in text
    for stage, memory in enumerate(("152.7", "61.9", "50.1", "41.9")):
        assert re.search(rf"stage {stage} .*?{memory} GiB", text)
    for phase in ("initialization", "forward pass", "backward pass and reduction", "optimizer step", "checkpoint save"):
        assert phase in text


def test_it_asks_nobody_for_anything(llama: str) -> None:
    found = Page(llama)
    assert not {"script", "link", "img", "iframe", "a", "object"} & set(found.tags)
    assert not {"src", "href", "srcset", "data"} & {name for name, _ in found.attributes}
    assert "url(" not in STYLE
    assert "@import" not in STYLE


def test_what_users_wrote_is_shown_as_text(tmp_path: Path) -> None:
    config = tmp_path / "<script>&amp;.json"
    config.write_text(json.dumps(LLAMA_7B["spec"]["dsConfig"]))
    made = tmp_path / "plan.html"
    options = ("--parameters", "7B", "--gpu", "a100-80g", "--slots", 8)
    assert dsjob("plan", config, *options, "--html", made).exit_code == 0
    found = Page(made.read_text(encoding="utf-8"))
    assert "script" not in found.tags
    assert config.name in found.text


def test_bars_stay_within_their_place(llama: str) -> None:
    shares = [float(each) for each in re.findall(r"(?:width|left):([\d.]+)%", llama.partition("<main>")[2])]
    assert len(shares) > 20
    assert max(shares) <= 100.0


def test_of_a_machine_whose_network_is_not_known_the_time_is_not_told(tmp_path: Path) -> None:
    text = Page(page(job(nodes=2), tmp_path)).text
    assert "time not known" in text
    assert "Not known: dsjob plan says what to give" in text
