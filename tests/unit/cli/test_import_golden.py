"""Public manifests and scripts, shortened, with what they become. `--update-golden` writes the results and "
"the table."""

import re
from pathlib import Path

import pytest

from tests.consoles import ROOT
from tests.unit.cli.command import dsjob

SOURCES = Path("tests/unit/cli/imports")
FILES = sorted(path.name for path in (ROOT / SOURCES).iterdir() if path.suffix != ".golden")
PAGE = ROOT / "docs/import.md"
_TABLE = re.compile(r"(?<=<!-- table -->\n).*?(?=<!-- end -->)", re.DOTALL)


def result(name: str) -> str:
    found = dsjob("import", SOURCES / name)
    return f"{found.stdout}# ends with {found.exit_code}\n{found.stderr}"


@pytest.mark.parametrize("name", FILES)
def test_a_public_source_becomes_what_its_golden_file_shows(
    name: str, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    monkeypatch.chdir(ROOT)
    golden, now = ROOT / SOURCES / f"{name}.golden", result(name)
    if pytestconfig.getoption("update_golden"):
        golden.write_text(now)
    assert now == golden.read_text()


def row(name: str) -> str:
    first, *_ = (ROOT / SOURCES / name).read_text().splitlines()
    if first.startswith("#!"):
        first = (ROOT / SOURCES / name).read_text().splitlines()[1]
    golden = (ROOT / SOURCES / f"{name}.golden").read_text()
    became = next((line for line in golden.splitlines() if line.startswith(f"{SOURCES}/{name}: ")), "")
    kind, _, job = became.removeprefix(f"{SOURCES}/{name}: ").partition(" → ")
    world = re.search(r"(\d+ nodes?) × (\d+ slots?)", golden)
    refused = re.search(r"  refused: \S+: (.*)", golden)
    unknown = re.search(r"no job: (.*)", golden)
    reason = refused[1] if refused else ""
    reason = reason if len(reason) <= 90 else f"{reason[:90].rsplit(' ', 1)[0]} …"
    outcome = f"{world[1]} × {world[2]}" if world else reason if refused else unknown[1] if unknown else job
    counts = [
        len(re.findall(rf"^  {each}: ", golden, re.MULTILINE)) for each in ("carried", "changed", "left out", "warning")
    ]
    verdict = "refused: " if refused and not world else ""
    numbers = " | ".join(map(str, counts))
    return f"| {first.removeprefix('# ')} | {kind or 'none'} | {verdict}{outcome.replace('|', '/')} | {numbers} |\n"


def test_the_page_documents_what_became_of_them(pytestconfig: pytest.Config) -> None:
    head = "| source | kind | became | carried | changed | left out | warnings |\n|---|---|---|---|---|---|---|\n"
    text = PAGE.read_text()
    now = _TABLE.sub(lambda _: head + "".join(map(row, FILES)), text)
    if pytestconfig.getoption("update_golden"):
        PAGE.write_text(now)
    assert PAGE.read_text() == now
