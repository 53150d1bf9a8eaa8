"""Types of arguments that only judging knows: what cannot be meant is refused in words, before anything is read."""

import argparse

from deepspeed_operator.api.finding import Code
from deepspeed_operator.dsconfig.nearest import nearest
from deepspeed_operator.dsconfig.versions import SUPPORTED, numbers_of

KNOWN = ", ".join(SUPPORTED)


def version_number(text: str) -> str:
    """Read a version of DeepSpeed."""
    if numbers_of(text) is None:
        raise argparse.ArgumentTypeError(no_version(text))
    return text


def no_version(text: str) -> str:
    """Return what to write instead of a text that is no version."""
    return f"{text[:20]} is no version of three numbers; known here are {KNOWN}"


def finding_code(text: str) -> Code:
    """Read the code of a finding."""
    try:
        return Code(text)
    except ValueError:
        close = nearest(text, Code)
        hint = f"; the nearest is {close}" if close else ""
        raise argparse.ArgumentTypeError(f"no finding has the code {text[:40]}{hint}") from None
