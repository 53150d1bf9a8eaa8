"""What the GPU benchmarks measure is what they say, and what the planner and the judge can read."""

import itertools
from pathlib import Path

import pytest
import yaml

from bench.gpu.configurations import TABLES, Configuration, chosen
from bench.gpu.expectations import RECIPE
from deepspeed_operator.plan.model.hugging_face import from_hugging_face

ALL = {each.name: each for table in TABLES.values() for each in table()}


PARAMETERS = {
    "small": 369_148_928,
    "large": 1_345_423_360,
    "qwen3": 596_049_920,
    "qwen3-large": 1_720_574_976,
    "gpt2": 354_823_168,
    "gpt2-large": 1_557_611_200,
}


@pytest.mark.parametrize(("model", "parameters"), PARAMETERS.items())
def test_the_planner_reads_each_models_size(model: str, parameters: int) -> None:
    assert from_hugging_face(Configuration("", model, 0).model_config()).parameters == parameters


@pytest.mark.parametrize("table", TABLES)
def test_names_are_unique(table: str) -> None:
    names = [each.name for each in TABLES[table]()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("kind", ["", "filled-"])
def test_nothing_that_is_timed_was_learned_from(kind: str) -> None:
    learned, timed = (
        [(each.model_config(), each.ds_config()) for each in TABLES[f"{kind}{name}"]()]
        for name in ("calibration", "timing")
    )
    assert [each for each in timed if each in learned] == []


def test_the_article_is_timed() -> None:
    article = {f"large-s{stage}-g{accumulation}" for stage, accumulation in itertools.product((0, 2), (1, 4))}
    assert article <= {each.name for each in TABLES["timing"]()}


def test_filled_micro_batches_are_larger_than_those_where_the_host_decides() -> None:
    assert {each.micro for name in ("filled-calibration", "filled-timing") for each in TABLES[name]()} == {8, 16}
    assert len(TABLES["filled-timing"]()) >= 10


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
