"""Make loopback as slow as a network card: its packets are frames then, which the kernel handles one by one.

    python3 -m bench.gpu.slow_loopback 9000        as root, on a machine of your own; undo with 65536

The argument is a frame's size in bytes. Smaller frames are slower.
"""

import argparse
import array
import fcntl
import socket
import struct
from typing import Final

_SIOCETHTOOL: Final = 0x8946
_SIOCSIFMTU: Final = 0x8922
# linux/ethtool.h, ETHTOOL_STSO, _SGSO and _SGRO: with any of them on, frames pass the kernel joined to 64 KiB.
_JOINING: Final = (0x1F, 0x24, 0x2C)
_NAME: Final = b"lo"
_WHOLE: Final = 65536


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("frame", type=int)
    frame = parser.parse_args().frame
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCSIFMTU, struct.pack("16si20x", _NAME, frame))
        for command in _JOINING:
            value = array.array("I", [command, frame == _WHOLE])
            fcntl.ioctl(control, _SIOCETHTOOL, struct.pack("16sP16x", _NAME, value.buffer_info()[0]))


if __name__ == "__main__":
    main()
