"""Configurations drawn by hypothesis: the same seed draws the same ones."""

import random
from collections.abc import Mapping
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.oracle import corpus
from tests.oracle.filling import filled
from tests.oracle.mutations import Mutations
from tests.oracle.oracle import Config

WORLDS = (1, 2, 8, 64)
_ROUNDS = 20  # hypothesis repeats itself: a round brings fewer new ones than asked for
_SPARE = 50


def corpus_questions() -> list[tuple[str, Config, list[int]]]:
    """Every real configuration in every world, with the numbers that the Trainer would put there."""
    return [
        (name, filled(config, world), [world]) for name, config in corpus.configurations().items() for world in WORLDS
    ]


def drawn_questions(version: str, count: int, chosen_seed: int) -> list[tuple[str, Config, list[int]]]:
    """That many different configurations, each mutated from a real one, in a world of some size."""
    found: dict[str, tuple[Config, int]] = {}
    for attempt in range(_ROUNDS):
        _draw(version, found, count - len(found) + _SPARE, chosen_seed * _ROUNDS + attempt)
        if len(found) >= count:
            break
    return [(f"drawn {index}", config, [world]) for index, (config, world) in enumerate(list(found.values())[:count])]


def _draw(version: str, found: dict[str, tuple[Config, int]], count: int, chosen_seed: int) -> None:
    real: list[Mapping[str, Any]] = list(corpus.configurations().values())

    @seed(chosen_seed)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(st.randoms(use_true_random=False))
    def draw(source: random.Random) -> None:
        world = source.choice(WORLDS)
        config = filled(Mutations(version, real, source).next(), world)
        found.setdefault(repr((config, world)), (config, world))

    draw()
