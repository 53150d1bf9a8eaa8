"""The reason of a rank's end, for what real programs have printed: tests/unit/agent/failures, a file a reason.

Each text begins with `=== owner/repository#number exit=CODE`, where it was reported; it is shortened, and names, paths
and addresses are others. `oom`: the kernel has killed in the container. `secondary`: another rank's end may explain it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.unit.agent.harness import load

cause, reasons, signatures = load("dso_cause"), load("dso_reason"), load("dso_signatures")
TEXTS = Path(__file__).parent / "failures"
KEPT = 8192  # bytes of a rank's log that the agent keeps


@dataclass(frozen=True)
class Report:
    source: str
    reason: str
    code: int
    out_of_memory: bool
    secondary: bool
    log: str


def reports() -> Iterator[Report]:
    for path in sorted(TEXTS.glob("*.txt")):
        parts = re.split(r"^=== (.*)\n", path.read_text(), flags=re.MULTILINE)[1:]
        for head, log in zip(parts[::2], parts[1::2], strict=True):
            source, code, *more = head.split()
            yield Report(source, path.stem, int(code.partition("=")[2]), "oom" in more, "secondary" in more, log)


REPORTS = list(reports())


@pytest.mark.parametrize("report", REPORTS, ids=[f"{each.reason} {each.source}" for each in REPORTS])
def test_the_reason_of_a_real_failure_and_whether_it_may_follow_from_another(report: Report) -> None:
    found = cause.finding_of(report.code, report.log.encode()[-KEPT:], None, report.out_of_memory)
    killed, code = (-report.code, None) if report.code < 0 else (None, report.code)
    weight = reasons.weight(found.reason, found.text, killed, code)
    assert (found.reason, weight > signatures.CAUSE) == (report.reason, report.secondary), found


@pytest.mark.parametrize("table", [signatures.WORDS, signatures.LOG, signatures.PLACES], ids=["words", "log", "places"])
def test_each_signature_says_whose_words_it_has(table: tuple[object, ...]) -> None:
    assert all(each.source for each in table)  # type: ignore[attr-defined]


HANDLED = """\
Traceback (most recent call last):
  File "train.py", line 9, in find
    open("/cache/index")
FileNotFoundError: [Errno 2] No such file or directory: '/cache/index'
no index, building one
"""
DIED = """\
Traceback (most recent call last):
  File "train.py", line 12, in convert
    subprocess.run(["convert", name], check=True)
subprocess.CalledProcessError: Command '['convert', 'a.png']' died with <Signals.SIGSEGV: 11>.
"""
NAN = """\
Traceback (most recent call last):
  File "train.py", line 20, in <module>
    raise ValueError("loss is NaN")
ValueError: loss is NaN
"""
TIMEOUT = """\
[rank3]:[E321 02:07:09.1 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught collective operation timeout: \
WorkNCCL(SeqNum=7, OpType=ALLREDUCE) ran for 600060 milliseconds before timing out.
terminate called after throwing an instance of 'c10::DistBackendError'
  what():  [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE) ran.
"""
XID = """\
[  811.1] NVRM: Xid (PCI:0000:3b:00): 79, pid=12, GPU has fallen off the bus.
RuntimeError: CUDA error: unknown error
"""
MEMORY = "[INFO] [utils.py:839:see_memory_usage] CPU Virtual Memory:  used = 1992.1 GB, percent = 98.9%\n"


@pytest.mark.parametrize(
    ("code", "log", "expected"),
    [
        (1, HANDLED + NAN, "UserError"),  # an exception that the program has handled is not the cause
        (1, DIED, "Segfault"),
        (1, f"{DIED}no such picture\n{NAN}", "UserError"),
        (1, f"{DIED}\nThe above exception was the direct cause of the following exception:\n\n{NAN}", "Segfault"),
        (-6, HANDLED + TIMEOUT, "NcclTimeout"),
        (4, NAN, "RankFailed"),  # with another code than Python's
        (1, XID, "DeviceFault"),
        (-9, MEMORY, "HostOutOfMemory"),
        (-9, MEMORY.replace("98", "12"), "RankFailed"),
        (139, "./train.sh: line 3: 12 Segmentation fault (core dumped) python train.py\n", "Segfault"),
        (-7, "", "SharedMemory"),
        (1, 'KeyError: "Connection reset by peer"\n', "UserError"),
        (1, "ValueError: watch the size mismatch\n", "UserError"),
        (127, "train.sh: line 2: nosuchcmd: command not found\n", "UserError"),
        (7, "giving up\n", "RankFailed"),
    ],
)
def test_other_ends(code: int, log: str, expected: str) -> None:
    assert cause.finding_of(code, log.encode(), None, False).reason == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 12 bytes.", "CudaOutOfMemory"),
        ("RuntimeError: One of the subprocesses has abruptly died during map operation.", "HostOutOfMemory"),
        ("RuntimeError: Shared memory manager connection has timed out", "SharedMemory"),
        ("torch.distributed.DistBackendError: but store->get('0') got error: wait timeout after 600ms", "NcclTimeout"),
        ("torch.distributed.DistStoreError: Socket Timeout", "RendezvousTimeout"),
        ("ValueError: Type fp16 is not supported.", "ConfigRejected"),
        ("OSError: Can't load tokenizer for '/models/m'.", "DataOrCheckpoint"),
        ("AssertionError: No checkpoint found in /ckpt", "DataOrCheckpoint"),
        ("ValueError: Can't load the dice", "UserError"),
    ],
)
def test_other_words(words: str, expected: str) -> None:
    assert cause.finding_of(1, f"{words}\n".encode(), None, False).reason == expected


def test_a_worker_that_the_kernel_killed_for_the_ranks_memory() -> None:
    log = b"RuntimeError: DataLoader worker (pid(s) 122) exited unexpectedly\n"
    assert cause.finding_of(1, log, None, True).reason == "HostOutOfMemory"
    assert cause.finding_of(1, log, None, False).reason == "UserError"


def test_what_is_not_certain_says_what_else_it_may_be() -> None:
    found = cause.finding_of(1, b"RuntimeError: CUDA error: unspecified launch failure\n", None, False)
    assert (found.reason, found.others) == ("DeviceFault", ("UserError",))
