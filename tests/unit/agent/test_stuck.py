"""A rank in uninterruptible sleep: nothing ends it, and the gang's end must not wait for it."""

import ctypes
import os
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.agent.harness import Gang

Make = Callable[..., Gang]
LOOKUP, INIT, HEADER = 1, 26, "<IIQQIIII"
pytestmark = pytest.mark.skipif(
    os.getuid() != 0 or not Path("/dev/fuse").exists(), reason="only root, with FUSE, can make a file system that hangs"
)


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[Path]:
    """A file system whose server takes requests and never answers: who asks sleeps until it is gone."""
    place, libc = tmp_path / "volume", ctypes.CDLL(None, use_errno=True)
    place.mkdir()
    server = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={server},rootmode=40000,user_id=0,group_id=0".encode()
    assert libc.mount(b"hanging", str(place).encode(), b"fuse", 0, options) == 0, os.strerror(ctypes.get_errno())

    def serve() -> None:
        while True:
            try:
                request = os.read(server, 1 << 17)
            except OSError:
                return
            _, operation, unique, *_ = struct.unpack(HEADER, request[:40])
            if operation == LOOKUP:
                (tmp_path / "asked").touch()
            if operation == INIT:
                reply = struct.pack("<IIIIHHI", 7, 31, 0, 0, 0, 0, 4096).ljust(64, b"\0")
                os.write(server, struct.pack("<IiQ", 16 + len(reply), 0, unique) + reply)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield place
    finally:
        aborted = Path(f"/sys/fs/fuse/connections/{os.minor(minor_of(place))}/abort")
        libc.umount2(str(place).encode(), 2)  # MNT_DETACH
        if aborted.exists():
            aborted.write_text("1")
        os.close(server)


def minor_of(place: Path) -> int:
    """The device of a mount, which stat(2) would hang on."""
    line = next(line for line in Path("/proc/self/mountinfo").read_text().splitlines() if f" {place} " in line)
    major, minor = line.split()[2].split(":")
    return os.makedev(int(major), int(minor))


SCRIPT = """
import os, sys, threading, time
if os.environ["RANK"] == "{failing}":
    while not os.path.exists("{place.parent}/asked"):
        time.sleep(0.02)
    sys.exit("no more data")
print("saving", flush=True)
os.stat("{place}/checkpoint")
"""


def test_a_gang_ends_though_a_rank_cannot(gang: Make, hanging: Path) -> None:
    running = gang(nodes=2, script=SCRIPT.format(failing=0, place=hanging)).start_all()
    ended = [each.end() for each in running]
    assert [each.code for each in ended] == [1, 1]
    assert {each.cause["rank"] for each in ended} == {0}
    assert "stuck" not in ended[0].cause
    assert ended[1].cause["stuck"].startswith("Pod pretrain-1-1 does not end: process ")
    assert "is in uninterruptible sleep (state D), in " in ended[1].cause["stuck"]
    assert "it holds its GPUs until" in ended[1].output


def test_the_first_process_of_a_container_tells_it_until_the_kernel_lets_it_end(gang: Make, hanging: Path) -> None:
    made = gang(slots=2, script=SCRIPT.format(failing=1, place=hanging))
    running = made.start(wrapper=("unshare", "--pid", "--fork", "--mount-proc", "--kill-child"))
    running.wait_for(lambda: "it holds its GPUs until" in running.output, 90)
    running.wait_for(lambda: running.get("/state")[1]["stuck"] is not None)
    stuck = running.get("/state")[1]["stuck"]
    assert (stuck["reason"], stuck["rank"]) == ("RankFailed", 1)
    assert running.ask("/readyz") == 503
    assert running.process.poll() is None
