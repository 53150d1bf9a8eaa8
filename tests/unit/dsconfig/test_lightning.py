"""What a configuration comes to under PyTorch Lightning; tests/oracle shows it of Lightning itself."""

from typing import Any

import pytest

from deepspeed_operator.api.spec import Integration
from deepspeed_operator.api.status import Level
from deepspeed_operator.dsconfig.auto import FILLED
from tests.unit.dsconfig.verdicts import ADAM, places, said, verdict_on

LIGHTNING: dict[str, Any] = {"integration": Integration.LIGHTNING}
MICRO = {"train_micro_batch_size_per_gpu": 4}


def at(path: str, value: Any) -> dict[str, Any]:
    """A configuration with this value at a path."""
    first, _, rest = path.partition(".")
    return {first: at(rest, value) if rest else value}


@pytest.mark.parametrize("steps", [1, 2])
def test_accumulation_is_the_trainers_to_say(steps: int) -> None:
    verdict = verdict_on({**MICRO, "gradient_accumulation_steps": steps}, **LIGHTNING)
    assert places(verdict, Level.ERROR) == ["gradient_accumulation_steps"]
    assert f"Trainer(accumulate_grad_batches={steps})" in said(verdict, "gradient_accumulation_steps")


@pytest.mark.parametrize("path", [path for path in FILLED if path != "gradient_accumulation_steps"])
def test_auto_is_filled_in_by_nobody(path: str) -> None:
    verdict = verdict_on({**MICRO, **at(path, "auto")}, **LIGHTNING)
    passed_over = path.startswith(("fp16", "bf16", "zero_optimization"))
    assert path in places(verdict, Level.WARNING if passed_over else Level.ERROR)


def test_the_argument_of_the_trainer_is_named() -> None:
    for path, words in {
        "gradient_clipping": "Trainer(gradient_clip_val=1.0)",
        "bf16.enabled": 'Trainer(precision="bf16-mixed")',
        "train_micro_batch_size_per_gpu": "the batch size of the data loader",
        "optimizer.params.lr": "configure_optimizers",
    }.items():
        assert words in said(verdict_on(at(path, "auto"), **LIGHTNING), path)


def test_what_lightning_takes_is_fine() -> None:
    assert verdict_on({**MICRO, **ADAM, "zero_optimization": {"stage": 2}}, **LIGHTNING).notes == ()
    # From the data loader.
    assert not verdict_on({"zero_optimization": {"stage": 2}}, **LIGHTNING).refused


@pytest.mark.parametrize(
    ("train", "level", "words"),
    [
        (32, None, ""),
        (64, Level.WARNING, "Trainer(accumulate_grad_batches=2)"),
        (48, Level.ERROR, "no multiple of train_micro_batch_size_per_gpu 4 × 8 ranks"),
    ],
)
def test_a_train_batch_size_has_to_be_the_product(train: int, level: Level | None, words: str) -> None:
    verdict = verdict_on({**MICRO, "train_batch_size": train}, **LIGHTNING)
    assert {note.level for note in verdict.notes} == ({level} if level else set())
    assert words in said(verdict, "train_batch_size")


def test_a_train_batch_size_alone_is_a_warning() -> None:
    verdict = verdict_on({"train_batch_size": 32}, **LIGHTNING)
    assert places(verdict, Level.WARNING) == ["train_batch_size"]
    assert places(verdict, Level.ERROR) == []


def test_gradients_are_not_divided_twice() -> None:
    config = {**MICRO, "gradient_accumulation_steps": 4}
    codes = {note.code for note in verdict_on(config, version="0.18.3", **LIGHTNING).notes}
    assert "gradients-divided-twice" not in codes
