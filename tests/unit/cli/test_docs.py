"""Pages of docs/ show what the commands in them print. `--update-golden` writes them again."""

import re
from pathlib import Path

import pytest

from tests.unit.cli.command import dsjob

ROOT = Path(__file__).parents[3]
FILE = re.compile(r"^```(?:json|yaml) (\S+)\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
CONSOLE = re.compile(r"^```console\n\$ dsjob ([^\n]*)\n(.*?)^```\n", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(("name", "commands"), [("validate.md", 4), ("network.md", 1), ("plan.md", 3)])
def test_the_page_shows_what_the_commands_print(
    name: str, commands: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    path = ROOT / "docs" / name
    page = path.read_text()
    monkeypatch.chdir(tmp_path)
    for directory in ("examples", "bench"):
        Path(directory).symlink_to(ROOT / directory)
    for file, content in FILE.findall(page):
        Path(file).write_text(content)

    def shown(block: re.Match[str]) -> str:
        return f"```console\n$ dsjob {block[1]}\n{dsjob(*block[1].split()).stdout}```\n"

    now = CONSOLE.sub(shown, page)
    assert len(CONSOLE.findall(page)) == commands
    if pytestconfig.getoption("update_golden"):
        path.write_text(now)
    assert now == page or pytestconfig.getoption("update_golden")
