"""Make loopback as slow as a network card: packets of one frame each, that the kernel must handle one by one.

    python3 -m bench.gpu.slow_loopback 9000        as root, on a machine of your own; undo with 65536
"""

import array
import fcntl
import socket
import struct
import sys
from typing import Final

_SIOCETHTOOL: Final = 0x8946
_SIOCSIFMTU: Final = 0x8922
# linux/ethtool.h: what joins packets on their way out (segmentation) and in (receive).
_OFFLOADS: Final = {"tcp segmentation": 0x1F, "generic segmentation": 0x24, "generic receive": 0x2C}
_WHOLE: Final = 65536


def main() -> None:
    mtu = int(sys.argv[1])
    name = b"lo"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCSIFMTU, struct.pack("16si12x", name, mtu))
        for command in _OFFLOADS.values():
            value = array.array("I", [command, int(mtu == _WHOLE)])
            fcntl.ioctl(control, _SIOCETHTOOL, struct.pack("16sP16x", name, value.buffer_info()[0]))


if __name__ == "__main__":
    main()
