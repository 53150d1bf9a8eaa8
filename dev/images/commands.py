"""Other programs: installing them, running them, and saying how long a step took."""

import os
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from dev import debian
from dev.cluster.processes import CommandError

# What must be there, and the package of Debian that brings it. The keyring is the one that signs the suite we build.
_NEEDED = {
    "buildah": "buildah",
    "mmdebstrap": "mmdebstrap",
    "/etc/ssl/certs/ca-certificates.crt": "ca-certificates",
    "/usr/share/keyrings/debian-archive-trixie-stable.gpg": "debian-archive-keyring",
}


def run(command: Sequence[str], *, check: bool = True) -> str:
    """What the command printed on stdout; its complaints are shown only when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        said = (done.stdout + done.stderr).strip().splitlines()
        raise CommandError("\n".join([f"{' '.join(command)} ended with {done.returncode}", *said[-40:]]))
    return done.stdout.strip()


def install_tools() -> None:
    debian.ensure(_NEEDED)


@contextmanager
def step(name: str) -> Generator[None]:
    started = time.monotonic()
    say(f"{name} …")
    yield
    say(f"{name}: {time.monotonic() - started:.1f} s")


def say(text: str) -> None:
    print(f"images: {text}", file=sys.stderr, flush=True)


def without_make() -> dict[str, str]:
    """Return this process' variables but those of a `make test` above it, for a make that is a user's first.

    Else it would have that one's flags, and a last line that says which directory it leaves.
    """
    return {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
