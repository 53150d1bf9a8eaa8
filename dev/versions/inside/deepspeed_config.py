"""DeepSpeed's configuration class without a process group: the world size is what the caller says."""

# DeepSpeed is there only.
# pyright: basic, reportMissingImports=false

import copy
import logging
import os
import warnings
from typing import Any

import setuptools  # noqa: F401  brings distutils, which Python 3.13 has no more and older versions import

# DeepSpeed prints on stdout while it is imported; that is where our answers go.
_stdout = os.dup(1)
os.dup2(2, 1)


warnings.simplefilter("ignore")
import deepspeed.comm  # noqa: E402
from deepspeed.runtime import config  # noqa: E402
from deepspeed.utils import logger  # noqa: E402

answers = os.fdopen(_stdout, "w", buffering=1)


class _Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage()[:300])


_kept = _Kept()
logger.handlers = [_kept]
logger.propagate = False


class Verdict:
    def __init__(self, read: Any, error: BaseException | None) -> None:
        self.read = read
        self.error = error
        self.warnings = list(_kept.messages)

    @property
    def ok(self) -> bool:
        return self.error is None

    @property
    def reason(self) -> str:
        return f"{type(self.error).__name__}: {self.error}" if self.error is not None else ""

    @property
    def batch(self) -> list[Any] | None:
        read = self.read
        if read is None:
            return None
        return [read.train_batch_size, read.train_micro_batch_size_per_gpu, read.gradient_accumulation_steps]


def read(values: Any, world: int = 1) -> Verdict:
    """What DeepSpeed makes of these values; a copy, because it writes into them."""
    return read_itself(copy.deepcopy(values), world)


def read_itself(values: Any, world: int = 1) -> Verdict:
    deepspeed.comm.get_rank = lambda *_group: 0
    deepspeed.comm.get_world_size = lambda *_group: world
    _kept.messages.clear()
    try:
        return Verdict(config.DeepSpeedConfig(values), None)
    except BaseException as error:  # pydantic's and everybody else's: any of them is a refusal
        if isinstance(error, KeyboardInterrupt):
            raise
        return Verdict(None, error)
