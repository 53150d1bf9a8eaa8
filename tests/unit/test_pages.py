"""Pages name files that are there."""

import re
from pathlib import Path

import pytest

from dev import chart_page

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
MODULE = re.compile(r"`([\w./-]+/[\w-]+\.py)`")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_module_that_a_page_names_is_there(page: Path) -> None:
    roots = (ROOT, ROOT / "operator/deepspeed_operator")
    named = set(MODULE.findall(page.read_text()))
    assert {name for name in named if not any((root / name).is_file() for root in roots)} == set()


def test_the_charts_page_describes_the_charts_values() -> None:
    assert chart_page.PAGE.read_text() == chart_page.page((chart_page.CHART / "values.yaml").read_text())


def test_a_value_that_nothing_describes_is_refused() -> None:
    described = "# Of a and b.\na: 1\nb: {}\n\n# Of all in c.\nc:\n  d: 2\n  # Of e.\n  e: [3]\n"
    assert list(chart_page.rows(described)) == [
        ("a", "1", "Of a and b."),
        ("b", "{}", "Of a and b."),
        ("c.d", "2", "Of all in c."),
        ("c.e", "[3]", "Of e."),
    ]
    with pytest.raises(ValueError, match="c has no comment"):
        list(chart_page.rows("# Of a and b.\na: 1\n\nc: 2\n"))
