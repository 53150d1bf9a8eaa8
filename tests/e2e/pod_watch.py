"""Sees every pod of a namespace come and go, in the API server's order."""

import json
import ssl
import threading
import urllib.request
from typing import Any, Final

from tests.e2e.kube import CORE, TERMINAL_PHASES, Json, Namespace

_JOB: Final = "deepspeed-operator.dev/job-name"
_INDEX: Final = "deepspeed-operator.dev/index"
_LONGEST_TEST: Final = 300


class PodWatch:
    """Notes each pod that was made, and those made while another of their job and index could still run."""

    def __init__(self, namespace: Namespace) -> None:
        self.created: list[str] = []  # names, in order; a name comes twice if two pods bore it
        self.overlaps: list[str] = []
        self._alive: dict[str, tuple[str, str]] = {}
        stream = _open(namespace)
        threading.Thread(target=self._read, args=[stream], daemon=True).start()

    def _read(self, stream: Any) -> None:
        for line in stream:
            event = json.loads(line)
            self._take(event["type"], event["object"])

    def _take(self, change: str, pod: Json) -> None:
        metadata = pod["metadata"]
        labels = metadata.get("labels", {})
        if _INDEX not in labels:
            return
        place = f"{labels[_JOB]}/{labels[_INDEX]}"
        if change == "DELETED" or pod["status"].get("phase") in TERMINAL_PHASES:
            self._alive.pop(metadata["uid"], None)
        elif metadata["uid"] not in self._alive:
            self.created.append(metadata["name"])
            self.overlaps += [f"{metadata['name']} beside {name}" for name, its in self._alive.values() if its == place]
            self._alive[metadata["uid"]] = (metadata["name"], place)


def _open(namespace: Namespace) -> Any:
    config = json.loads(namespace.cluster.kubeconfig.read_text())
    cluster = config["clusters"][0]["cluster"]
    tls = ssl.create_default_context(cafile=cluster["certificate-authority"])
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls))
    path = f"{CORE}/namespaces/{namespace.name}/pods?watch=true&timeoutSeconds={_LONGEST_TEST}"
    headers = {"Authorization": f"Bearer {config['users'][0]['user']['token']}"}
    return opener.open(urllib.request.Request(cluster["server"] + path, headers=headers))
