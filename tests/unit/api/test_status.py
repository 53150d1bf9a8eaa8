"""A finding as one line of text."""

import pytest

from deepspeed_operator.api.status import Finding, Level


@pytest.mark.parametrize(
    ("message", "fix", "text"),
    [
        ("there is no ConfigMap code", "create it.", "spec: there is no ConfigMap code. Fix: create it."),
        ("is no number.", "Write 1.", "spec: is no number. Fix: Write 1."),
        ("is new.", "", "spec: is new."),
    ],
)
def test_a_finding_ends_before_its_fix_begins(message: str, fix: str, text: str) -> None:
    assert f"{Finding(level=Level.ERROR, path='spec', message=message, fix=fix)}" == text
