"""What the engine did on an H200 with 0.19.8 (bench/gpu/results/engine.jsonl), and by its sources in other versions."""

from typing import Any

import pytest

from deepspeed_operator.api.status import Level
from deepspeed_operator.dsconfig.notes import CheckPhase, written
from deepspeed_operator.dsconfig.versions import SUPPORTED
from tests.unit.dsconfig.verdicts import ADAM, BATCH, CPU_OFFLOAD, VersionVerdict, places, said, verdict_on

_BF16_STATES: dict[str, Any] = {
    "enabled": True,
    "bf16_master_weights_and_grads": True,
    "bf16_optimizer_states": True,
}
_WITH_STATES = SUPPORTED[SUPPORTED.index("0.18.9") :]
_TORCH_ADAM = {"optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}}}
_STEP = {"zenflow": {"select_strategy": "step"}}
_INTERVALS = {"zenflow": {"select_strategy": "step", "select_interval": 2, "update_interval": 4}}
_SUPER = {"stage": 3, "offload_optimizer": {"super_offload": True}}


def on_gpu(config: dict[str, Any], **circumstances: Any) -> VersionVerdict:
    return verdict_on({**BATCH, **config}, world=1, accelerator="cuda", **circumstances)


@pytest.mark.parametrize("version", _WITH_STATES)
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_bf16_states_need_no_offload(version: str, stage: int) -> None:
    assert not on_gpu({**ADAM, "bf16": _BF16_STATES, "zero_optimization": {"stage": stage}}, version=version).refused


@pytest.mark.parametrize("name", ["Lion", "SGD"])
def test_bf16_states_on_the_device_are_any_optimizers(name: str) -> None:
    optimizer = {"optimizer": {"type": name, "params": {"lr": 1e-4}}, "zero_allow_untested_optimizer": True}
    assert not on_gpu({**optimizer, "bf16": _BF16_STATES, "zero_optimization": {"stage": 1}}).refused


@pytest.mark.parametrize("version", _WITH_STATES)
def test_offloaded_bf16_states_are_adams_only_since_a_version(version: str) -> None:
    zero = {"stage": 2, **CPU_OFFLOAD}
    config = {"optimizer": {"type": "Lion", "params": {"lr": 1e-4}}, "bf16": _BF16_STATES, "zero_optimization": zero}
    found = places(on_gpu(config, version=version), Level.ERROR)
    assert found == ([] if version == "0.18.9" else ["bf16.bf16_master_weights_and_grads"])
    assert not on_gpu({**config, **ADAM}, version=version).refused


@pytest.mark.parametrize("version", _WITH_STATES)
def test_bf16_weights_alone_need_offload_to_deepspeeds_adam(version: str) -> None:
    config = {"bf16": {"enabled": True, "bf16_master_weights_and_grads": True}}
    offloaded = {"stage": 1, **CPU_OFFLOAD}
    alone = on_gpu({**config, **ADAM, "zero_optimization": {"stage": 1}}, version=version)
    of_torch = on_gpu({**config, **_TORCH_ADAM, "zero_optimization": offloaded}, version=version)
    for verdict in (alone, of_torch):
        assert places(verdict, Level.ERROR) == ["bf16.bf16_master_weights_and_grads"]
    assert not on_gpu({**config, **ADAM, "zero_optimization": offloaded}, version=version).refused


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({**ADAM, "zero_optimization": {"stage": 0, **CPU_OFFLOAD}}, "offload_optimizer", "the first step fails"),
    ({**ADAM, "zero_optimization": {"stage": 2, **_STEP, **CPU_OFFLOAD}}, "zenflow.select_interval", "needs a number"),
    ({**ADAM, "zero_optimization": {"stage": 2, "zenflow": {}}}, "zenflow", "offloaded to the CPU"),
    ({"zero_optimization": {"stage": 1, "zenflow": {}, **CPU_OFFLOAD}}, "zenflow", "optimizer.params"),
    *(({**optimizer, "zero_optimization": _SUPER}, "offload_optimizer.super_offload", "is not offloaded")
      for optimizer in ({}, ADAM, _TORCH_ADAM)),
    ({**ADAM, "zero_optimization": {"stage": 2, **_INTERVALS, **CPU_OFFLOAD}}, "zenflow.select_interval", "less than"),
]  # fmt: skip
TRAINED: list[dict[str, Any]] = [
    {**_TORCH_ADAM, "zero_optimization": {"stage": 0, **CPU_OFFLOAD}},
    {**ADAM, "zero_optimization": {"stage": 0, "offload_optimizer": {"device": "none"}}},
    {**ADAM, "zero_optimization": {"stage": 3, "zenflow": {}}},
    {"zero_optimization": {"stage": 3, "zenflow": {}, "offload_optimizer": {"super_offload": True}}},
    {**ADAM, "zero_optimization": {"stage": 2, "zenflow": {}, **CPU_OFFLOAD}},
    {
        **ADAM,
        "zero_optimization": {"stage": 2, "zenflow": {}, "offload_optimizer": {"device": "nvme", "nvme_path": "/nvme"}},
    },
]


def test_zenflow_is_tested_where_the_states_are_on_nvme() -> None:
    config = {**BATCH, **TRAINED[-1]}
    verdicts = [verdict_on(config, version=version, accelerator="cuda") for version in ("0.17.6", "0.18.9", "0.19.2")]
    assert [verdict.refused for verdict in verdicts] == [False, False, False]


@pytest.mark.parametrize(("config", "place", "words"), REFUSED)
def test_what_does_not_train_on_a_gpu_is_refused(config: dict[str, Any], place: str, words: str) -> None:
    verdict = on_gpu(config)
    (note,) = [note for note in verdict.notes if note.level is Level.ERROR]
    assert (written(note.path), note.phase) == (f"zero_optimization.{place}", CheckPhase.ENGINE)
    assert words in f"{note.message} {note.fix}"


@pytest.mark.parametrize("config", TRAINED)
def test_what_trains_on_a_gpu_is_not_refused(config: dict[str, Any]) -> None:
    assert not on_gpu(config).refused


def test_an_offloaded_optimizer_at_stage_0_is_a_warning_where_its_step_may_run() -> None:
    config = {**ADAM, "zero_optimization": {"stage": 0, **CPU_OFFLOAD}}
    for accelerator in ("cpu", None):
        verdict = verdict_on({**BATCH, **config}, accelerator=accelerator)
        assert not verdict.refused
        assert "zero_optimization.offload_optimizer" in places(verdict, Level.WARNING)


@pytest.mark.parametrize("version", SUPPORTED)
def test_hpz_without_an_optimizer_is_a_warning(version: str) -> None:
    place, config = "zero_optimization.zero_hpz_partition_size", {"stage": 3, "zero_hpz_partition_size": 8}
    alone = verdict_on({**BATCH, "zero_optimization": config}, version=version)
    assert not alone.refused
    assert "AttributeError" in said(alone, place)
    assert "AttributeError" not in said(
        verdict_on({**BATCH, **ADAM, "zero_optimization": config}, version=version), place
    )


@pytest.mark.parametrize("version", SUPPORTED)
def test_auto_cast_acts_without_fp16_since_a_version(version: str) -> None:
    config = {**BATCH, "bf16": {"enabled": True}, "fp16": {"enabled": False, "auto_cast": True}}
    found = places(verdict_on(config, version=version), Level.WARNING)
    assert ("fp16.auto_cast" in found) == (version not in {"0.15.4", "0.16.9"})
