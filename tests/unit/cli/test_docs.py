"""docs/validate.md shows what the commands in it print. `--update-golden` writes it again."""

import re
from pathlib import Path

import pytest

from tests.unit.cli.command import dsjob

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/validate.md"
FILE = re.compile(r"^```json (\S+)\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
CONSOLE = re.compile(r"^```console\n\$ dsjob ([^\n]*)\n(.*?)^```\n", re.DOTALL | re.MULTILINE)


def test_the_page_shows_what_the_commands_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    page = PAGE.read_text()
    monkeypatch.chdir(tmp_path)
    Path("examples").symlink_to(ROOT / "examples")
    for name, content in FILE.findall(page):
        Path(name).write_text(content)

    def shown(block: re.Match[str]) -> str:
        return f"```console\n$ dsjob {block[1]}\n{dsjob(*block[1].split()).stdout}```\n"

    now = CONSOLE.sub(shown, page)
    assert len(CONSOLE.findall(page)) == 4
    if pytestconfig.getoption("update_golden"):
        PAGE.write_text(now)
    assert now == page or pytestconfig.getoption("update_golden")
