"""The log of a pod's trainer, read again from where a stream of it was cut: no line twice, and none left out."""

import http.client
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

from deepspeed_operator.api.names import LABEL_ATTEMPT, LABEL_INDEX
from deepspeed_operator.cli.gateway import Gateway
from deepspeed_operator.cli.kubectl import ClusterError

_CONTAINER: Final = "kubectl.kubernetes.io/default-container"  # what the operator names there is the trainer
_STAMPED: Final = re.compile(rb"(?P<second>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\S*?(?P<zone>Z|[+-]\d\d:\d\d) ")
# The API takes whole seconds, and lines of stdout and stderr may stand in the log before one that is a little older.
_OVERLAP_SECONDS: Final = 1


@dataclass(frozen=True, slots=True)
class TrainerPod:
    """A pod of a job. `index`: which host of its attempt; `started`, `ended`: its trainer's container."""

    uid: str
    name: str
    namespace: str
    attempt: int
    index: int
    container: str | None
    started: bool
    ended: bool

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> "TrainerPod":
        metadata, status = body["metadata"], body.get("status", {})
        labels: Mapping[str, str] = metadata.get("labels", {})
        container = metadata.get("annotations", {}).get(_CONTAINER)
        states = [each["state"] for each in status.get("containerStatuses", ()) if container in {None, each["name"]}]
        state: Mapping[str, Any] = states[0] if states else {}
        return cls(
            uid=metadata["uid"],
            name=metadata["name"],
            namespace=metadata["namespace"],
            attempt=int(labels.get(LABEL_ATTEMPT, 0)),
            index=int(labels.get(LABEL_INDEX, 0)),
            container=container,
            started="running" in state or "terminated" in state,
            ended="terminated" in state or status.get("phase") in {"Succeeded", "Failed"},
        )


class PodLog:
    """What a pod has written, each line once, however often it is read.

    `tail`: of what was written before the first stream so many lines; None: all.
    """

    def __init__(self, gateway: Gateway, pod: TrainerPod, tail: int | None) -> None:
        self._gateway, self._pod, self._tail, self._limited = gateway, pod, tail, tail is not None
        self._since: int | None = None  # where the next stream begins
        self._shown: dict[int, Counter[bytes]] = {}  # lines from there on, by second
        self._first = 0  # the second of the first line after those that `tail` left out
        self.rest = b""  # a last line without its end, which a cut may have kept back

    def lines(self, *, follow: bool) -> Iterator[bytes]:
        """Yield the lines that are new until the stream ends: as the program does, or cut without a word.

        Raises GoneError where there is no such pod, and ClusterError where the stream cannot begin, or breaks.
        """
        repeated = Counter[bytes]()
        for lines in self._shown.values():
            repeated.update(lines)
        left_out = self._first in self._shown  # they come before the first that repeats
        with self._gateway.log(self._pod.namespace, self._pod.name, self._query(follow=follow)) as response:
            if self._since is None and self._tail is not None:  # what comes later is no history
                self._since, self._tail = _second(response.headers.get("Date")), None
            for line in _unbroken(response):
                stamp = _STAMPED.match(line)
                if stamp is None:
                    raise ClusterError(line.decode(errors="replace").strip())  # the kubelet's words
                second = int(datetime.fromisoformat((stamp["second"] + stamp["zone"]).decode()).timestamp())
                if not line.endswith(b"\n"):
                    self.rest = line[stamp.end() :]
                elif repeated[line]:
                    repeated[line] -= 1
                    left_out = False
                elif not (left_out and second <= self._first):
                    self.rest = b""
                    self._keep(line, second)
                    yield line[stamp.end() :]

    def _query(self, *, follow: bool) -> Mapping[str, object]:
        query: dict[str, object] = {"timestamps": "true", "follow": str(follow).lower()}
        if self._pod.container is not None:
            query["container"] = self._pod.container
        if self._since is not None:
            query["sinceTime"] = f"{datetime.fromtimestamp(self._since, UTC):%Y-%m-%dT%H:%M:%SZ}"
        elif self._tail is not None:
            query["tailLines"] = self._tail
        return query

    def _keep(self, line: bytes, second: int) -> None:
        begin = second - _OVERLAP_SECONDS
        if not self._shown or self._since is None or begin > self._since:
            self._since = begin
            self._shown = {each: lines for each, lines in self._shown.items() if each >= begin}
        self._shown.setdefault(second, Counter())[line] += 1
        if not self._first and self._limited:
            self._first = second


def _unbroken(response: http.client.HTTPResponse) -> Iterator[bytes]:
    try:
        yield from response
    except (OSError, http.client.HTTPException) as error:
        raise ClusterError(f"the stream broke: {error}") from error


def _second(date: str | None) -> int | None:
    """Return the time of an HTTP header."""
    return int(parsedate_to_datetime(date).timestamp()) if date is not None else None
