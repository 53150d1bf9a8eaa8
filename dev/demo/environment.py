"""The cluster that the demo runs on: made on this machine, or the one of the user's kubeconfig."""

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
NAMESPACE = "deepspeed-demo"
RELEASE = "deepspeed-operator"


@dataclass(frozen=True)
class Environment:
    """A cluster, the programs that talk to it, the images that it can pull, and the DeepSpeed in the workers'."""

    kubectl: str
    helm: str
    kubeconfig: str | None
    operator_image: str
    worker_image: str
    deepspeed_version: str

    def run(self, *command: str, check: bool = True) -> str:
        """Return what a kubectl or helm command prints."""
        done = subprocess.run(command, env=self.variables, capture_output=True, text=True, check=False)
        if check and done.returncode:
            raise SystemExit(f"{' '.join(command)}\n{done.stderr or done.stdout}")
        return done.stdout

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """Return an object of the demo's namespace; empty while there is none."""
        text = self.run(self.kubectl, "get", kind, name, "-n", NAMESPACE, "-o", "json", "--ignore-not-found")
        return json.loads(text) if text.strip() else {}

    @property
    def variables(self) -> dict[str, str]:
        return {**os.environ, **({"KUBECONFIG": self.kubeconfig} if self.kubeconfig else {})}

    def install(self) -> None:
        """Install the chart, or upgrade it to the images of this environment."""
        repository, tag = self.operator_image.rsplit(":", 1)
        values = {
            "image.repository": repository,
            "image.tag": tag,
            "worker.image": self.worker_image,
            "worker.deepspeedVersion": self.deepspeed_version,
        }
        self.run(
            self.helm, "upgrade", RELEASE, str(ROOT / "charts/deepspeed-operator"), "--install", "--wait",
            "--namespace", RELEASE, "--create-namespace", "--timeout", "5m",
            "--take-ownership", "--force-conflicts",  # of a CRD that was applied by hand
            *(f"--set-string={key}={value}" for key, value in values.items()),
        )  # fmt: skip


def current() -> Environment:
    """Return the cluster of the user's kubeconfig, with the images that OPERATOR_IMAGE and WORKER_IMAGE name."""
    images = {name: os.environ.get(name, "") for name in ("OPERATOR_IMAGE", "WORKER_IMAGE")}
    missing = [name for name, image in images.items() if not image]
    missing += [program for program in ("kubectl", "helm") if not shutil.which(program)]
    if missing:
        raise SystemExit(
            f"CLUSTER=current needs {', '.join(missing)}: `make images REGISTRY=…` builds and pushes the images, then\n"
            "make demo CLUSTER=current OPERATOR_IMAGE=…/deepspeed-operator:TAG WORKER_IMAGE=…/deepspeed-worker:TAG"
        )
    from dev.images import recipes

    # That of the worker image as this checkout builds it, unless another one is named.
    version = os.environ.get("DEEPSPEED_VERSION") or recipes.worker_deepspeed()
    return Environment("kubectl", "helm", None, images["OPERATOR_IMAGE"], images["WORKER_IMAGE"], version)


def local() -> Environment:
    """Return a cluster on this machine: built, brought up and supplied with images as far as it is not yet."""
    # Imported here: CLUSTER=current builds nothing.
    from dev import preparation
    from dev.cluster.cluster import Cluster
    from dev.images import images, recipes

    preparation.take(("cluster programs", "image worker", "image operator"))
    cluster = Cluster()
    cluster.up()
    operator, worker = images.ensure("operator"), images.ensure("worker")
    kubectl, helm = (str(cluster.bin / program) for program in ("kubectl", "helm"))
    return Environment(kubectl, helm, str(cluster.kubeconfig), operator, worker, recipes.worker_deepspeed())
