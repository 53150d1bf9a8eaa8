"""Lets DeepSpeed 0.19.6 be installed and imported with PyTorch 2.6, which cannot read the annotation `list[int]`."""

# pyright: basic, reportMissingImports=false

import typing
from typing import Any

import torch.library

_infer_schema = torch.library.infer_schema


def _readable(annotation: Any) -> Any:
    return typing.List[int] if annotation in (list[int], "list[int]") else annotation  # noqa: UP006  the very difference


def infer_schema(function: Any, **named: Any) -> str:
    function.__annotations__ = {name: _readable(annotation) for name, annotation in function.__annotations__.items()}
    return _infer_schema(function, **named)


torch.library.infer_schema = infer_schema
