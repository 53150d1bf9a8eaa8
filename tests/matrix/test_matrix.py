"""Each accepted feature really trains two ranks; what we refuse, DeepSpeed's engine refuses, too."""

from collections.abc import Callable
from dataclasses import asdict

import pytest

from deepspeed_operator.dsconfig.notes import written
from tests.e2e.jobs import NO_GPU, job
from tests.e2e.kube import Job, Json, Namespace
from tests.matrix import document
from tests.matrix.features import FEATURES
from tests.matrix.refusals import REFUSALS
from tests.matrix.rows import Feature, Refusal, Row
from tests.matrix.running import Result, run

# Each takes two seconds, and tests/oracle/test_engine.py starts an engine for every rule of ours.
SOME = tuple(row for number, row in enumerate(REFUSALS) if row.job != Refusal.job or number % 4 == 0)


def _name(row: Row) -> str:
    return row.name


@pytest.fixture(scope="module")
def namespace(make_namespace: Callable[..., Namespace]) -> Namespace:
    return make_namespace("matrix")


@pytest.fixture(scope="module")
def results(namespace: Namespace, image: Callable[[str], str], pytestconfig: pytest.Config) -> dict[str, Result]:
    every = pytestconfig.getoption("--update-golden")
    return run(namespace, image("worker"), (*FEATURES, *(REFUSALS if every else SOME)))


@pytest.mark.parametrize("feature", FEATURES, ids=_name)
def test_an_accepted_feature_trains(results: dict[str, Result], feature: Feature) -> None:
    first, second = results[feature.name].ranks
    assert "error" not in first, first
    assert "error" not in second, second
    assert first["losses"][-1] < first["losses"][0]
    assert first["losses"] == second["losses"]
    assert {name: first["facts"].get(name) for name in feature.shows} == feature.shows


@pytest.mark.parametrize("refusal", SOME, ids=_name)
def test_deepspeed_refuses_when_its_engine_starts(results: dict[str, Result], refusal: Refusal) -> None:
    for rank in results[refusal.name].ranks:
        assert refusal.says in rank.get("error", "it trained")
        assert rank["readable"], "DeepSpeed refuses it already when it reads it"


@pytest.mark.parametrize("feature", FEATURES, ids=_name)
def test_we_accept_what_trains(feature: Feature) -> None:
    assert document.ours(feature) == []


@pytest.mark.parametrize("refusal", REFUSALS, ids=_name)
def test_we_refuse_what_does_not_start_unless_the_script_decides(refusal: Refusal) -> None:
    paths = {written(note.path) for note in document.ours(refusal, refusal.level)}
    assert refusal.path in paths if refusal.path is not None else refusal.reason
    if not refusal.refused_by_us:
        assert document.ours(refusal) == []


@pytest.fixture(scope="module")
def judged(namespace: Namespace) -> dict[str, Job]:
    """Each row as a job of its own, which stays suspended."""
    names = {row.name: f"judged-{number}" for number, row in enumerate((*FEATURES, *REFUSALS))}
    namespace.apply(*(_suspended(names[row.name], row) for row in (*FEATURES, *REFUSALS)))
    return {row: namespace.wait(name, lambda job: job.condition("Accepted")) for row, name in names.items()}


def _suspended(name: str, row: Row) -> Json:
    more: Json = {"nodes": row.ranks, "deepspeedVersion": document.VERSION, "suspend": True, "dsConfig": row.config}
    more["parallelism"] = {kind: degree for kind, degree in asdict(row.parallelism).items() if degree is not None}
    return job(name, "worker", training={"script": "train.py"}, trainer={"resources": NO_GPU}, **more)


@pytest.mark.parametrize("feature", FEATURES, ids=_name)
def test_the_operator_accepts_what_trains(judged: dict[str, Job], feature: Feature) -> None:
    assert judged[feature.name].holds("Accepted"), judged[feature.name].message("Accepted")


@pytest.mark.parametrize("refusal", [row for row in REFUSALS if row.refused_by_us], ids=_name)
def test_the_operator_refuses_what_does_not_start(judged: dict[str, Job], refusal: Refusal) -> None:
    found = judged[refusal.name]
    assert found.reason("Accepted") == "InvalidDeepSpeedConfig", found.message("Accepted")
    assert f"spec.dsConfig.{refusal.path}".rstrip(".") in found.message("Accepted")


def test_the_page_tells_what_this_run_saw(results: dict[str, Result], request: pytest.FixtureRequest) -> None:
    page = document.page(results)
    if request.config.getoption("--update-golden"):
        document.PAGE.write_text(page)
    assert document.verdicts(page) <= document.verdicts(document.PAGE.read_text())
