"""The real Kueue, as a process beside the API server, with the webhooks of its own kinds."""

import base64
import contextlib
import json
import subprocess
import urllib.request
from collections.abc import Generator
from pathlib import Path
from typing import Any

import yaml

from dev.cluster import build
from dev.cluster.api import Api, ApiError
from dev.cluster.processes import run, wait_for
from dev.cluster.settings import Layout

NAMESPACE = "kueue-system"
_GROUP = "kueue.x-k8s.io"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1"
_KINDS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
_WEBHOOK_PORT, _HEALTH_PORT = 29443, 29081
# Where its metrics server looks for a certificate cannot be set.
_METRICS_CERTS = "kueue/metrics/certs"

Json = dict[str, Any]


@contextlib.contextmanager
def installed(layout: Layout, kubeconfig: Path, directory: Path) -> Generator[Path]:
    """Install Kueue, run it until the end, and take it away again; yield the path of its log."""
    program, source = build.build_kueue(layout), build.kueue_source(layout)
    api, definitions = Api(kubeconfig), _definitions(source)
    try:
        for definition in definitions:
            _create(api, _DEFINITIONS, definition)
        served = f"/apis/{_GROUP}/v1beta2/workloads"
        wait_for("the kinds of Kueue", lambda: api.found(served), seconds=30)
        _create(api, "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        with _process(program, kubeconfig, directory) as log:
            bundle = (directory / "tls.crt").read_text()
            for kind, webhooks in _webhooks(source, bundle).items():
                body = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "kueue"}}
                _create(api, f"{_WEBHOOKS}/{kind.lower()}s", {**body, "webhooks": webhooks})
            yield log
    finally:
        for kind in _KINDS:
            _delete(api, f"{_WEBHOOKS}/{kind.lower()}s/kueue")
        for definition in definitions:
            _delete(api, f"{_DEFINITIONS}/{definition['metadata']['name']}")


@contextlib.contextmanager
def _process(program: Path, kubeconfig: Path, directory: Path) -> Generator[Path]:
    certificates = directory / "upper" / _METRICS_CERTS
    for each in (certificates, directory / "work"):
        each.mkdir(parents=True, exist_ok=True)
    name = ["-subj", "/CN=kueue", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "3650", "-nodes"]
    key, certificate = directory / "tls.key", directory / "tls.crt"
    algorithm = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    run(["openssl", "req", "-x509", *algorithm, *name, "-keyout", str(key), "-out", str(certificate)])
    for each in (key, certificate):
        (certificates / each.name).write_bytes(each.read_bytes())
    config = directory / "kueue.yaml"
    config.write_text(json.dumps(_configuration(directory)))
    log = directory / "kueue.log"
    overlay = f"lowerdir=/etc,upperdir={directory}/upper,workdir={directory}/work"
    command = f'mount -t overlay overlay -o {overlay} /etc && exec "$0" "$@"'
    arguments = ["unshare", "--mount", "sh", "-c", command, str(program), f"--config={config}", "--zap-log-level=2"]
    environment = {"KUBECONFIG": str(kubeconfig), "PATH": "/usr/sbin:/sbin:/usr/bin:/bin"}
    with log.open("wb") as output:
        process = subprocess.Popen(arguments, env=environment, stdout=output, stderr=output, cwd="/")
    try:
        wait_for("Kueue", lambda: _answers(process), seconds=60, log=log)
        yield log
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _answers(process: "subprocess.Popen[bytes]") -> bool:
    assert process.poll() is None, "Kueue has ended"
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{_HEALTH_PORT}/readyz", timeout=2) as answer:
            return answer.status == 200
    except OSError:
        return False


def _configuration(directory: Path) -> Json:
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": NAMESPACE,
        "health": {"healthProbeBindAddress": f"127.0.0.1:{_HEALTH_PORT}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": _WEBHOOK_PORT, "certDir": str(directory)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "clientConnection": {"qps": 100, "burst": 200},
        "integrations": {"frameworks": ["batch/job"]},
        # Others of a ClusterQueue do not wait until all pods of one are ready.
        "waitForPodsReady": {
            "timeout": "20s",
            "blockAdmission": False,
            "requeuingStrategy": {"backoffBaseSeconds": 1, "backoffMaxSeconds": 2},
        },
        "featureGates": {"VisibilityOnDemand": False},
    }


def _definitions(source: Path) -> list[Json]:
    """Its kinds, without the webhook that converts: what is written in one version is read in it."""
    found: list[Json] = []
    for path in sorted((source / "config/components/crd/bases").glob("*.yaml")):
        definition: Json = yaml.safe_load(path.read_text())
        definition["spec"].pop("conversion", None)
        found.append(definition)
    return found


def _webhooks(source: Path, certificate: str) -> dict[str, list[Json]]:
    """What Kueue says of its own kinds; those of jobs are for integrations."""
    bundle = base64.b64encode(certificate.encode()).decode()
    found: dict[str, list[Json]] = {}
    for configuration in yaml.safe_load_all((source / "config/components/webhook/manifests.yaml").read_text()):
        for webhook in configuration["webhooks"]:
            if any(_GROUP in rule["apiGroups"] for rule in webhook["rules"]):
                path = webhook["clientConfig"]["service"]["path"]
                client = {"url": f"https://127.0.0.1:{_WEBHOOK_PORT}{path}", "caBundle": bundle}
                found.setdefault(configuration["kind"], []).append({**webhook, "clientConfig": client})
    return found


def _create(api: Api, path: str, body: Json) -> None:
    try:
        api.request("POST", path, body, timeout=60)
    except ApiError as error:
        if error.status != 409:
            raise


def _delete(api: Api, path: str) -> None:
    with contextlib.suppress(ApiError):
        api.request("DELETE", path)
