"""Where images are built and kept, and of which Debian."""

from pathlib import Path

from dev.cluster.settings import CACHE

ROOT = Path(__file__).resolve().parents[2]
STORAGE = CACHE / "storage"
# What is mounted now, for this storage alone; it must not outlive a reboot.
RUNTIME = Path("/run/deepspeed-operator-images") / str(CACHE).strip("/").replace("/", "-")
LOCKS = CACHE / "locks"

SUITE = "trixie"
_SIGNED = "[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]"
SOURCES = (
    f"deb {_SIGNED} http://deb.debian.org/debian {SUITE} main",
    f"deb {_SIGNED} http://deb.debian.org/debian {SUITE}-updates main",
    f"deb {_SIGNED} http://deb.debian.org/debian-security {SUITE}-security main",
)
