"""Where each rank of this pod stands, once the gang hangs: gathered once, for the log and for the hub."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import threading
from typing import TYPE_CHECKING, Any, Callable, Mapping, Sequence

import dso_stacks
from dso_progressranks import RankProgress
from dso_words import legible, plain

if TYPE_CHECKING:
    from dso_processes import Child

MOST_RANKS = 16
MOST_CHILDREN = 2
MOST_STACKS = 6000  # characters of one process
MOST_LINES = 5  # of NCCL
TRIGGER = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"  # whoever writes there has torch dump its flight recorder
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)
_THREAD = re.compile(r"^(?:Current thread|Thread) ", re.MULTILINE)
_LIBRARY = re.compile(r"^<frozen |/lib(?:64)?/python3\.\d+/(?!(?:site|dist)-packages/)")
_COLLECTIVES = re.compile(r"/(?:torch/distributed|torch/cuda|deepspeed/comm)/")
# Within its own step DeepSpeed asks the GPU for norms and overflows, which come from all ranks.
_ENGINE = re.compile(r"/deepspeed/runtime/(?:engine|utils|bf16_optimizer|(?:zero|fp16|pipe)/\w+)\.py$")
_OF_COLLECTIVES = re.compile(
    r"i?(?:all_reduce|all_gather|reduce_scatter|all_to_all|broadcast|reduce|gather|scatter|send|recv|batch_isend_irecv)"
    r"(?:_\w+)?|(?:monitored_|_store_based_)?barrier|init_process_group|new_group|rendezvous|synchronize|wait"
)


def where(stacks: str) -> tuple[str, bool]:
    """Where the main thread is, and whether that is a collective; empty where the stacks do not say.

    To wait for a GPU counts as one, since what NCCL was given waits there; so does what DeepSpeed's engine does itself.
    faulthandler lists the main thread last, and each thread's innermost frame first. In a backward pass of a GPU, hooks
    that call collectives run in another thread.
    """
    threads = [_FRAME.findall(each) for each in _THREAD.split(stacks)[1:]]
    if not threads or not threads[-1]:
        return "", False
    main = threads[-1]
    backward = any("/torch/autograd/" in path for path, _, _ in main)
    for frames in [main, *(threads[:-1] if backward else [])]:
        names = [name for path, _, name in frames if _COLLECTIVES.search(path) and _OF_COLLECTIVES.fullmatch(name)]
        if names:
            return next((name for name in names if name != "wait"), "wait"), True
    path, line, name = next((each for each in main if not _LIBRARY.search(each[0])), main[0])
    return f"{os.path.basename(path)}:{line} ({name})"[:80], _ENGINE.search(path) is not None


def gather(
    directory: str | None, ranks: Sequence[RankProgress], children: Sequence[Child], say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """What dso_behind.Standing takes of each rank; in the log, all that is known of them.

    `directory` is that of the hook, None without one.
    """
    known = {each.rank: each for each in ranks}
    lines = {child.spec.rank: child for child in children if child.code is None and child.spec.rank is not None}
    asked = {rank: (child.process.pid, "") for rank, child in lines.items()}
    for rank, pid, file in dso_stacks.files([glob.escape(directory)] if directory else []):
        # A shell may have started the rank, and a rank its workers.
        own, has = asked.get(rank, (pid, ""))
        if dso_stacks.alive(pid) and (not has or pid == own):
            asked[rank] = (pid, file)
    found: dict[int, dict[str, Any]] = {}
    threads = [
        threading.Thread(target=_ask, args=(rank, *asked[rank], found), daemon=True)
        for rank in sorted(asked)[:MOST_RANKS]
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(dso_stacks.WITHIN_SECONDS * (MOST_CHILDREN + 2))
    told: list[dict[str, Any]] = []
    for rank, each in sorted(found.items()):
        child, record = lines.get(rank), known.get(rank)
        place, collective = where(each["stacks"])
        step = record.step if record and record.taken else None
        say(_told(rank, each, record, child) + _flight_recorder(rank, child))
        told.append(
            {
                "rank": rank,
                "step": step,
                "state": each["state"],
                "kernel": each["place"][:60],
                "where": place,
                "collective": collective,
                "load": record.load if record else "",
            }
        )
    return told


def _ask(rank: int, pid: int, file: str, found: dict[int, dict[str, Any]]) -> None:
    answer = dso_stacks.process(pid, file)
    below = dso_stacks.children(pid)[:MOST_CHILDREN] if file and answer["stacks"] else []
    found[rank] = {**answer, "children": [dso_stacks.process(child, file) for child in below]}


def _told(rank: int, process: Mapping[str, Any], record: RankProgress | None, child: Child | None) -> str:
    kernel = f", in {process['place']} of the kernel" if process["place"] else ""
    phase = f", phase {record.phase} after step {record.step}" if record else ""
    words = f"hang: rank {rank}, process {process['pid']}, state {process['state']}{kernel}{phase}"
    nccl = [line for line in plain(legible(child.stream.tail)).splitlines() if "NCCL" in line] if child else []
    parts = [words, *(f"  {line.strip()[:200]}" for line in nccl[-MOST_LINES:])]
    for each in (process, *process["children"]):
        if each is not process:
            parts.append(f"  its process {each['pid']}, state {each['state']}: {each['command']}")
        parts.append(each["stacks"][:MOST_STACKS].rstrip() or "  no stack: it does not answer")
    return "\n".join(parts)


def _flight_recorder(rank: int, child: Child | None) -> str:
    """Have torch write what it has recorded of collectives, where that is enabled."""
    prefix = child.spec.environment.get(TRIGGER) if child else None
    if not prefix:
        return ""
    with contextlib.suppress(OSError):  # the process does not read it
        pipe = os.open(f"{prefix}{rank}.pipe", os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(pipe, b"1\n")
        finally:
            os.close(pipe)
        return f"\n  its flight recorder was told to dump: {TRIGGER}"
    return ""
