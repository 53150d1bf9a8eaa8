"""The codes of findings: each is used, has a meaning of its own, and stands in docs/findings.md."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from deepspeed_operator.api.finding import Code
from deepspeed_operator.api.finding_catalogue import MEANINGS
from tests.consoles import ROOT

PAGE = ROOT / "docs" / "findings.md"
MARK = "<!-- Generated from here on; `make generate` writes it again. -->\n"
PACKAGE = ROOT / "operator" / "deepspeed_operator"
SOURCES = [path for path in PACKAGE.rglob("*.py") if path.name not in {"finding.py", "finding_catalogue.py"}]


def test_each_code_has_one_meaning_of_its_own() -> None:
    codes = [code for meanings in MEANINGS.values() for code in meanings]
    assert sorted(codes) == sorted(Code)
    assert len({meaning for meanings in MEANINGS.values() for meaning in meanings.values()}) == len(codes)


@pytest.mark.parametrize("code", Code)
def test_a_code_is_written_as_its_name_is(code: Code) -> None:
    assert code == code.name.lower().replace("_", "-")


def test_each_code_is_used() -> None:
    used = {name for path in SOURCES for name in re.findall(r"\bCode\.([A-Z0-9_]+)\b", path.read_text())}
    assert used == set(Code.__members__)


def test_no_finding_is_made_without_a_code() -> None:
    assert [place for path in SOURCES for place in without_code(path)] == []


def without_code(path: Path) -> Iterator[str]:
    for call in ast.walk(ast.parse(path.read_text())):
        match call:
            case ast.Call(func=ast.Name(id="Finding"), keywords=given) if "code" not in {each.arg for each in given}:
                yield f"{path.relative_to(PACKAGE)}:{call.lineno}"
            case _:
                pass


def test_the_page_documents_the_codes(pytestconfig: pytest.Config) -> None:
    text, mark, _ = PAGE.read_text().partition(MARK)
    assert mark
    now = text + mark + "".join(sections())
    if pytestconfig.getoption("update_golden"):
        PAGE.write_text(now)
    assert now == PAGE.read_text()


def sections() -> Iterator[str]:
    for area, meanings in MEANINGS.items():
        yield f"\n## {area}\n\n| code | meaning |\n|---|---|\n"
        yield from (f'| <a id="{code}"></a>`{code}` | {meaning} |\n' for code, meaning in meanings.items())
