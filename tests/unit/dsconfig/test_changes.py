"""The table of changes says what the schemas, which DeepSpeed itself made, say of the versions around each change."""

from typing import Any

import pytest

from deepspeed_operator.api.status import Level
from deepspeed_operator.dsconfig.changes import CHANGES, LONG_AGO, NewDefault, Path, Refused, Removed, Renamed, Replaced
from deepspeed_operator.dsconfig.judgement import JudgementContext, validate
from deepspeed_operator.dsconfig.schema import schema_of
from deepspeed_operator.dsconfig.versions import SUPPORTED, numbers_of

DATED = [change for change in CHANGES if change.since not in {LONG_AGO, "0.15.0"}]
SAMPLES: dict[Path, Any] = {
    ("fp16", "min_loss_scale"): 0.5,
    ("zero_optimization", "mics_shard_size"): -1,
    ("zero_optimization", "zeropp_loco_param"): {"err_beta": 0.8},
    ("bf16", "hysteresis"): 2,
}


def around(since: str) -> tuple[str, str]:
    """The last known version without the change, and the first with it."""
    numbers = numbers_of(since) or ()
    older = [version for version in SUPPORTED if (numbers_of(version) or ()) < numbers]
    return older[-1], SUPPORTED[len(older)]


def config_with(path: Path, value: Any) -> dict[str, Any]:
    config: dict[str, Any] = {"train_micro_batch_size_per_gpu": 1}
    section = config
    for key in path[:-1]:
        section = section.setdefault(key, {})
    section[path[-1]] = value
    return config


def said(config: dict[str, Any], path: Path, version: str) -> set[Level]:
    notes = validate(config, JudgementContext(1, version)).notes
    return {note.level for note in notes if note.path[: len(path)] == path and note.level is not Level.ADVICE}


@pytest.mark.parametrize(
    "change", [each for each in DATED if isinstance(each, Removed)], ids=lambda each: each.path[-1]
)
def test_a_removed_key_is_refused_from_that_version_on(change: Removed) -> None:
    before, after = around(change.since)
    usual = {"enabled": False} if {"enabled": False} in change.unused else {} if len(change.path) == 1 else True
    config = config_with(change.path, SAMPLES.get(change.path, usual))
    assert Level.ERROR in said(config, change.path, after)
    assert Level.ERROR not in said(config, change.path, before)


def test_no_removed_key_is_missing() -> None:
    known = {".".join(change.path): change.since for change in CHANGES if isinstance(change, Removed)}
    for version in SUPPORTED:
        for path in schema_of(version).removed:
            assert (numbers_of(known[path]) or ()) <= (numbers_of(version) or ())


REFUSALS = [
    (change, value)
    for change in DATED
    if isinstance(change, Refused) and change.path != ("optimizer", "type")
    for value in (change.values or (0.5,))
]


@pytest.mark.parametrize(("change", "value"), REFUSALS, ids=str)
def test_a_refused_value_is_refused_from_that_version_on(change: Refused, value: object) -> None:
    before, after = around(change.since)
    assert said(config_with(change.path, value), change.path, after) == {Level.ERROR}
    assert Level.ERROR not in said(config_with(change.path, value), change.path, before)


@pytest.mark.parametrize("change", [each for each in DATED if isinstance(each, Renamed)], ids=lambda each: each.name)
def test_an_old_name_is_ignored_from_that_version_on(change: Renamed) -> None:
    before, after = around(change.since)
    value = "fp32" if "type" in change.name else 4
    new = (*change.path[:-1], change.name)
    assert said(config_with(change.path, value), change.path, after) == {Level.WARNING}
    assert said(config_with(change.path, value), change.path, before) == set()
    assert said(config_with(new, value), new, after) == set()
    assert said(config_with(new, value), new, before) == {Level.WARNING}


@pytest.mark.parametrize(
    "change", [each for each in CHANGES if isinstance(each, Replaced)], ids=lambda each: each.path[-1]
)
def test_what_is_written_instead_is_accepted(change: Replaced) -> None:
    for version in SUPPORTED:
        for value in change.values.values():
            path = (*change.path[:-1], change.name)
            assert Level.ERROR not in said(config_with(path, value), path, version)


@pytest.mark.parametrize(
    "change", [each for each in DATED if isinstance(each, NewDefault)], ids=lambda each: each.path[-1]
)
def test_a_default_is_the_old_one_before_and_the_new_one_after(change: NewDefault) -> None:
    before, after = around(change.since)
    assert (default(change.path, before), default(change.path, after)) == (change.was, change.now)


def default(path: Path, version: str) -> Any:
    schema = schema_of(version)
    models = [name for name in schema.models if path[-1] in schema.models[name]["fields"]]
    if len(path) == 1:
        return schema.sections[""].keys[path[0]].default
    found = {schema.models[name]["fields"][path[-1]].get("default") for name in models}
    assert len(found) == 1, models
    return found.pop()
