"""The logs of many pods at once, each opened again wherever it was cut, until its program has ended and all is read."""

import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

from deepspeed_operator.cli import kubectl
from deepspeed_operator.cli.gateway import Gateway
from deepspeed_operator.cli.kubectl import ClusterError, ForbiddenError, GoneError
from deepspeed_operator.cli.pod_log import PodLog, TrainerPod

_TOLD_SECONDS: Final = 60.0  # between two times that the same trouble is told
GIVE_UP_SECONDS = 60.0  # for what cannot be read once nothing more is to come
_STACK_BYTES: Final = 1 << 18  # of a thread: a large gang has thousands


class LogStreams:
    """Reads what pods write, and hands each line with its pod to `show`, which is called by many threads.

    `tails`: by the pod's uid, how many of the lines that it has written already are wanted (None: all).
    """

    def __init__(
        self, gateway: Gateway, show: Callable[[TrainerPod, bytes], None], tails: Mapping[str, int | None]
    ) -> None:
        self.incomplete = False  # whether a log that is there could not be read to its end
        self._gateway, self._show, self._tails = gateway, show, tails
        self._threads: dict[str, threading.Thread] = {}  # by the pod's uid: one that was refused is made again
        self._ended: set[str] = set()
        self._gone: set[str] = set()  # under whose names others may be by now
        self._lock = threading.Lock()
        self._told: dict[str, float] = {}
        self._give_up = float("inf")
        threading.stack_size(_STACK_BYTES)

    def read_once(self, pod: TrainerPod) -> None:
        """Show what a pod has written until now."""
        log = self._log(pod)
        try:
            for line in log.lines(follow=False) if pod.started else ():
                self._show(pod, line)
        except GoneError:
            pass  # deleted since it was listed: there is nothing of it to show
        except ClusterError as error:
            self._tell(pod, error)
            self.incomplete = True
        else:
            self._show_rest(pod, log)

    def note(self, pod: TrainerPod, *, gone: bool = False) -> None:
        """Take what is known of a pod now; it is followed once it has started."""
        with self._lock:
            if pod.ended or gone:
                self._ended.add(pod.uid)
            if gone:
                self._gone.add(pod.uid)
            if not pod.started or pod.uid in self._threads:
                return
            thread = self._threads[pod.uid] = threading.Thread(target=self._follow, args=(pod,), daemon=True)
            thread.start()

    @property
    def begun(self) -> bool:
        """Whether any pod is followed."""
        return bool(self._threads)

    def drain(self) -> None:
        """Return once all has been read of the pods that were noted; what cannot be read is given up after a minute."""
        self._give_up = time.monotonic() + GIVE_UP_SECONDS
        with self._lock:
            threads = list(self._threads.values())
        for thread in threads:
            thread.join()

    def _log(self, pod: TrainerPod) -> PodLog:
        return PodLog(self._gateway, pod, self._tails.get(pod.uid))

    def _follow(self, pod: TrainerPod) -> None:
        log = self._log(pod)
        while pod.uid not in self._gone:
            # A stream that is cut on its way may end as if the program had: only one that begins after the program's
            # end and brings nothing is the last.
            ended, new = pod.uid in self._ended, False
            try:
                for line in log.lines(follow=True):
                    new = True
                    self._show(pod, line)
            except GoneError:
                break
            except ClusterError as error:
                self._tell(pod, error)
                if isinstance(error, ForbiddenError) or time.monotonic() > self._give_up:
                    self.incomplete = True
                    break
            else:
                if ended and not new:
                    break
            time.sleep(kubectl.AGAIN_SECONDS)
        self._show_rest(pod, log)

    def _show_rest(self, pod: TrainerPod, log: PodLog) -> None:
        if log.rest:
            self._show(pod, log.rest + b"\n")

    def _tell(self, pod: TrainerPod, error: ClusterError) -> None:
        """Tell what keeps logs from being read: of all pods at once where it is the same."""
        words, now = str(error).splitlines()[-1], time.monotonic()
        with self._lock:
            if now - self._told.get(words, -_TOLD_SECONDS) < _TOLD_SECONDS:
                return
            self._told[words] = now
        print(f"dsjob: {pod.name}: its log cannot be read: {words}", file=sys.stderr)
