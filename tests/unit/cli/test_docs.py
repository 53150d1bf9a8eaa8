"""Pages of docs/ show what the commands in them print."""

import re
import shlex
from pathlib import Path

import pytest

from tests.consoles import ROOT, hold, marks
from tests.unit.cli.command import dsjob

FILE = re.compile(r"^```(?:json|yaml) (\S+)\n(.*?)^```\n", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(
    ("name", "commands"), [("validate.md", 4), ("network.md", 1), ("plan.md", 3), ("transport.md", 1), ("init.md", 1)]
)
def test_the_page_shows_what_the_commands_print(
    name: str, commands: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    monkeypatch.chdir(tmp_path)
    for directory in ("examples", "bench"):
        Path(directory).symlink_to(ROOT / directory)
    for file, content in FILE.findall((ROOT / "docs" / name).read_text()):
        Path(file).write_text(content)

    def printed(command: str) -> str:
        program, *arguments = shlex.split(command)
        assert program == "dsjob"
        return dsjob(*arguments).stdout

    assert hold(f"docs/{name}", printed, pytestconfig) == commands


PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
TESTS = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py")]


@pytest.mark.parametrize("page", [page for page in PAGES if marks(page)], ids=lambda page: page.name)
def test_what_a_page_shows_of_a_command_is_held_by_a_test_or_said_to_need_gpus(page: Path) -> None:
    assert marks(page) <= {"", "gpus"}
    held = any("hold(" in test and re.search(rf'["/]{page.name}"', test) for test in TESTS)
    assert held == ("" in marks(page))
