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
OF_A_LAUNCHER = "ERROR:torch.distributed.elastic:failed (exitcode: 1) local_rank: 0 (pid: 101) of binary: python\n"
LOST = NAN.replace(
    "ValueError: loss is NaN", "RuntimeError: [gloo/transport/tcp/pair.cc:598] Connection closed by peer"
)
OOM, SEGV = "CudaOutOfMemory", "Segfault"
IGNORED = """\
Exception ignored in: <function DeepSpeedCPUAdam.__del__ at 0x7f0000000000>
Traceback (most recent call last):
  File "cpu_adam.py", line 102, in __del__
AttributeError: 'DeepSpeedCPUAdam' object has no attribute 'ds_opt_adam'
"""
OF_A_THREAD = """\
Exception in thread Thread-4 (_pin_memory_loop):
Traceback (most recent call last):
  File "connection.py", line 383, in _recv
ConnectionResetError: [Errno 104] Connection reset by peer
"""
COMPILER = """\
c++: fatal error: Killed signal terminated program cc1plus
ninja: build stopped: subcommand failed.
Traceback (most recent call last):
  File "cpp_extension.py", line 1909, in _run_ninja_build
RuntimeError: Error building extension 'cpu_adam'
"""
ACTOR = """\
(CriticModelRayActor pid=375881) Traceback (most recent call last):
(CriticModelRayActor pid=375881)   File "ppo.py", line 380, in fit
(CriticModelRayActor pid=375881) torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.28 GiB
Traceback (most recent call last):
  File "train_ppo_ray.py", line 181, in train
ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.
"""
LINK = "box:71:90 [0] transport/net_ib.cc:95 NCCL WARN NET/IB : Got async event : port error\n"
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
        # What a destructor, another thread or a log handler prints ends no program.
        (
            1,
            MEMORY + NAN.replace("ValueError: loss is NaN", "torch.OutOfMemoryError: CUDA out of memory") + IGNORED,
            OOM,
        ),
        (1, NAN + OF_A_THREAD, "UserError"),
        # What torch names the rank of has ended it: its abort follows, and so do the other ranks' errors.
        (-6, re.sub("^", "[rank3]: ", NAN, flags=re.MULTILINE)[:-9] + TIMEOUT, "UserError"),
        (1, NAN + LOST + OF_A_LAUNCHER, "UserError"),
        (1, NAN + LOST, "NcclNetwork"),
        (1, IGNORED + LOST + OF_A_LAUNCHER, "NcclNetwork"),
        (
            1,
            NAN + "\nDuring handling of the above exception, another exception occurred:\n\n" + LOST + OF_A_LAUNCHER,
            "NcclNetwork",
        ),
        (1, COMPILER, "HostOutOfMemory"),
        (1, ACTOR, OOM),
        (-6, LINK + TIMEOUT, "NcclNetwork"),
        (
            1,
            "mpirun noticed that process rank 3 with PID 2301 on node n exited on signal 11 (Segmentation fault).\n",
            SEGV,
        ),
        (1, "srun: error: gpu03: task 1: Out Of Memory\n", "HostOutOfMemory"),
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
        ("OSError: You are trying to access a gated repo.", "DataOrCheckpoint"),
        ("ConnectionError: Couldn't reach 'user/qa' on the Hub (LocalEntryNotFoundError)", "DataOrCheckpoint"),
        ("requests.exceptions.ConnectionError: HTTPSConnectionPool(host='api.wandb.ai', port=443)", "UserError"),
        ("botocore.exceptions.NoCredentialsError: Unable to locate credentials", "DataOrCheckpoint"),
        ("OSError: [Errno 121] Remote I/O error: '/mnt/data/shard-0001.bin'", "DataOrCheckpoint"),
        ("RuntimeError: Parent directory /out/ckpt does not exist.", "DataOrCheckpoint"),
        ("RuntimeError: Missing key in checkpoint state_dict: model.layers.0.weight.", "DataOrCheckpoint"),
        ("RuntimeError: Internal: src/sentencepiece_processor.cc(1101) [model_proto->Parse]", "DataOrCheckpoint"),
        ("RuntimeError: No HIP GPUs are available", "DeviceFault"),
        ("pynvml.nvml.NVMLError_LibRmVersionMismatch: Driver/library version mismatch", "DeviceFault"),
        (
            "ValueError: You cannot create a `DummyOptim` without specifying an optimizer in the config file.",
            "ConfigRejected",
        ),
        ("KeyboardInterrupt", "RankFailed"),
    ],
)
def test_other_words(words: str, expected: str) -> None:
    assert cause.finding_of(1, f"{words}\n".encode(), None, False).reason == expected


@pytest.mark.parametrize(("code", "expected"), [(-15, 2), (-2, 2), (-1, 2), (130, 2), (129, 2), (-9, 0), (7, 0)])
def test_a_rank_that_was_asked_to_end_may_follow_from_another(code: int, expected: int) -> None:
    killed = -code if code < 0 else None
    assert reasons.weight("RankFailed", "", killed, None if killed else code) == expected


def test_a_worker_that_the_kernel_killed_for_the_ranks_memory() -> None:
    log = b"RuntimeError: DataLoader worker (pid(s) 122) exited unexpectedly\n"
    assert cause.finding_of(1, log, None, True).reason == "HostOutOfMemory"
    assert cause.finding_of(1, log, None, False).reason == "UserError"


def test_what_is_not_certain_says_what_else_it_may_be() -> None:
    found = cause.finding_of(1, b"RuntimeError: CUDA error: unspecified launch failure\n", None, False)
    assert (found.reason, found.others) == ("DeviceFault", ("UserError",))
