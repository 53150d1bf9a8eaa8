"""What the GPU benchmarks measure is what they say, and what the planner and the judge can read."""

import itertools
from pathlib import Path

import pytest
import yaml

from bench.gpu.configurations import TABLES, Configuration, chosen
from bench.gpu.expectations import RECIPE
from deepspeed_operator.plan.model import from_hugging_face

ALL = {each.name: each for table in TABLES.values() for each in table()}


@pytest.mark.parametrize(("model", "parameters"), [("small", 369_148_928), ("large", 1_345_423_360)])
def test_the_planner_reads_each_models_size(model: str, parameters: int) -> None:
    assert from_hugging_face(Configuration("", model, 0).model_config()).parameters == parameters


@pytest.mark.parametrize("table", TABLES)
def test_names_are_unique(table: str) -> None:
    names = [each.name for each in TABLES[table]()]
    assert len(names) == len(set(names))


def test_nothing_that_is_timed_was_learned_from() -> None:
    known = {each.name for each in TABLES["calibration"]()}
    article = {f"large-s{stage}-g{accumulation}" for stage, accumulation in itertools.product((0, 2), (1, 4))}
    timed = {each.name for each in TABLES["timing"]()}
    assert article <= timed
    assert not timed & known


def test_the_recipe_is_among_what_is_timed() -> None:
    written = yaml.safe_load((Path(__file__).parents[3] / "bench/gpu/recipe.yaml").read_text())["spec"]
    assert written["dsConfig"].items() <= ALL[RECIPE].ds_config().items()


def test_patterns_choose_by_name() -> None:
    assert [each.name for each in chosen(ALL.values(), ["large-s2-g[14]"])] == [
        "large-s2-g1",
        "large-s2-g4",
    ]


def test_offloaded_states_leave_the_optimizer_to_deepspeed() -> None:
    config = ALL["small-s2-offload-g4"].ds_config()
    assert config["zero_optimization"]["offload_optimizer"]["device"] == "cpu"
    assert "torch_adam" not in config["optimizer"]["params"]
