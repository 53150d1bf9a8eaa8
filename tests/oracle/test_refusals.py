"""What we say an engine refuses, it refuses; where we have no error, it starts: rule by rule, in four versions."""

import pytest

from tests.matrix.refusals import REFUSALS
from tests.oracle.engines import VERSIONS
from tests.oracle.refusals import Answers, answers, codes_that_refuse, rules

pytestmark = pytest.mark.timeout(1800)
# What takes several ranks, which tests/matrix shows; and Lamb, whose op CPUs lack.
NOT_HERE = {"mesh-size", "indivisible-ranks", "not-with-pipeline", "contradictory-sizes", "needs-dynamic-loss-scale"}


@pytest.fixture(scope="module")
def found() -> Answers:
    return answers(VERSIONS)  # `make oracle-full` asks all, and writes docs/validate.md


def test_no_rule_refuses_what_an_engine_starts_with_nor_passes_over_what_it_refuses(found: Answers) -> None:
    asked = rules()
    assert [
        (version, asked[at], [note.message for note in answer.ours], answer.theirs)
        for version, each in found.items()
        for at, answer in enumerate(each)
        if not answer.agree
    ] == []


def test_each_code_that_refuses_is_shown(found: Answers) -> None:
    shown = {note.code.value for each in found.values() for answer in each for note in answer.ours}
    assert codes_that_refuse() - shown <= NOT_HERE
    assert {row.path for row in REFUSALS if row.ranks > 1 and row.refused_by_us}
