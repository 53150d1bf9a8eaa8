"""What we say an engine refuses, it refuses; where we have no error, it starts: rule by rule, in every version."""

import pytest

from tests.consoles import ROOT
from tests.matrix.refusals import REFUSALS
from tests.oracle.refusals import MARKS, Answers, answers, codes_that_refuse, rules, table

pytestmark = pytest.mark.timeout(1800)
# What takes several ranks, which tests/matrix shows; and Lamb, whose op CPUs lack.
NOT_HERE = {"mesh-size", "indivisible-ranks", "not-with-pipeline", "contradictory-sizes", "needs-dynamic-loss-scale"}


@pytest.fixture(scope="module")
def found() -> Answers:
    return answers()


def test_no_rule_refuses_what_an_engine_starts_with_nor_passes_over_what_it_refuses(found: Answers) -> None:
    asked = rules()
    assert [
        (version, asked[at], [note.message for note in answer.ours], answer.theirs)
        for version, each in found.items()
        for at, answer in enumerate(each)
        if not answer.agree
    ] == []


def test_the_page_lists_every_rule_that_refuses(found: Answers, pytestconfig: pytest.Config) -> None:
    path = ROOT / "docs/validate.md"
    before, mark, rest = path.read_text().partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    assert mark
    assert end
    page = before + mark + table(found) + end + after
    if pytestconfig.getoption("update_golden"):
        path.write_text(page)
    assert page == path.read_text(), "run this test with --update-golden"


def test_each_code_that_refuses_is_shown(found: Answers) -> None:
    shown = {note.code.value for each in found.values() for answer in each for note in answer.ours}
    assert codes_that_refuse() - shown <= NOT_HERE
    assert {row.path for row in REFUSALS if row.ranks > 1 and row.refused_by_us}
