"""What the API server's answers mean."""

import json

import pytest

from deepspeed_operator.controller.children import NamespaceTerminatingError, RefusedError, refusal_of
from deepspeed_operator.controller.errors import ApiError, api_error


def answer(status: int, reason: str, message: str = "", **details: object) -> ApiError:
    body = {"kind": "Status", "reason": reason, "message": message, "details": details}
    return api_error(status, {}, json.dumps(body).encode())


def test_an_error_without_a_status_object_keeps_its_text() -> None:
    error = api_error(502, {"Retry-After": "7"}, b"<html>bad gateway")
    assert (error.status, error.message, error.retry_after) == (502, "<html>bad gateway", 7.0)


def test_a_retry_date_is_not_taken_for_seconds() -> None:
    assert api_error(503, {"Retry-After": "Fri, 27 Nov 2026 10:00:00 GMT"}, b"").retry_after is None


@pytest.mark.parametrize("status", [400, 403, 404, 422, 500])
def test_a_judgement_is_a_refusal_in_the_servers_words(status: int) -> None:
    error = refusal_of(answer(status, "Forbidden", 'pods "a" is forbidden: exceeded quota'))
    assert isinstance(error, RefusedError)
    assert error.message == 'pods "a" is forbidden: exceeded quota'
    assert not error.name_taken


@pytest.mark.parametrize("status", [0, 401, 429, 502, 503, 504])
def test_a_server_in_trouble_has_not_judged(status: int) -> None:
    assert isinstance(refusal_of(answer(status, "Whatever")), ApiError)


def test_a_terminating_namespace_is_no_refusal() -> None:
    causes = [{"reason": "NamespaceTerminating", "message": "namespace ml is being terminated"}]
    assert isinstance(refusal_of(answer(403, "Forbidden", "no", causes=causes)), NamespaceTerminatingError)


def test_the_two_meanings_of_409() -> None:
    exists, conflict = answer(409, "AlreadyExists"), answer(409, "Conflict")
    assert (exists.already_exists, exists.conflict) == (True, False)
    assert (conflict.already_exists, conflict.conflict) == (False, True)
