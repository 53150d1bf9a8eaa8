"""Pages name files that are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
MODULE = re.compile(r"`([\w./-]+/[\w-]+\.py)`")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_module_that_a_page_names_is_there(page: Path) -> None:
    roots = (ROOT, ROOT / "operator/deepspeed_operator")
    named = set(MODULE.findall(page.read_text()))
    assert {name for name in named if not any((root / name).is_file() for root in roots)} == set()
