"""No value of a user's reaches a log through an exception."""

import json
import logging
import sys

import pytest
from pydantic import ValidationError

from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.controller.errors import ApiError
from deepspeed_operator.controller.logs import JsonFormatter, PlainFormatter

SECRET = "hf_abcdefghijkl"


def line_of(formatter: logging.Formatter) -> str:
    record = logging.LogRecord("test", logging.ERROR, __file__, 1, "failed", None, sys.exc_info())
    return formatter.format(record)


@pytest.mark.parametrize("formatter", [PlainFormatter("%(message)s"), JsonFormatter()])
def test_a_traceback_says_where_and_what_but_quotes_nobody(formatter: logging.Formatter) -> None:
    told = ""
    try:
        try:
            int(SECRET)
        except ValueError as error:
            raise ApiError(403, "Forbidden", "pods is forbidden") from error
    except ApiError:
        told = line_of(formatter)
    assert SECRET not in told
    assert "ValueError" in told
    assert "pods is forbidden" in told
    assert "test_logs.py" in told
    assert formatter.__class__ is PlainFormatter or json.loads(told)["message"] == "failed"


def test_a_job_that_cannot_be_read_is_told_without_its_values() -> None:
    metadata = {"name": "a", "namespace": "b"}
    with pytest.raises(ValidationError) as caught:
        DeepSpeedJob.model_validate({"metadata": metadata, "spec": {"training": {"script": {"token": SECRET}}}})
    assert SECRET not in str(caught.value)
    assert "spec.training.script" in str(caught.value)
