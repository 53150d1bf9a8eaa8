"""What has to be built before a cluster can run jobs, each part cached by its content.

`python -m dev.preparation` builds all of it; what is built already takes a second. It notes how long each part took in
the file that DSJ_TIMING names, for the table at the end of `make test`.
"""

import os
import sys
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path

from dev.cluster import build
from dev.cluster.settings import CACHE, STATE, Layout
from dev.images import images

_PARTS_AT_ONCE = 3
_SAID_EVERY_SECONDS = 60
# Before the name of a part that went on beside others: their times are not added up.
AT_ONCE = "  at once: "


def cluster_programs() -> None:
    """Kubernetes, containerd, DNS, helm: compiled from their Go modules."""
    build.install_packages()
    build.build(Layout(STATE, CACHE))


# The longest first.
STEPS: Mapping[str, Callable[[], object]] = {
    "cluster programs": cluster_programs,
    **{f"image {name}": partial(images.ensure, name) for name in images.NAMES},
}


def take(names: Collection[str]) -> dict[str, float]:
    """Take these steps, and return how many seconds each took.

    Some at once: downloads, unpacking and linkers leave processors idle. Once a minute it says what still goes on.
    """
    begin = time.monotonic()

    def seconds(name: str) -> float:
        begin = time.monotonic()
        STEPS[name]()
        return time.monotonic() - begin

    with ThreadPoolExecutor(_PARTS_AT_ONCE) as pool:
        parts = {name: pool.submit(seconds, name) for name in names}
        while unfinished := wait(parts.values(), timeout=_SAID_EVERY_SECONDS).not_done:
            left = ", ".join(name for name, part in parts.items() if part in unfinished)
            print(
                f"after {(time.monotonic() - begin) / 60:.0f} min: not ready yet: {left}", file=sys.stderr, flush=True
            )
        return {name: part.result() for name, part in parts.items()}


def main() -> None:
    """Build everything, and note how long it took."""
    begin = time.monotonic()
    parts = take(STEPS)
    rows = {"build": time.monotonic() - begin, **{f"{AT_ONCE}{name}": seconds for name, seconds in parts.items()}}
    lines = "".join(f"{name}\t{seconds:.1f}\n" for name, seconds in rows.items())
    if file := os.environ.get("DSJ_TIMING"):
        with Path(file).open("a") as output:
            output.write(lines)
    else:
        sys.stdout.write(lines)


if __name__ == "__main__":
    main()
