"""What docs/gitops.md has Argo CD and Flux evaluate says of each state what the page's table says."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import celpy
import pytest
import yaml
from lupa import lua51

from deepspeed_operator.api.status import State
from tests.unit.reconcile.simulation import Simulation, job

PAGE = (Path(__file__).parents[3] / "docs/gitops.md").read_text()
# They have no whole types.
cel: Any = celpy
interpreter: Any = lua51
BLOCKS: list[Any] = [
    yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
]
(FLUX,) = (block["healthCheckExprs"][0] for block in BLOCKS if "healthCheckExprs" in block)
(ARGO,) = (next(iter(block["data"].values())) for block in BLOCKS if "data" in block)


def started(**spec: Any) -> Simulation:
    simulation = Simulation(job(**spec))
    simulation.settle()
    return simulation


def running(**spec: Any) -> Simulation:
    return started(**spec).train()


def suspending() -> Simulation:
    simulation = running()
    simulation.edit(suspend=True)
    simulation.settle()
    return simulation


def complete() -> Simulation:
    simulation = running()
    simulation.end(0)
    simulation.end(1)
    simulation.settle()
    return simulation


def failed(**spec: Any) -> Simulation:
    simulation = running(**spec)
    simulation.end(1, 137)
    simulation.end(0, 1)
    simulation.settle()
    return simulation


def refused_while_running() -> Simulation:
    simulation = running()
    simulation.edit(runId="b", dsConfig={"train_batch_size": 3, "train_micro_batch_size_per_gpu": 2})
    simulation.settle()
    return simulation


# Its state; then what kstatus makes of Ready, Reconciling and Stalled, and Argo CD of the page's program.
LIVES: Final[dict[str, tuple[Callable[[], Simulation], State, str, str]]] = {
    "starting": (started, State.STARTING, "InProgress", "Progressing"),
    "running": (running, State.RUNNING, "Current", "Healthy"),
    "restarting": (lambda: failed(failurePolicy={"maxRestarts": 3}), State.RESTARTING, "InProgress", "Progressing"),
    "suspending": (suspending, State.SUSPENDING, "InProgress", "Progressing"),
    "suspended": (lambda: started(suspend=True), State.SUSPENDED, "Current", "Suspended"),
    "complete": (complete, State.COMPLETE, "Current", "Healthy"),
    "failed": (failed, State.FAILED, "Failed", "Degraded"),
    "refused": (lambda: started(dsConfig={"train_batch_size": 3}), State.INVALID, "Failed", "Degraded"),
    "refused while running": (refused_while_running, State.RUNNING, "Failed", "Degraded"),
}


def body(simulation: Simulation) -> dict[str, Any]:
    return simulation.job.model_dump(mode="json", by_alias=True, exclude_none=True)


def argo_says(shown: dict[str, Any]) -> tuple[str, str]:
    lua = interpreter.LuaRuntime()
    lua.globals().obj = lua.table_from(shown, recursive=True)
    health = lua.execute(ARGO)
    return health.status, health.message


def flux_says(shown: dict[str, Any]) -> str:
    """Return the first that holds, in Flux's order."""
    variables = cel.json_to_cel(shown)
    for name, verdict in (("inProgress", "InProgress"), ("failed", "Failed"), ("current", "Current")):
        environment = cel.Environment()
        if environment.program(environment.compile(FLUX[name])).evaluate(variables):
            return verdict
    return "InProgress"


@pytest.mark.parametrize(("life", "state", "kstatus", "argo"), LIVES.values(), ids=LIVES)
def test_each_state_is_told_to_each_tool(life: Callable[[], Simulation], state: State, kstatus: str, argo: str) -> None:
    simulation = life()
    shown = body(simulation)
    assert shown["status"]["state"] == state
    holds = {each["type"]: each["status"] == "True" for each in shown["status"]["conditions"]}
    # In the order in which kstatus looks: sigs.k8s.io/cli-utils, checkGenericProperties.
    told = "InProgress" if holds["Reconciling"] else "Failed" if holds["Stalled"] else "Current"
    assert told == kstatus
    assert holds["Ready"] == (kstatus == "Current")
    assert flux_says(shown) == kstatus
    status, message = argo_says(shown)
    assert status == argo
    assert message


@pytest.mark.parametrize("change", ["no status", "an older generation"])
def test_what_the_operator_has_not_seen_is_in_progress(change: str) -> None:
    shown = body(complete())
    if change == "no status":
        shown["status"] = {}
    else:
        shown["metadata"]["generation"] += 1
    assert flux_says(shown) == "InProgress"
    assert argo_says(shown)[0] == "Progressing"
