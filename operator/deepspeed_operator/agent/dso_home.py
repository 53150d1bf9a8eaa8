"""A user name, a home and a temporary directory, where the container gives none that can be used.

OpenShift runs a pod under a user id that the image does not know, with HOME=/, and many clusters make the root
read-only. There getpass.getuser() raises, by which torch names its caches, and so does what keeps something below ~.
What is set and can be used stays as it is.
"""

from __future__ import annotations

import os
import pwd
import tempfile
from typing import MutableMapping

from dso_launch import WORKSPACE

# The last has little room: it is memory. But it can be written to in every pod.
DIRECTORIES = ("/tmp", "/var/tmp", WORKSPACE, "/dev/shm")
# What libraries keep below ~, and the variables that put it elsewhere; the first counts for what is below .cache.
CACHES = {
    "XDG_CACHE_HOME": ".cache",
    "HF_HOME": ".cache/huggingface",
    "TORCH_HOME": ".cache/torch",
    "TORCH_EXTENSIONS_DIR": ".cache/torch_extensions",
    "TRITON_CACHE_DIR": ".triton/cache",
    "MPLCONFIGDIR": ".config/matplotlib",
}
Variables = MutableMapping[str, str]


def settle(environ: Variables) -> str:
    """Set what is missing, and return it in words."""
    before = dict(environ)
    name_user(environ)
    temporary = environ.get("TMPDIR") or "/tmp"
    scratch = next(filter(can_write, (temporary, *DIRECTORIES)), None)
    if scratch:
        if scratch != temporary:
            environ["TMPDIR"] = tempfile.tempdir = scratch
        give_home(environ, scratch)
    return " ".join(sorted(f"{name}={value}" for name, value in environ.items() if value != before.get(name)))


def name_user(environ: Variables) -> None:
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        name = environ.get("LOGNAME") or environ.get("USER") or f"uid{os.getuid()}"
        environ.setdefault("LOGNAME", name)
        environ.setdefault("USER", name)


def give_home(environ: Variables, scratch: str) -> None:
    home = environ.get("HOME") or os.path.expanduser("~")
    if can_write(home):
        return
    # No name that somebody else might have made before, where it is not a pod's own directory.
    private = tempfile.mkdtemp(prefix="deepspeed-operator-home-", dir=scratch)
    if home == "/" or not os.access(home, os.R_OK | os.X_OK):
        environ["HOME"] = private
        return
    # It can be read, and may hold models: only what is not there yet goes elsewhere.
    for name, below in CACHES.items():
        cache = environ.get("XDG_CACHE_HOME")
        place = below.replace(".cache", cache, 1) if cache else below
        place = os.path.join(home, place)
        if name not in environ and not os.path.exists(place) and not can_write(place):
            environ[name] = os.path.join(private, below)


def can_write(path: str) -> bool:
    """Whether files can be made there, also where the directory itself has still to be made."""
    path = os.path.abspath(path)
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return os.path.isdir(path) and os.access(path, os.W_OK | os.X_OK)
