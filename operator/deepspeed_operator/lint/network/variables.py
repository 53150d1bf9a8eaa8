"""The variables that NCCL has read, by release, and what became of those that it reads no more or advises against."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

from deepspeed_operator.api.spec import DeepSpeedJobSpec
from deepspeed_operator.api.untyped import list_at, object_at
from deepspeed_operator.dsconfig.nearest import NearNames
from deepspeed_operator.job.template import pod_template

PREFIX: Final = "NCCL_"
# Read by plugins, by other programs, or by nobody but set in every image.
OF_OTHERS: Final = (
    "NCCL_OFI_",
    "NCCL_FASTRAK_",
    "NCCL_GPUDIRECTTCPX_",
    "NCCL_SHIMNET_",
    "NCCL_TUNER_CONFIG_",
    "NCCL_UCX_",
    "NCCL_PLUGIN_",
    "NCCL_TESTS_",
    "NCCL_VERSION",
    "NCCL_LIB_DIR",
    "NCCL_HOME",
    "NCCL_ROOT",
    "NCCL_IB_NET_LATENCY",
)
# Variable → what to write today; None: nothing.
REPLACED: Final[Mapping[str, str | None]] = {
    "NCCL_MIN_NRINGS": "NCCL_MIN_CTAS",
    "NCCL_MAX_NRINGS": "NCCL_MAX_CTAS",
    "NCCL_MIN_NCHANNELS": "NCCL_MIN_CTAS",
    "NCCL_MAX_NCHANNELS": "NCCL_MAX_CTAS",
    "NCCL_IB_GDR_LEVEL": "NCCL_NET_GDR_LEVEL",
    "NCCL_IB_CUDA_SUPPORT": "NCCL_NET_GDR_LEVEL",
    "NCCL_CHECK_POINTERS": "NCCL_CHECK_MODE",
    "NCCL_CHECKS_DISABLE": "NCCL_CHECK_MODE",
    "NCCL_SINGLE_RING_THRESHOLD": None,
    "NCCL_MNNVL": "NCCL_MNNVL_ENABLE",
    "NCCL_WORK_FIFO_DEPTH": "NCCL_WORK_FIFO_BYTES",
    "NCCL_THREAD_THRESHOLD": "NCCL_THREAD_THRESHOLDS",
    "NCCL_LL_THRESHOLD": None,
    "NCCL_TREE_THRESHOLD": None,
    "NCCL_LAUNCH_MODE": None,
    "NCCL_RINGS": None,
    # PyTorch's own, which it reads under these names for old scripts only.
    "NCCL_ASYNC_ERROR_HANDLING": "TORCH_NCCL_ASYNC_ERROR_HANDLING",
    "NCCL_BLOCKING_WAIT": "TORCH_NCCL_BLOCKING_WAIT",
    "NCCL_DESYNC_DEBUG": "TORCH_NCCL_DESYNC_DEBUG",
    "NCCL_ENABLE_TIMING": "TORCH_NCCL_ENABLE_TIMING",
    "NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK": "TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK",
}


@dataclass(frozen=True, slots=True)
class Row:
    """A variable of NCCL: the releases that read it, and whether its user guide keeps it for debugging."""

    since: str
    until: str | None = None
    debug: bool = False


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable as the job sets it; without a value it comes from elsewhere."""

    name: str
    value: str | None
    path: str

    def said(self, message: str) -> str:
        """Return a message that names the variable, where its path does not."""
        return message if self.path.endswith(f".{self.name}") else f"{self.name}: {message}"


@cache
def table() -> Mapping[str, Row]:
    """Return every variable that a release since 2.4 reads."""
    text = files("deepspeed_operator.lint.network").joinpath("variables.json").read_text(encoding="utf-8")
    return {name: Row(**row) for name, row in json.loads(text).items()}


def nearest(name: str, near: NearNames, cutoff: float = 0.8) -> str | None:
    """Return the variable that was probably meant."""
    return near.nearest(name.upper(), table(), cutoff)


def newer(release: str, than: str) -> bool:
    return _numbers(release) > _numbers(than)


def variables_of(spec: DeepSpeedJobSpec) -> dict[str, Variable]:
    """Return the variables that the job sets for its trainer, each with the value that the container gets."""
    given = spec.network.env if spec.network is not None else {}
    ours = {name: Variable(name, value, f"spec.network.env.{name}") for name, value in given.items()}
    return {**ours, **{each.name: each for each in _of_template(spec)}}


def _of_template(spec: DeepSpeedJobSpec) -> Iterator[Variable]:
    template = pod_template(spec)
    for index, item in enumerate(list_at(template.trainer, "env")):
        variable = object_at(item)
        name: Any = variable.get("name")
        value: Any = variable.get("value") if "valueFrom" not in variable else None
        if isinstance(name, str):
            path = f"{template.trainer_path}.env[{index}]"
            yield Variable(name, value if isinstance(value, str) else None, path)


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(number) for number in release.split("."))
