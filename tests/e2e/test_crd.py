"""A real API server takes the CRD, and refuses with a telling message whatever breaks one of its constraints.

The CRD is installed under a group and names of the test's own, so that no operator acts on what is stored here, and no
kubectl takes it for the operator's.
"""

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deepspeed_operator.api.crd import custom_resource_definition, root_schema
from deepspeed_operator.api.names import GROUP
from dev.cluster.api import ApiError
from dev.cluster.cluster import Cluster
from tests.e2e.full_job import FULL, IN_PROGRESS, MOMENT
from tests.e2e.kube import Json, eventually

TEST_GROUP = f"constraints.{GROUP}"
KIND, PLURAL = "ConstrainedJob", "constrainedjobs"
EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NAMESPACE = "default"
JOBS = f"/apis/{TEST_GROUP}/v1alpha1/namespaces/{NAMESPACE}/{PLURAL}"

# What the server says of a value that breaks a constraint of this kind.
WORDS = {
    "type": "must be of type ",  # and it calls a string by its format
    "x-kubernetes-int-or-string": "must be of type integer,string",
    "format": "must be of type {}",
    "minimum": "should be greater than or equal to {}",
    "maximum": "should be less than or equal to {}",
    "minLength": "should be at least {} chars long",
    "maxLength": "may not be more than {} bytes",
    "pattern": "should match '{}'",
    "enum": "supported values: ",
    "minItems": "should have at least {} items",
    "maxItems": "must have at most {} items",
    "maxProperties": "must have at most {} items",
    "x-kubernetes-list-map-keys": "Duplicate value",
    "required": "Required value",
}
# What else a schema has: words, structure, and the rules that have their own tests.
OTHERS = {
    *("description", "default", "properties", "items", "additionalProperties"),
    *("x-kubernetes-preserve-unknown-fields", "x-kubernetes-list-type", "x-kubernetes-validations"),
}
# What a value of another type is.
MISFITS = {"string": 7, "integer": "7", "number": "7", "boolean": "true", "object": ["7"], "array": "7"}


def constraints(schema: Json, path: str = "") -> Iterator[tuple[str, str, Any]]:
    """Every constraint of the schema: path, kind, value."""
    yield from ((path, kind, schema[kind]) for kind in schema if kind not in {*OTHERS, "required"})
    for name, child in schema.get("properties", {}).items():
        below = f"{path}.{name}".lstrip(".")
        if name in schema.get("required", []):
            yield below, "required", None
        yield from constraints(child, below)
    if "items" in schema:
        yield from constraints(schema["items"], f"{path}[]")
    if "additionalProperties" in schema:
        yield from constraints(schema["additionalProperties"], f"{path}.NCCL_DEBUG")


# An integer's format, int64, is all that JSON's integers are to the API server.
CONSTRAINTS = [(path, kind, bound) for path, kind, bound in constraints(root_schema()) if bound != "int64"]


def edited(body: Json, path: str, value: Any) -> Json:
    """A copy with this value at the path, without the field for None. `[]` is the list's first item."""
    changed = copy.deepcopy(body)
    *parents, last = path.replace("[]", ".[]").split(".")
    place: Any = changed
    for name in parents:
        place = place[0] if name == "[]" else place[name]
    if last == "[]":
        place[0] = value
    elif value is None:
        del place[last]
    else:
        place[last] = value
    return changed


def breaking(path: str, kind: str, bound: Any) -> Json:
    """The full object, but for this constraint."""
    body = FULL
    for program, value in (("module", "m"), ("command", ["x"])):
        if path.startswith(f"spec.training.{program}"):
            body = edited(edited(FULL, "spec.training.script", None), f"spec.training.{program}", value)
    values: dict[str, Callable[[], Any]] = {
        "type": lambda: MISFITS[bound],
        "x-kubernetes-int-or-string": lambda: True,
        "format": lambda: "yesterday",
        "minimum": lambda: bound - 1,
        "maximum": lambda: bound + 1,
        "minLength": lambda: "/"[: bound - 1],
        "maxLength": lambda: "1" * (bound + 1),
        "pattern": lambda: "/!:/",
        "enum": lambda: "Nonsense",
        "minItems": list[Any],
        "maxItems": lambda: _items(body, path, bound + 1),
        "maxProperties": lambda: {f"NCCL_{number}": "1" for number in range(bound + 1)},
        "x-kubernetes-list-map-keys": lambda: _items(body, path, 1) * 2,
        "required": lambda: None,
    }
    return edited(body, path, values[kind]())


def _items(body: Json, path: str, number: int) -> list[Any]:
    item: Any = body
    for name in path.replace("[]", ".[]").split("."):
        item = item[0] if name == "[]" else item[name]
    first = item[0]
    typed = isinstance(first, dict) and "type" in first
    return [{**first, "type": f"T{index}"} if typed else first for index in range(number)]


@pytest.fixture(scope="module")
def server(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with our schema under the test's group."""
    crd = yaml.safe_load(yaml.safe_dump(custom_resource_definition()).replace(GROUP, TEST_GROUP))  # pyright: ignore[reportUnknownMemberType]
    name = crd["metadata"]["name"] = f"{PLURAL}.{TEST_GROUP}"
    crd["spec"]["names"] = {"kind": KIND, "plural": PLURAL}
    if not cluster.api.found(f"{DEFINITIONS}/{name}"):
        cluster.api.request("POST", DEFINITIONS, crd)
    eventually(lambda: cluster.api.found(JOBS), "the test's group is served", 20)
    yield cluster
    cluster.api.request("DELETE", f"{DEFINITIONS}/{name}")


def post(server: Cluster, body: Json, query: str = "dryRun=All&fieldValidation=Strict") -> Json:
    whole = {"apiVersion": f"{TEST_GROUP}/v1alpha1", "kind": KIND, **body}
    return server.api.request("POST", f"{JOBS}?{query}", whole)


def spec_of(**fields: Any) -> Json:
    return {"metadata": {"name": "a"}, "spec": {"training": {"script": "a.py"}, **fields}}


@pytest.fixture(scope="module")
def running(server: Cluster) -> Iterator[str]:
    """The path of a job that is stored with a run in progress."""
    path = f"{JOBS}/full"
    if server.api.found(path):
        server.api.request("DELETE", path)
    post(server, FULL, "")
    server.api.request("PATCH", f"{path}/status", {"status": IN_PROGRESS})
    yield path
    server.api.request("DELETE", path)


def test_the_schema_is_structural_and_its_rules_are_cheap_enough(server: Cluster) -> None:
    crd = server.api.request("GET", f"{DEFINITIONS}/{PLURAL}.{TEST_GROUP}")
    conditions = {condition["type"]: condition["status"] for condition in crd["status"]["conditions"]}
    assert conditions["Established"] == "True"
    assert conditions.get("NonStructuralSchema", "False") == "False"


def test_the_full_object_is_accepted_and_kept(server: Cluster) -> None:
    stored = post(server, FULL)
    assert stored["spec"] == FULL["spec"]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_accepted(server: Cluster, path: Path) -> None:
    jobs = [body for body in yaml.safe_load_all(path.read_text()) if body["kind"] == "DeepSpeedJob"]
    assert jobs
    for body in jobs:
        post(server, {"metadata": {"name": body["metadata"]["name"]}, "spec": body["spec"]})


def test_the_least_job_gets_its_defaults(server: Cluster) -> None:
    spec = post(server, spec_of(dsConfig={"z": 1, "a": {"b": [1.5, None, "auto"]}}))["spec"]
    assert spec["training"] == {
        "script": "a.py",
        "configPath": "/etc/deepspeed-operator/ds_config.json",
        "integration": "None",
        "launcher": "Ranks",
        "python": "python3",
        "debug": False,
    }
    assert (spec["nodes"], spec["suspend"], spec["runId"]) == (1, False, "")
    assert spec["dsConfig"] == {"z": 1, "a": {"b": [1.5, None, "auto"]}}


@pytest.mark.parametrize(("path", "kind", "bound"), [c for c in CONSTRAINTS if c[0].startswith("spec")])
def test_a_spec_that_breaks_a_constraint_is_refused(server: Cluster, path: str, kind: str, bound: Any) -> None:
    with pytest.raises(ApiError) as refused:
        post(server, breaking(path, kind, bound))
    assert_told(refused.value, path, kind, bound)


@pytest.mark.parametrize(("path", "kind", "bound"), [c for c in CONSTRAINTS if c[0].startswith("status.")])
def test_a_status_that_breaks_a_constraint_is_refused(
    server: Cluster, running: str, path: str, kind: str, bound: Any
) -> None:
    body = {**server.api.request("GET", running), "status": breaking(path, kind, bound)["status"]}
    with pytest.raises(ApiError) as refused:
        server.api.request("PUT", f"{running}/status?dryRun=All", body)
    assert_told(refused.value, path, kind, bound)


def assert_told(error: ApiError, path: str, kind: str, bound: Any) -> None:
    message = json.loads(str(error).partition(": ")[2])["message"]
    assert error.status == 422
    assert WORDS[kind].format(f"{bound:g}" if isinstance(bound, float) else bound) in message
    assert path.replace("[]", "[0]") in message


RULES: list[tuple[Json, str]] = [
    (spec_of(training={}), "spec.training: set exactly one of script, module and command"),
    (spec_of(training={"script": "a", "module": "b"}), "spec.training: set exactly one of"),
    (spec_of(training={"script": "a", "command": ["b"]}), "spec.training: set exactly one of"),
    (spec_of(training={"script": "a", "launcher": "None"}), "spec.training.command: launcher None runs a command"),
    *(
        (
            spec_of(training={"command": ["a"], "launcher": each}),
            "spec.training.command: launchers DeepSpeed and Torchrun",
        )
        for each in ("DeepSpeed", "Torchrun")
    ),
    (spec_of(network={"require": True}), "spec.network.require: profiles Auto and TCP accept"),
    (spec_of(network={"minimumBusBandwidth": "1G"}), "spec.network.minimumBusBandwidth: nothing measures it"),
    (
        spec_of(failurePolicy={"nodeLoss": {"forceDeleteAfterSeconds": 19}}),
        "spec.failurePolicy.nodeLoss.forceDeleteAfterSeconds: before 20 s ranks on a node",
    ),
    (
        spec_of(lifecycle={"partialGangDeadlineSeconds": 60, "startupDeadlineSeconds": 60}),
        "spec.lifecycle.partialGangDeadlineSeconds: must be less than startupDeadlineSeconds",
    ),
    (spec_of(nodes=2, elastic={"minNodes": 3}), "spec.elastic.minNodes: a run has spec.nodes at most"),
    (spec_of(successPolicy="Head"), "spec.successPolicy: Head is for jobs of several pods"),
    (spec_of(dsConfig={}, dsConfigFrom={"configMap": "a"}), "spec.dsConfigFrom: dsConfig and dsConfigFrom exclude"),
    ({**spec_of(), "metadata": {"name": "a" * 51}}, "metadata.name: at most 50 characters"),
    ({**spec_of(), "metadata": {"name": "1a"}}, "metadata.name: at most 50 characters"),
    ({**spec_of(), "metadata": {"name": "a.b"}}, "metadata.name: at most 50 characters"),
]
# Fields that stay while a run is in progress, with another value each.
CHANGES: dict[str, Any] = {
    "nodes": 3,
    "slotsPerNode": 2,
    "image": "other",
    "training": {"args": []},
    "dsConfigFrom": {"key": "other"},
    "deepspeedVersion": "0.16.9",
    "network": {"interface": "eth1"},
    "sharedMemory": 1024,
    "checkpoint": {"path": "/other"},
    "elastic": {"minNodes": 2},
    "parallelism": {"tensor": 2},
    "successPolicy": "AllPods",
    "scheduling": {"queueName": "other"},
    "failurePolicy": {"maxRestarts": 7},
    "lifecycle": None,
}
NEVER_CHANGES = "spec.managedBy: cannot change"


@pytest.mark.parametrize(("body", "message"), RULES)
def test_rules(server: Cluster, body: Json, message: str) -> None:
    with pytest.raises(ApiError, match=message) as refused:
        post(server, body)
    assert refused.value.status == 422


def test_no_rule_is_untested() -> None:
    rules: list[str] = []
    pending = [root_schema()]
    while pending:
        node = pending.pop()
        rules += [rule["message"] for rule in node.get("x-kubernetes-validations", [])]
        pending += [*node.get("properties", {}).values(), *([node["items"]] if "items" in node else [])]
    tested = [*(message for _, message in RULES), *(f"spec.{field}: cannot change" for field in CHANGES), NEVER_CHANGES]
    assert [rule for rule in rules if not any(rule.startswith(message) for message in tested)] == []


@pytest.mark.parametrize("name", ["a", "a" * 50, "a-1", "pretrain"])
def test_names_that_are_right(server: Cluster, name: str) -> None:
    post(server, {**spec_of(), "metadata": {"name": name}})


@pytest.mark.parametrize("field", CHANGES)
def test_a_running_runs_definition_stays_but_for_a_new_run(server: Cluster, running: str, field: str) -> None:
    with pytest.raises(ApiError, match=f"spec.{field}: cannot change while a run is in progress"):
        server.api.request("PATCH", f"{running}?dryRun=All", {"spec": {field: CHANGES[field]}})
    server.api.request("PATCH", f"{running}?dryRun=All", {"spec": {field: CHANGES[field], "runId": "2"}})


@pytest.mark.parametrize("value", ["", None, "example.com/third"])
def test_the_controller_of_a_job_stays_whatever_runs(server: Cluster, running: str, value: str | None) -> None:
    with pytest.raises(ApiError, match=NEVER_CHANGES):
        server.api.request("PATCH", f"{running}?dryRun=All", {"spec": {"managedBy": value, "runId": "2"}})


def test_a_job_that_was_stored_before_it_could_name_its_controller_may_be_edited(server: Cluster) -> None:
    path = f"{JOBS}/older"
    post(server, {**spec_of(), "metadata": {"name": "older"}}, "")
    edited = server.api.request("PATCH", path, {"spec": {"nodes": 2}})
    server.api.request("DELETE", path)
    assert (edited["spec"]["nodes"], edited["spec"]["managedBy"]) == (2, "")


def test_the_nodes_of_a_run_cannot_be_scaled(server: Cluster, running: str) -> None:
    scale = server.api.request("GET", f"{running}/scale")
    assert scale["spec"] == {"replicas": FULL["spec"]["nodes"]}
    assert "selector" not in scale["status"], "an autoscaler refuses what has none"
    with pytest.raises(ApiError, match=r"spec\.nodes: cannot change while a run is in progress"):
        server.api.request("PUT", f"{running}/scale", {**scale, "spec": {"replicas": 3}})


def test_a_field_that_was_not_set_cannot_be_added_to_a_run(server: Cluster, running: str) -> None:
    server.api.request("PATCH", running, {"spec": {"image": None, "runId": "without-image"}})
    server.api.request("PATCH", f"{running}/status", {"status": {"run": {"id": "without-image"}}})
    with pytest.raises(ApiError, match=r"spec\.image: cannot change"):
        server.api.request("PATCH", f"{running}?dryRun=All", {"spec": {"image": "other"}})


def test_a_running_run_may_be_suspended(server: Cluster, running: str) -> None:
    server.api.request("PATCH", f"{running}?dryRun=All", {"spec": {"suspend": False}})


def test_a_finished_runs_definition_may_change(server: Cluster, running: str) -> None:
    server.api.request("PATCH", f"{running}/status", {"status": {"run": {"completionTime": MOMENT}}})
    server.api.request("PATCH", f"{running}?dryRun=All", {"spec": {"nodes": 3}})
    server.api.request("PATCH", f"{running}/status", {"status": {"run": {"completionTime": None}}})


def test_a_next_run_that_has_not_begun_may_be_corrected(server: Cluster, running: str) -> None:
    server.api.request("PATCH", f"{running}/status", {"status": {"run": {"id": "before"}}})
    server.api.request("PATCH", f"{running}?dryRun=All", {"spec": {"nodes": 3}})


def test_an_unknown_field_is_refused_where_the_client_asks_for_it(server: Cluster) -> None:
    with pytest.raises(ApiError, match=r'unknown field \\"spec.node\\"'):
        post(server, spec_of(node=2))


def test_status_is_written_through_its_subresource_only(server: Cluster, running: str) -> None:
    changed = server.api.request("PATCH", f"{running}?dryRun=All", {"status": {"warnings": 7}})
    assert "warnings" not in changed["status"]
