"""Jobs that a tenant may write to harm others: large, deep, many, odd. The API server takes each or refuses it."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from tests.faults.jobs import Json, manifest

# Below what etcd takes of one object, 1.5 MiB.
_LARGE: Final = 1_200_000
_PRIME: Final = 9_223_372_036_854_775_783


@dataclass(frozen=True)
class Hostile:
    """One kind; `make` returns its jobs and ConfigMaps."""

    what: str
    make: Callable[[], list[Json]]


def job(name: str, nodes: int = 1, **spec: Any) -> Json:
    made = manifest(name, nodes)
    return {**made, "spec": {**made["spec"], **spec}}


def _trainer(**fields: Any) -> Json:
    """A template for the simulated nodes whose trainer has these fields."""
    template = manifest("any", 1)["spec"]["template"]
    return {**template, "spec": {**template["spec"], "containers": [{"name": "trainer", **fields}]}}


def _template(**fields: Any) -> Json:
    return {**manifest("any", 1)["spec"]["template"], **fields}


def _nested(depth: int) -> Any:
    sys.setrecursionlimit(20_000)  # json goes down as deep, and its own process is not what is tried
    value: Any = 1
    for _ in range(depth):
        value = {"a": value}
    return value


def _config_map(name: str, text: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": text}}


def _from_config_map(name: str, text: str) -> list[Json]:
    source = {"configMap": name, "key": "key"}
    read = job(name, dsConfigFrom=source)
    del read["spec"]["dsConfig"]
    return [_config_map(name, text), read]


def _environment(names: Iterator[str]) -> list[Json]:
    return [{"name": name, "value": "1"} for name in names]


def _model() -> Json:
    model = {
        "parameters": 10**15,
        "layers": 10_000,
        "hiddenSize": 10**7,
        "heads": 10_000,
        "vocabulary": 10**7,
        "sequenceLength": 10**9,
        "experts": {"count": 65_536, "layers": 10_000, "parameters": 10**9, "topK": 1024},
    }
    config = {"train_batch_size": "auto", "zero_optimization": {"stage": 3}, "bf16": {"enabled": True}}
    return {"model": model, "dsConfig": {**config, "train_micro_batch_size_per_gpu": 1}, "gpuMemory": "80Gi"}


KINDS: Final = (
    Hostile(
        "27,000 unknown `NCCL_…` variables (1 MB)",
        lambda: [job("nccl", template=_trainer(env=_environment(f"NCCL_X{n:05}" for n in range(27_000))))],
    ),
    Hostile(
        "1,000 misspelt variables of 1,000 characters",
        lambda: [job("long-names", template=_trainer(env=_environment(f"NCCL_{n:04}" * 100 for n in range(1000))))],
    ),
    Hostile(
        "12 suspended jobs with 60,000 empty objects each",
        lambda: [job(f"wide-{n}", suspend=True, template=_template(x=[{}] * 60_000)) for n in range(12)],
    ),
    Hostile("a template 3,000 objects deep", lambda: [job("deep-template", template=_template(x=_nested(3_000)))]),
    Hostile("a dsConfig 3,000 objects deep", lambda: [job("deep-config", dsConfig=_nested(3_000))]),
    Hostile(
        "a dsConfig with 10,000 unknown keys",
        lambda: [job("keys", dsConfig={"zero_optimization": {f"stages_{n}": n for n in range(10_000)}})],
    ),
    Hostile("a dsConfig with a key of 1 MB", lambda: [job("long-key", dsConfig={"train_batch_siz" * 70_000: 1})]),
    Hostile(
        "batch sizes that are large primes",
        lambda: [job("prime", dsConfig={"train_batch_size": _PRIME, "train_micro_batch_size_per_gpu": 7919})],
    ),
    Hostile("a model of the largest numbers that the CRD takes", lambda: [job("model", 7, **_model())]),
    Hostile(
        "the largest quantities, and one of 1 MB",
        lambda: [
            job("quantity", template=_trainer(resources={"limits": {"memory": "1e18"}})),
            job("digits", template=_trainer(resources={"limits": {"memory": "9" * 1_000_000 + "Gi"}})),
        ],
    ),
    Hostile(
        "text for regular expressions (1 MB of a, of spaces, of brackets)",
        lambda: [job("pattern", template=_trainer(command=["python", "a" * 350_000, " " * 350_000, "((" * 150_000]))],
    ),
    Hostile(
        "text of every kind of Unicode",
        lambda: [
            job(
                "unicode",
                training={"script": "train.py", "args": ["\u202e\u0000\ufeff\U0001f600e\u0301" * 300]},
                dsConfig={"\u202etrain_batch_size": 1, "ｔrain_batch_size": "\u0000", "e\u0301" * 20_000: "\uffff"},
            )
        ],
    ),
    Hostile("10,000 nodes", lambda: [job("nodes", 10_000)]),
    Hostile(
        "5,000 containers",
        lambda: [job("containers", template=_template(spec={"containers": [{"name": f"c{n}"} for n in range(5000)]}))],
    ),
    Hostile(
        "5,000 volumes and their mounts",
        lambda: [
            job(
                "volumes",
                template=_template(
                    spec={
                        "volumes": [{"name": f"v{n}", "emptyDir": {}} for n in range(5_000)],
                        "containers": [
                            {
                                "name": "trainer",
                                "volumeMounts": [{"name": f"v{n}", "mountPath": f"/v{n}"} for n in range(5_000)],
                            }
                        ],
                    }
                ),
            )
        ],
    ),
    Hostile(
        "20 ConfigMaps of 1 MB that are run as files",
        lambda: [
            each
            for n in range(20)
            for each in (
                _config_map(f"files-{n}", "x" * 1_000_000),
                job(f"files-{n}", suspend=True, training={"script": "a.py", "files": {"configMap": f"files-{n}"}}),
            )
        ],
    ),
    Hostile(
        "a configuration of 1 MB that is no JSON", lambda: _from_config_map("no-json", "{" * 500_000 + "/*" * 250_000)
    ),
    Hostile(
        "a configuration of 1 MB of hjson", lambda: _from_config_map("hjson", "{\n" + "k: a # b\n" * 110_000 + "}")
    ),
    Hostile("a configuration of 9,000 brackets", lambda: _from_config_map("brackets", "[" * 9_000 + "]" * 9_000)),
    Hostile("50 jobs of 4 pods", lambda: [job(f"many-{n}", 4) for n in range(50)]),
)
