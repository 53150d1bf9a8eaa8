"""Findings in short."""

from deepspeed_operator.api.status import Finding, Level


def error(path: str, message: str, fix: str) -> Finding:
    return Finding(level=Level.ERROR, path=path, message=message, fix=fix)


def warning(path: str, message: str, fix: str) -> Finding:
    return Finding(level=Level.WARNING, path=path, message=message, fix=fix)


def advice(path: str, message: str, fix: str = "") -> Finding:
    return Finding(level=Level.ADVICE, path=path, message=message, fix=fix)
