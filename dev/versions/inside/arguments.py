"""Which names in optimizer.params each optimizer takes: DeepSpeed's engine is given one at a time.

Classes are stood in for by their signatures: nothing is compiled, and a name that a constructor lacks is refused as it
would refuse it.
"""

# pyright: basic, reportMissingImports=false

import ast
import importlib
import inspect
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import deepspeed.ops.adagrad
import deepspeed.ops.adam
import deepspeed.ops.lamb
import deepspeed.ops.lion
import torch
from deepspeed.runtime import config, engine

_OPS = (deepspeed.ops.adam, deepspeed.ops.adagrad, deepspeed.ops.lamb, deepspeed.ops.lion)
_ONE_BIT = ("adam", "lamb", "zoadam")
_NONSENSE = "probe"
_TORCH_ADAM = config.TORCH_ADAM_PARAM


class _Engine(engine.DeepSpeedEngine):
    """What is asked of an engine when it makes its optimizer; `on_host`: whether states are offloaded."""

    zenflow = has_moe_layers = False

    def __init__(self, name: str, on_host: bool, parameters: dict[str, Any]) -> None:
        torch.nn.Module.__init__(self)
        self.optimizer_name = lambda: name
        self.optimizer_params = lambda: parameters
        self.zero_use_cpu_optimizer = lambda: on_host
        self.zero_optimization = self.bf16_optimizer_states = lambda: False
        self.fp16_enabled = lambda: True

    def __del__(self) -> None:
        """There is nothing to take apart."""


def accepted(optimizers: Iterable[str]) -> dict[str, dict[str, list[str]]]:
    """Names for each optimizer: of the one on the device, on the host, and of torch's; without those that take any."""
    found: dict[str, dict[str, list[str]]] = {}
    with _stood_in_for() as names:
        candidates = sorted(names | _words())
        for optimizer in optimizers:
            places: dict[str, tuple[bool, dict[str, Any]]] = {
                "device": (False, {}),
                "host": (True, {}),
                "torch": (False, {_TORCH_ADAM: True}),
            }
            lists = {place: _names(optimizer, on_host, given, candidates) for place, (on_host, given) in places.items()}
            first = lists["device"]
            if first is not None:
                others = {place: each for place, each in lists.items() if each not in (None, first)}
                found[optimizer] = {"device": first, **others}
    return found


def _names(optimizer: str, on_host: bool, given: dict[str, Any], candidates: list[str]) -> list[str] | None:
    if not _takes(optimizer, on_host, given) or _takes(optimizer, on_host, {**given, _NONSENSE: 1}):
        return None
    return [name for name in candidates if _takes(optimizer, on_host, {**given, name: 1})]


def _takes(optimizer: str, on_host: bool, parameters: dict[str, Any]) -> bool:
    made = _Engine(optimizer, on_host, dict(parameters))
    try:
        made._configure_basic_optimizer([])
    except Exception:  # a ValueError of DeepSpeed's, a TypeError of the signature: it is refused
        return False
    return True


@contextmanager
def _stood_in_for() -> Iterator[set[str]]:
    """All optimizers' classes by functions with their signatures; yields the names in these."""
    places = [*_OPS, torch.optim, *_one_bit()]
    before = [(place, name, value) for place in places for name, value in vars(place).items() if _is_optimizer(value)]
    names: set[str] = set()
    for place, name, value in before:
        signature = inspect.signature(value.__init__)
        names |= {each.name for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD}
        setattr(place, name, _checked(value, signature))
    yield names
    for place, name, value in before:
        setattr(place, name, value)


def _checked(optimizer: type, signature: inspect.Signature) -> Any:
    def make(*args: Any, **kwargs: Any) -> None:
        signature.bind(None, *args, **kwargs)

    make.__name__ = optimizer.__name__
    return make


def _one_bit() -> Iterator[Any]:
    for name in _ONE_BIT:
        try:
            yield importlib.import_module(f"deepspeed.runtime.fp16.onebit.{name}")
        except ImportError:  # newer versions have none
            continue


def _is_optimizer(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, torch.optim.Optimizer) and value is not torch.optim.Optimizer


def _words() -> set[str]:
    """Names that the engine takes out before the constructor sees them are words of its code."""
    words: set[str] = set()
    for module in (config, engine):
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
                words.add(node.value)
    return words
