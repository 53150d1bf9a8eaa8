"""Runs the rows in a few DeepSpeedJobs: importing DeepSpeed costs a rank more than most rows do."""

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.jobs import EAGER, NO_GPU, job
from tests.e2e.kube import Json, Namespace
from tests.matrix.rows import Row

_SCRIPTS = Path(__file__).parent / "scripts"
_FROM = "from"
_MARK = "RESULT "
# The ranks of one job compute, while those of the other import.
_AT_ONCE = 2
_LONGEST = 300


@dataclass(frozen=True)
class Result:
    """What came of a row, as each rank tells it, and the DeepSpeed that its job's status names."""

    version: str
    seconds: float
    ranks: list[Json]


def run(namespace: Namespace, image: str, rows: Sequence[Row]) -> dict[str, Result]:
    """The results by the names of the rows. A row that ended its job has none."""
    jobs = {row.job: [other for other in rows if other.job == row.job] for row in rows}
    files = {f"{name}.json": json.dumps([_told(row) for row in shared]) for name, shared in jobs.items()}
    namespace.config_map("matrix", {**{path.name: path.read_text() for path in _SCRIPTS.glob("*.py")}, **files})
    (alone,) = jobs[_FROM]
    namespace.config_map("ds-config", {"ds_config.json": json.dumps(alone.config)})
    results: dict[str, Result] = {}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        running = [pool.submit(_results, namespace, image, name, shared[0].ranks) for name, shared in jobs.items()]
        for job_results in running:
            results |= job_results.result()
    return results


def _told(row: Row) -> Json:
    config = None if row.job == _FROM else row.config
    return {"name": row.name, "script": row.script, "config": config}


def _results(namespace: Namespace, image: str, name: str, ranks: int) -> dict[str, Result]:
    arguments, more = [f"{name}.json"], dict[str, Any](nodes=ranks)
    if name == _FROM:
        arguments.append("$(DEEPSPEED_CONFIG)")
        more["dsConfigFrom"] = {"configMap": "ds-config", "key": "ds_config.json"}
    training = {"script": "features.py", "args": arguments, "files": {"configMap": "matrix"}}
    namespace.apply(job(name, image, training=training, trainer={"resources": NO_GPU, "env": EAGER}, **more))
    ended = namespace.ended(name, _LONGEST)
    print(namespace.report(name) if ended.outcome != "Complete" else f"{name}: Complete")
    found: dict[str, Result] = {}
    for line in namespace.log(f"{name}-1-0").splitlines():
        if line.startswith(_MARK):
            told = json.loads(line.removeprefix(_MARK))
            version = ended.run.get("deepspeedVersion", "unknown")
            found[told["name"]] = Result(version, told["seconds"], told["ranks"])
    return found
