"""Jobs that are left alone, to see that so the operator leaves them alone."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.e2e.installation import Operator, now
from tests.e2e.jobs import ranks, script
from tests.e2e.kube import Namespace

FINISHED, RUNNING = 20, 5


@dataclass(frozen=True)
class Crowd:
    """Jobs of which nothing is to happen any more, from a moment on."""

    namespace: Namespace
    settled: str
    settled_at: float


@pytest.fixture(scope="package")
def crowd(make_namespace: Callable[..., Namespace], operator: Operator, plain: str) -> Crowd:
    """Twenty finished jobs and five that run, and one of every other state that lasts."""
    namespace = make_namespace("crowd")
    namespace.config_map("rank", script("rank.py"))
    running = [ranks(f"running-{number}", plain, "sleep=7200", nodes=1) for number in range(RUNNING)]
    finished = [ranks(f"finished-{number}", plain, f"exit={number % 2}", nodes=1) for number in range(FINISHED)]
    suspended = ranks("suspended", plain, suspend=True)
    invalid = ranks("invalid", plain, dsConfig={"train_batch_size": 3})
    namespace.apply(*running, *finished, suspended, invalid)
    for number in range(FINISHED):
        namespace.finished(f"finished-{number}", 120)
    for number in range(RUNNING):
        namespace.running(f"running-{number}")
    operator.quiet(namespace.name)
    return Crowd(namespace, now(), time.monotonic())
