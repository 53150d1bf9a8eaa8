"""Control groups in their first version (a hierarchy for each controller) and their second (one for all)."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
PREFIX = "dsj-"


def unified() -> bool:
    return (ROOT / "cgroup.controllers").exists()


def _hierarchies() -> list[Path]:
    """In the first version some names are links to a joint hierarchy (cpu → cpu,cpuacct): each is counted once."""
    return [ROOT] if unified() else [path for path in ROOT.iterdir() if path.is_dir() and not path.is_symlink()]


def create(name: str) -> None:
    """A group whose children may use every controller; processes live in leaves, as the second version demands."""
    for hierarchy in _hierarchies():
        group = hierarchy / name
        (group / "system").mkdir(parents=True, exist_ok=True)
        if unified():
            controllers = " ".join(f"+{controller}" for controller in (ROOT / "cgroup.controllers").read_text().split())
            for parent in (ROOT, group):
                (parent / "cgroup.subtree_control").write_text(controllers)
        for setting in ("cpuset.cpus", "cpuset.mems"):
            if not unified() and (hierarchy / setting).exists():
                for member in (group, group / "system"):
                    (member / setting).write_text((hierarchy / setting).read_text())


def membership(name: str) -> Path:
    """The file through which a process of ours joins. One hierarchy is enough to find it again."""
    hierarchy = (
        ROOT if unified() else next((ROOT / n for n in ("pids", "freezer") if (ROOT / n).is_dir()), _hierarchies()[0])
    )
    return hierarchy / name / "system" / "cgroup.procs"


def existing() -> list[str]:
    return sorted({group.name for hierarchy in _hierarchies() for group in hierarchy.glob(f"{PREFIX}*")})


def members(name: str) -> set[int]:
    pids: set[int] = set()
    for hierarchy in _hierarchies():
        for group in _bottom_up(hierarchy / name):
            with contextlib.suppress(OSError):  # the group went away meanwhile
                pids.update(int(pid) for pid in (group / "cgroup.procs").read_text().split())
    return pids - {0}  # 0: a process of a foreign PID namespace, which is not ours to end


def remove(name: str, seconds: float = 15) -> None:
    """Kills whatever is inside and takes the group away."""
    deadline = time.monotonic() + seconds
    while pids := members(name):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes of {name} do not end: {sorted(pids)}")
        time.sleep(0.02)
    for hierarchy in _hierarchies():
        for group in _bottom_up(hierarchy / name):
            _rmdir(group, deadline)


def _rmdir(group: Path, deadline: float) -> None:
    """A group is busy for a moment after its last process has ended."""
    while True:
        try:
            return group.rmdir()
        except FileNotFoundError:
            return None
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _bottom_up(group: Path) -> Iterator[Path]:
    for directory, _, _ in os.walk(group, topdown=False):
        yield Path(directory)
