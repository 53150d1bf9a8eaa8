"""Who may end a run, on real kubelets: only who knows the token of its attempt."""

import json
from base64 import b64decode
from collections.abc import Callable
from typing import Any

import pytest

from deepspeed_operator.job.ports import ports
from tests.e2e.installation import NAME, NAMESPACE, Operator
from tests.e2e.jobs import ranks, script
from tests.e2e.kube import CORE, Namespace

TOKEN = "/etc/deepspeed-operator/token"
CALL = """
import http.client, sys
method, path, host, port, body, token = sys.argv[1:]
connection = http.client.HTTPConnection(host, int(port), timeout=5)
connection.request(method, path, body, {"Authorization": "Bearer " + (open(token).read() if token else "guessed")})
response = connection.getresponse()
print(response.status, response.read().decode())
"""


def test_who_only_knows_the_uid_cannot_end_a_run(
    make_namespace: Callable[..., Namespace], operator: Operator, plain: str
) -> None:
    namespace = make_namespace("token")
    namespace.config_map("rank", script("rank.py"))
    namespace.apply(ranks("watched", plain, "sleep=600", nodes=2))
    job = namespace.running("watched", 90)
    uid: str = job.body["metadata"]["uid"]
    first, second = (each["metadata"]["uid"] for each in namespace.pods("watched"))
    cause = {"protocol": 3, "reason": "RankFailed", "signature": "a lie", "index": 1}
    heartbeat: dict[str, Any] = {
        "protocol": 3, "uid": uid, "attempt": 1, "round": 1, "index": 1, "pod": "watched-1-1", "podUid": second,
        "node": "n", "phase": "Stopping", "cause": cause, "ago": None, "left": None, "addresses": [], "wait": False,
        "knows": [1, 1], "stopSeconds": 0.0, "stepped": None, "stuck": None, "transport": None, "world": None,
        "ranks": None, "ahead": None, "endings": None, "replacement": 0, "fenced": False, "pace": None, "hang": 0,
        "evidence": None,
    }  # fmt: skip

    def call(method: str, path: str, body: str, token: str = "") -> tuple[int, Any]:
        """Call rank 0's agent from the pod beside it."""
        program = ("python3", "-c", CALL, method, path, "watched-1-0.watched", str(ports(uid, 1).agent), body, token)
        said = namespace.cluster.kubectl("exec", "-n", namespace.name, "watched-1-1", "--", *program)
        status, _, answer = said.partition(" ")
        return int(status), json.loads(answer)

    assert call("POST", "/heartbeat", json.dumps(heartbeat))[0] == 403
    assert call("GET", "/state", "") == (200, {"phase": "Running"})
    status, state = call("GET", "/state", "", TOKEN)
    assert (status, state["job"], state["hosts"]) == (200, "watched", {"expected": 2, "registered": 2})
    assert [each["metadata"]["uid"] for each in namespace.pods("watched")] == [first, second]
    assert namespace.job("watched").holds("Running")

    name = f"watched-1-{uid[:5]}"
    secret = namespace.cluster.api.request("GET", namespace.path("secrets", name))
    assert (secret["immutable"], set(secret["data"])) == (True, {"token"})
    assert b64decode(secret["data"]["token"]).decode() not in json.dumps(namespace.report("watched"))
    volumes = [volume["name"] for pod in namespace.pods("watched") for volume in pod["spec"]["volumes"]]
    assert not [name for name in volumes if name.startswith("kube-api-access")]
    namespace.delete("watched", "--wait=false")


def test_the_attempts_secret_goes_with_it(make_namespace: Callable[..., Namespace], plain: str) -> None:
    namespace = make_namespace("token")
    namespace.config_map("rank", script("rank.py"))
    namespace.apply(ranks("again", plain, nodes=1))
    uid = namespace.completed("again").body["metadata"]["uid"]
    namespace.edit("again", runId="2")
    namespace.wait("again", lambda job: job.run["id"] == "2" and job.outcome, 60)
    assert namespace.children()["secrets"] == [f"again-2-{uid[:5]}"]
    namespace.delete("again", "--wait=false")


@pytest.mark.disrupts
def test_an_upgrade_keeps_the_key_and_a_key_that_is_removed_is_made_anew(operator: Operator) -> None:
    def key() -> bytes:
        path = f"{CORE}/namespaces/{NAMESPACE}/secrets/{NAME}-key"
        return b64decode(operator.cluster.api.request("GET", path)["data"]["key"])

    before = key()
    assert len(before) == 32
    operator.install()
    operator.settled()
    assert key() == before
    # As docs/operate.md says it.
    kubectl, where = operator.cluster.kubectl, f"--namespace={NAMESPACE}"
    kubectl("patch", where, "secret", f"{NAME}-key", "--type=json", "-p", '[{"op": "remove", "path": "/data/key"}]')
    kubectl("rollout", "restart", where, f"deployment/{NAME}")
    kubectl("rollout", "status", where, f"deployment/{NAME}", "--timeout=60s")
    operator.settled()
    assert len(key()) == 32
    assert key() != before
