"""Debian's packages, as far as this machine lacks them."""

import fcntl
import shutil
from collections.abc import Mapping
from pathlib import Path

from dev.cluster.processes import run
from dev.cluster.settings import CACHE


def ensure(needed: Mapping[str, str]) -> None:
    """Install the packages whose program (a name) or file (a path) is not here: `needed` says which brings what.

    Services of theirs are not started: the cluster runs its own.
    """
    CACHE.mkdir(parents=True, exist_ok=True)
    # apt waits for another's lock on what is installed, but not for that on what there is.
    with (CACHE / "apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        missing = {package for probe, package in needed.items() if not (shutil.which(probe) or Path(probe).exists())}
        if not missing:
            return
        print(f"installing {' '.join(sorted(missing))}", flush=True)
        quiet = {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
        apt = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=600"]
        run([*apt, "update"], env=quiet)
        run([*apt, "install", "-y", "--no-install-recommends", *sorted(missing)], env=quiet, timeout=1200)
