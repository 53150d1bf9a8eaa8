"""Our verdicts are DeepSpeed's own: on real configurations, and on those that hypothesis makes of them."""

import random
from collections.abc import Generator
from typing import Any

import pytest

from deepspeed_operator.dsconfig.batch import AUTO, KEYS
from deepspeed_operator.dsconfig.judgement import JudgementContext, validate_for
from deepspeed_operator.dsconfig.schema import schema_of
from deepspeed_operator.dsconfig.versions import SUPPORTED
from tests.oracle import corpus
from tests.oracle.compare import compare, refusals
from tests.oracle.draws import WORLDS, corpus_questions, drawn_questions
from tests.oracle.filling import filled
from tests.oracle.oracle import Oracle, oracle
from tests.oracle.silence import unnamed

pytestmark = pytest.mark.timeout(1200)
DRAWN = 300


@pytest.fixture(scope="module", params=SUPPORTED)
def judge(request: pytest.FixtureRequest) -> Generator[tuple[str, Oracle]]:
    with oracle(request.param) as judge:
        yield request.param, judge


def test_real_configurations_are_judged_as_deepspeed_does(judge: tuple[str, Oracle]) -> None:
    version, deepspeed = judge
    comparison = compare(version, deepspeed, corpus_questions())
    print(f"\nDeepSpeed {version}: {comparison.agreed} agree, {comparison.listed.total()} listed")
    assert comparison.all >= len(WORLDS) * 100
    assert not comparison.bugs, "\n".join(comparison.bugs[:10])


def test_mutated_configurations_are_judged_as_deepspeed_does(judge: tuple[str, Oracle]) -> None:
    version, deepspeed = judge
    seed = random.SystemRandom().randrange(10**9)
    # Printed at once, too: what is captured is lost when a run is ended.
    print(f"\nDeepSpeed {version}: configurations drawn with seed {seed}")
    comparison = compare(version, deepspeed, drawn_questions(version, DRAWN, seed))
    assert comparison.all >= DRAWN * 0.9
    assert 0.1 * comparison.all < comparison.accepted < 0.9 * comparison.all
    assert not comparison.bugs, f"seed {seed}\n" + "\n".join(comparison.bugs[:10])


def test_files_are_read_as_deepspeed_reads_them(judge: tuple[str, Oracle]) -> None:
    _, deepspeed = judge
    for name, text in corpus.texts().items():
        read: Any = deepspeed.parsed(text)
        ours = corpus.configurations().get(name)
        assert ours == (read if isinstance(read, dict) else None), name


def test_every_key_that_deepspeed_never_asks_for_is_named(judge: tuple[str, Oracle]) -> None:
    version, deepspeed = judge
    for name, config in corpus.configurations().items():
        if not refusals(validate_for(schema_of(version), filled(config, 1), JudgementContext(1))):
            assert unnamed(version, config, deepspeed.unread(filled(config, 1))) == [], name


@pytest.mark.parametrize("version", SUPPORTED)
def test_auto_is_judged_like_the_numbers_that_the_trainer_writes(version: str) -> None:
    for name, config in corpus.configurations().items():
        for world in WORLDS:
            left = refusals(validate_for(schema_of(version), config, JudgementContext(world)))
            written = refusals(validate_for(schema_of(version), filled(config, world), JudgementContext(world)))
            # Whether a given batch size fits depends on the very numbers that the Trainer is told.
            theirs = [note.path for note in written if note.code != "batch-size" or AUTO not in map(config.get, KEYS)]
            assert [note.path for note in left] == theirs, f"{name} at {world}"
