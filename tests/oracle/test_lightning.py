"""PyTorch Lightning itself with DeepSpeed: it refuses what we say it does, and trains the rest.

Its strategy wants CUDA devices; the CPU stands for one, and all else is Lightning's and DeepSpeed's own.
"""

import json
import subprocess
from functools import cache
from typing import Any, NamedTuple

import pytest

from deepspeed_operator.api.spec import Integration
from deepspeed_operator.api.status import Level
from deepspeed_operator.dsconfig.judgement import JudgementContext, validate
from deepspeed_operator.dsconfig.versions import SUPPORTED
from dev.versions import rootfs

pytestmark = pytest.mark.timeout(900)
# The newest, and the oldest that this Lightning takes.
VERSIONS = (SUPPORTED[1], SUPPORTED[-1])
# The loader's batch size is 3, and its Trainer runs one rank.
MICRO: dict[str, Any] = {"train_micro_batch_size_per_gpu": 4, "zero_allow_untested_optimizer": True}
DECAY = {"total_num_steps": 9, "warmup_num_steps": 2, "warmup_max_lr": 0.1}
CLIPPED = {"gradient_clip_val": 0.5}


class Fit(NamedTuple):
    """A configuration, the Trainer's arguments, and words of the refusal; nothing where it trains."""

    config: dict[str, Any]
    words: str = ""
    trainer: dict[str, Any] = {}  # noqa: RUF012  never changed


def scheduled(**params: Any) -> dict[str, Any]:
    return {**MICRO, "scheduler": {"type": "WarmupDecayLR", "params": {**DECAY, **params}}}


def optimized(**params: Any) -> dict[str, Any]:
    return {**MICRO, "optimizer": {"type": "AdamW", "params": {"torch_adam": True, "lr": 0.1, **params}}}


COMPARED = "not supported between instances of 'str' and"
FITS = [
    Fit(MICRO),
    Fit({**MICRO, "gradient_accumulation_steps": 1}, "accumulate_grad_batches"),
    Fit({**MICRO, "gradient_accumulation_steps": "auto"}, "accumulate_grad_batches"),
    Fit({"zero_allow_untested_optimizer": True}, trainer=CLIPPED),
    Fit({**MICRO, "train_batch_size": 8}, trainer={"accumulate_grad_batches": 2}),
    Fit({**MICRO, "train_batch_size": 6}, "Check batch related parameters"),
    Fit({**MICRO, "train_batch_size": "auto"}, COMPARED),
    Fit({**MICRO, "train_micro_batch_size_per_gpu": "auto"}, COMPARED),
    Fit({**MICRO, "gradient_clipping": "auto"}, COMPARED),
    Fit(optimized()),
    *(Fit(optimized(**{key: "auto"}), "Error") for key in ("lr", "eps", "weight_decay", "betas")),
    *(Fit(scheduled(**{key: "auto"}), "Error") for key in DECAY),
    Fit({**MICRO, "bf16": {"enabled": "auto"}}),
    Fit({**MICRO, "zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"}}),
]


@cache
def fitted(version: str) -> list[dict[str, Any]]:
    rootfs.installed(version, "lightning")
    asked = "".join(f"{json.dumps({'config': fit.config, 'trainer': fit.trainer})}\n" for fit in FITS)
    command = rootfs.command(version, "lightning_fit.py", others=["lightning"])
    done = subprocess.run(
        command, input=asked, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("version", VERSIONS)
def test_lightning_refuses_what_we_say_and_trains_the_rest(version: str) -> None:
    for fit, answer in zip(FITS, fitted(version), strict=True):
        refusal = answer["refused"]
        assert fit.words in (refusal or ""), (fit, refusal)
        assert bool(fit.words) == (refusal is not None), (fit, refusal)
        verdict = validate(fit.config, JudgementContext(1, version, "cuda", integration=Integration.LIGHTNING))
        assert verdict.refused == bool(fit.words), (fit, [note for note in verdict.notes if note.level is Level.ERROR])


@pytest.mark.parametrize("version", VERSIONS)
def test_its_trainer_and_its_loader_give_what_the_configuration_leaves_out(version: str) -> None:
    answers = dict(zip(map(str, FITS), fitted(version), strict=True))
    left_out = answers[str(Fit({"zero_allow_untested_optimizer": True}, trainer=CLIPPED))]
    assert (left_out["micro"], left_out["accumulation"], left_out["clipping"]) == (3, 1, 0.5)
    assert answers[str(FITS[4])]["accumulation"] == 2
