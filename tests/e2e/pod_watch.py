"""Sees every pod of a namespace come and go, in the API server's order."""

import json
import ssl
import threading
import urllib.request
from typing import Any, Final, TypeVar

from tests.e2e.kube import CORE, TERMINAL_PHASES, Json, Namespace

_JOB: Final = "deepspeed-operator.dev/job-name"
_INDEX: Final = "deepspeed-operator.dev/index"
_LONGEST: Final = 600

Seen = TypeVar("Seen")


class PodWatch:
    """Notes each pod that was made, and those made while another of their job and index could still run.

    What it has seen is told only while it watches: a watch that has ended has not seen everything.
    """

    def __init__(self, namespace: Namespace, seconds: int = _LONGEST) -> None:
        self._created: list[str] = []
        self._overlaps: list[str] = []
        self._last: dict[str, Json] = {}
        self._alive: dict[str, tuple[str, str]] = {}
        self._thread = threading.Thread(target=self._read, args=[_open(namespace, seconds)], daemon=True)
        self._thread.start()

    @property
    def created(self) -> list[str]:
        """Names, in order; a name comes twice if two pods bore it."""
        return self._told(self._created)

    @property
    def overlaps(self) -> list[str]:
        return self._told(self._overlaps)

    @property
    def last(self) -> dict[str, Json]:
        """Each pod as it was last, by its name: those that are gone included."""
        return self._told(self._last)

    def join(self) -> None:
        """Wait until the watch has ended."""
        self._thread.join()

    def _told(self, seen: Seen) -> Seen:
        assert self._thread.is_alive(), "the watch has ended: what it has seen is not everything"
        return seen

    def _read(self, stream: Any) -> None:
        for line in stream:
            event = json.loads(line)
            self._take(event["type"], event["object"])

    def _take(self, change: str, pod: Json) -> None:
        metadata = pod["metadata"]
        labels = metadata.get("labels", {})
        if _INDEX not in labels:
            return
        self._last[metadata["name"]] = pod
        place = f"{labels[_JOB]}/{labels[_INDEX]}"
        if change == "DELETED" or pod["status"].get("phase") in TERMINAL_PHASES:
            self._alive.pop(metadata["uid"], None)
        elif metadata["uid"] not in self._alive:
            self._created.append(metadata["name"])
            beside = (name for name, its in self._alive.values() if its == place)
            self._overlaps += [f"{metadata['name']} beside {name}" for name in beside]
            self._alive[metadata["uid"]] = (metadata["name"], place)


def _open(namespace: Namespace, seconds: int) -> Any:
    config = json.loads(namespace.cluster.kubeconfig.read_text())
    cluster = config["clusters"][0]["cluster"]
    tls = ssl.create_default_context(cafile=cluster["certificate-authority"])
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls))
    path = f"{CORE}/namespaces/{namespace.name}/pods?watch=true&timeoutSeconds={seconds}"
    headers = {"Authorization": f"Bearer {config['users'][0]['user']['token']}"}
    return opener.open(urllib.request.Request(cluster["server"] + path, headers=headers))
