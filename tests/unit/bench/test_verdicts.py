"""docs/oracle.md shows what an engine on an H200 did, and what we say of the same configurations now."""

from pathlib import Path
from typing import Any

import pytest

from bench.gpu import verdicts
from bench.gpu.engine import CONTEXT, again
from bench.gpu.tables import lines_of
from deepspeed_operator.api.status import Level
from tests.oracle import corpus
from tests.oracle.engine_draws import drawn, question_of, said
from tests.oracle.engine_verdicts import NO_STEP, UNEXPLAINED, reason, started, unexplained

ROOT = Path(__file__).parents[3]
RECORDS = lines_of(ROOT / "bench/gpu/results", "engine")
ANSWERS = [each for each in RECORDS if "name" in each]


def test_the_page_ends_with_the_engines_table() -> None:
    """`make oracle-full` writes it, and `python -m bench.gpu.tables --write docs/oracle.md` its table."""
    page = "\n".join(verdicts.page(RECORDS))
    assert (ROOT / "docs/oracle.md").read_text("utf-8").endswith(f"\n\n{page}\n")


def test_enough_was_asked() -> None:
    assert len({each["digest"] for each in ANSWERS if each["name"].startswith("drawn")}) >= 300


def test_what_was_asked_can_be_asked_again() -> None:
    known = [each for each in ANSWERS if each.get("base", each["name"]) in corpus.own()]
    assert [each["digest"] for each in again(known)] == [each["digest"] for each in known]


def test_every_difference_is_explained() -> None:
    assert unexplained(ANSWERS) == []


def test_nothing_is_refused_that_trains_with_an_optimizer() -> None:
    trained = [each for each in ANSWERS if started(each) and each["optimizer"] != "none"]
    assert len(trained) > 250
    assert [each["name"] for each in trained if each["errors"] and reason(each) != NO_STEP] == []


def test_the_records_say_what_we_say_now() -> None:
    """`python -m bench.gpu.engine judge` writes it again."""
    known = [each for each in ANSWERS if each.get("base", each["name"]) in corpus.configurations()]
    assert known
    for record in known:
        config = question_of(record).config
        assert record["errors"] == said(config, CONTEXT), record["name"]
        if not started(record) and not record["errors"] and reason(record).endswith("we warn of it"):
            assert said(config, CONTEXT, Level.WARNING), record["name"]


@pytest.mark.parametrize(
    ("record", "why"),
    [
        ({"did": "refused", "type": "KeyError", "says": "'x'", "optimizer": "script"}, UNEXPLAINED),
        ({"did": "trained", "optimizer": "configuration"}, UNEXPLAINED),
        ({"did": "died", "says": "not done after 60 s", "optimizer": "none"}, "`hybrid_engine` compiles"),
    ],
)
def test_what_nobody_has_reviewed_is_unexplained(record: dict[str, Any], why: str) -> None:
    assert reason(record).startswith(why)


def test_the_same_seed_draws_the_same_configurations() -> None:
    once, again, other = (list(drawn(20, seed, CONTEXT)) for seed in (3, 3, 4))
    assert once == again
    assert once != other
