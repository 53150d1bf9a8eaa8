"""The accelerator of this process: CUDA, or for a dry run the CPU, whose memory is the process's."""

# pyright: basic, reportMissingImports=false

import os
import time
from collections.abc import Callable
from pathlib import Path

import torch

CUDA = torch.cuda.is_available() if os.environ.get("DS_ACCELERATOR") != "cpu" else False
BACKEND = "nccl" if CUDA else "gloo"
# A multicast group that a program leaves behind disables NVLink for everyone on a shared host.
_KEPT = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}


def check_environment() -> None:
    """Refuse to start a collective where the machine's safety settings are lost."""
    lost = [name for name, value in _KEPT.items() if os.environ.get(name) != value]
    if CUDA and lost:
        raise RuntimeError(f"{', '.join(lost)}: must be as in {_KEPT}")


def take(local_rank: int) -> torch.device:
    if not CUDA:
        torch.set_num_threads(1)
        return torch.device("cpu")
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)


def wait() -> None:
    if CUDA:
        torch.cuda.synchronize()


def timed(call: Callable[[], object]) -> float:
    """Seconds until the device has done it."""
    wait()
    begun = time.perf_counter()
    call()
    wait()
    return time.perf_counter() - begun


def reset_peak() -> None:
    if CUDA:
        torch.cuda.reset_peak_memory_stats()


def peak() -> int:
    return torch.cuda.max_memory_allocated() if CUDA else resident()


def allocated() -> int:
    return torch.cuda.memory_allocated() if CUDA else resident()


def most_reserved() -> int:
    return torch.cuda.max_memory_reserved() if CUDA else resident()


def outside() -> int:
    """Bytes used on the device that the allocator has not reserved: context, NCCL, libraries."""
    if not CUDA:
        return 0
    free, total = torch.cuda.mem_get_info()
    return total - free - torch.cuda.memory_reserved()


def resident() -> int:
    return _status("VmRSS")


def host() -> dict[str, int]:
    """Bytes of host memory of this process: now, at most, shared (pinned buffers are among them)."""
    return {"resident": resident(), "peak": _status("VmHWM"), "shared": _status("RssShmem")}


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))
