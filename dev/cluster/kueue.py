"""The real Kueue, as a process beside the API server, with the webhooks of its own kinds."""

import base64
import contextlib
import json
import subprocess
import urllib.request
from collections.abc import Generator
from functools import partial
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


class Kueue:
    """Its kinds and webhooks in a cluster, and its manager as a process; either may be away for a while."""

    def __init__(self, layout: Layout, kubeconfig: Path, directory: Path) -> None:
        program, source = build.build_kueue(layout), build.kueue_source(layout)
        self._api = Api(kubeconfig)
        self._definitions = _definitions(source)
        self._webhooks = _webhooks(source, _certificate(directory))
        self.log = directory / "kueue.log"
        self._environment = {"KUBECONFIG": str(kubeconfig), "PATH": "/usr/sbin:/sbin:/usr/bin:/bin"}
        config = directory / "kueue.yaml"
        config.write_text(json.dumps(_configuration(directory)))
        # An upper directory on a container's root may be one of another overlay, which cannot be.
        upper, certificates = f"{directory}/etc/upper", f"{directory}/etc/upper/{_METRICS_CERTS}"
        commands = (
            f"mount -t tmpfs tmpfs {directory}/etc",
            f"mkdir -p {directory}/etc/work {certificates}",
            f"cp {directory}/tls.key {directory}/tls.crt {certificates}",
            f"mount -t overlay overlay -o lowerdir=/etc,upperdir={upper},workdir={directory}/etc/work /etc",
            'exec "$0" "$@"',
        )
        arguments = [str(program), f"--config={config}", "--zap-log-level=2"]
        self._command = ["unshare", "--mount", "sh", "-c", " && ".join(commands), *arguments]
        self._process: subprocess.Popen[bytes] | None = None

    def install(self) -> None:
        """Have it at work in the cluster."""
        for definition in self._definitions:
            _create(self._api, _DEFINITIONS, definition)
        served = (partial(_known, self._api, each["spec"]) for each in self._definitions)
        for each in served:
            wait_for("the kinds of Kueue", each, seconds=60)
        _create(self._api, "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        self.start()
        for kind, webhooks in self._webhooks.items():
            body = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "kueue"}}
            _create(self._api, f"{_WEBHOOKS}/{kind.lower()}s", {**body, "webhooks": webhooks})

    def remove(self) -> None:
        """Take it away with all objects, some of which have finalizers that nobody is left to take off."""
        self.stop()
        for kind in _KINDS:
            _delete(self._api, f"{_WEBHOOKS}/{kind.lower()}s/kueue")
        for definition in self._definitions:
            path = f"{_DEFINITIONS}/{definition['metadata']['name']}"
            _delete(self._api, path)
            wait_for(path, partial(_gone, self._api, path, definition["spec"]), seconds=30)

    def start(self) -> None:
        """Start it, and wait until it is ready."""
        with self.log.open("ab") as output:
            process = subprocess.Popen(self._command, env=self._environment, stdout=output, stderr=output, cwd="/")
        self._process = process
        wait_for("Kueue", lambda: _answers(process), seconds=60, log=self.log)

    @contextlib.contextmanager
    def down(self) -> Generator[None]:
        """Have it down for a while."""
        self.stop()
        try:
            yield
        finally:
            self.start()

    def stop(self) -> None:
        """End it, if it runs."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextlib.contextmanager
def installed(layout: Layout, kubeconfig: Path, directory: Path) -> Generator[Kueue]:
    """Install Kueue, and take it away in the end."""
    kueue = Kueue(layout, kubeconfig, directory)
    kueue.remove()  # what a run has left that was ended
    try:
        kueue.install()
        yield kueue
    finally:
        kueue.remove()
        _delete(Api(kubeconfig), f"/api/v1/namespaces/{NAMESPACE}")


def _gone(api: Api, path: str, spec: Json) -> bool:
    version = next(each["name"] for each in spec["versions"] if each["storage"])
    kind, plural = f"/apis/{spec['group']}/{version}", spec["names"]["plural"]
    with contextlib.suppress(ApiError):
        for each in api.request("GET", f"{kind}/{plural}")["items"]:
            metadata = each["metadata"]
            where = f"namespaces/{metadata['namespace']}/" if "namespace" in metadata else ""
            api.request("PATCH", f"{kind}/{where}{plural}/{metadata['name']}", {"metadata": {"finalizers": None}})
    return not api.found(path)


def _known(api: Api, spec: Json) -> bool:
    """Whether discovery tells of it in all versions, which is later than it is served: Kueue asks there once."""
    with contextlib.suppress(ApiError):
        found = [api.request("GET", f"/apis/{spec['group']}/{each['name']}") for each in spec["versions"]]
        return all(spec["names"]["plural"] in [kind["name"] for kind in each["resources"]] for each in found)
    return False


def _certificate(directory: Path) -> str:
    """Make a key and its certificate, `tls.key` and `tls.crt`, and return the latter."""
    (directory / "etc").mkdir()
    name = ["-subj", "/CN=kueue", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "3650", "-nodes"]
    key, certificate = directory / "tls.key", directory / "tls.crt"
    algorithm = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    run(["openssl", "req", "-x509", *algorithm, *name, "-keyout", str(key), "-out", str(certificate)])
    return certificate.read_text()


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
