"""The annotation of a finished job is one patch of the version that was reconciled, or a line in the log."""

import asyncio
import logging
from typing import Any, cast

import pytest

from deepspeed_operator.api.job import DeepSpeedJob
from deepspeed_operator.controller import ended_runs
from deepspeed_operator.controller.children import TryAgainSoonError
from deepspeed_operator.controller.client import Client
from deepspeed_operator.controller.ended_runs import AGAIN_SECONDS, EndedRuns
from deepspeed_operator.controller.errors import ApiError
from deepspeed_operator.controller.resources import JOBS, Resource

RIGHT_MISSING = 'User "operator" cannot patch resource "deepspeedjobs" in API group "deepspeed-operator.dev"'
OF_OTHERS = "admission webhook denied the request: jobs need a cost centre"


class Server:
    """Takes patches, or refuses each of them."""

    def __init__(self, refusal: ApiError | None = None) -> None:
        self.refusal = refusal
        self.patches: list[tuple[Resource, str, dict[str, Any]]] = []
        self.taken: list[dict[str, Any]] = []

    async def patch(self, resource: Resource, namespace: str, body: dict[str, Any]) -> dict[str, Any]:
        self.patches.append((resource, namespace, body))
        if self.refusal is not None:
            raise self.refusal
        return body


def job(name: str, namespace: str = "ml") -> DeepSpeedJob:
    metadata = {"name": name, "namespace": namespace, "uid": f"{namespace}/{name}", "resourceVersion": "7"}
    return DeepSpeedJob.model_validate({"metadata": metadata, "spec": {"nodes": 1, "training": {"script": "a.py"}}})


def ended_runs_at(server: Server) -> EndedRuns:
    return EndedRuns(cast("Client", server), server.taken.append)


def mark(runs: EndedRuns, *jobs: DeepSpeedJob, text: str | None = "said") -> None:
    async def all_of_them() -> None:
        for each in jobs:
            await runs.mark(each, text)

    asyncio.run(all_of_them())


@pytest.mark.parametrize("text", ["said", None])
def test_the_patch_names_the_version_and_nothing_but_the_annotation(text: str | None) -> None:
    server = Server()
    mark(ended_runs_at(server), job("a"), text=text)
    annotations = {"deepspeed-operator.dev/ended-run": text}
    metadata = {"name": "a", "uid": "ml/a", "resourceVersion": "7", "annotations": annotations}
    assert server.patches == [(JOBS, "ml", {"metadata": metadata})]
    assert server.taken == [{"metadata": metadata}], "as the answer has it"


@pytest.mark.parametrize("status", [404, 409])
def test_a_job_that_was_changed_meanwhile_is_looked_at_again(status: int) -> None:
    runs = ended_runs_at(Server(ApiError(status, "Conflict", "the object has been modified")))
    with pytest.raises(TryAgainSoonError):
        mark(runs, job("a"))


@pytest.mark.parametrize("status", [0, 429, 503])
def test_a_server_in_trouble_is_the_queues_to_ask_again(status: int) -> None:
    server = Server(ApiError(status, "Any", "in trouble"))
    for _ in range(2):
        with pytest.raises(ApiError):
            mark(ended_runs_at(server), job("a"))
    assert len(server.patches) == 2


@pytest.mark.parametrize(("words", "asked"), [(RIGHT_MISSING, ["ml", "other"]), (OF_OTHERS, ["ml", "ml", "other"])])
def test_a_refusal_is_told_once_and_asked_for_again_an_hour_later(
    words: str, asked: list[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(ended_runs, "steady", lambda: clock[0])
    server = Server(ApiError(403, "Forbidden", words))
    runs, jobs = ended_runs_at(server), (job("a"), job("b"), job("a"), job("c", "other"))
    with caplog.at_level(logging.WARNING):
        mark(runs, *jobs)
        clock[0] += AGAIN_SECONDS
        mark(runs, *jobs)
        assert [namespace for _, namespace, _ in server.patches] == asked, "whoever was refused is not asked again"
        clock[0] += 1
        server.refusal = None
        mark(runs, *jobs)
    assert len(server.taken) == len({each.metadata.uid for each in jobs})
    (line,) = caplog.messages
    assert "deepspeed-operator.dev/ended-run of ml/a could not be written" in line
    assert words in line


def test_what_another_controller_takes_back_at_once_is_written_again_an_hour_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(ended_runs, "steady", lambda: clock[0])
    server = Server()
    runs = ended_runs_at(server)
    mark(runs, *[job("a")] * 3)
    assert len(server.patches) == 1
    mark(runs, job("a"), text="another run's")
    assert len(server.patches) == 2, "what it says now was not taken back"
    clock[0] += AGAIN_SECONDS + 1
    mark(runs, job("a"))
    assert len(server.patches) == 3
