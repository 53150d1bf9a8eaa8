"""GPUs by name: what their data sheets say, from which an uncalibrated plan is assumed."""

import re
from dataclasses import dataclass
from typing import Final

_TERA: Final = 10**12
_GIGA: Final = 10**9
_MIB: Final = 2**20


@dataclass(frozen=True, slots=True)
class Device:
    """`memory` in bytes as the driver reports them, `flops` of dense bf16 (fp16 before Ampere) a second; `memory_rate`
    and `interconnect`, the latter each way between GPUs of a node, in bytes a second.
    """

    name: str
    memory: int
    flops: float
    memory_rate: float
    interconnect: float


# Of the data sheet's bandwidth, what NCCL reached between two H100s: 292 of 450 GB/s.
_REACHED: Final = 0.65
_PCIE_4: Final = 32
_PCIE_3: Final = 16


def _device(name: str, mebibytes: int, teraflops: float, memory_rate: float, link: float) -> Device:
    return Device(name, mebibytes * _MIB, teraflops * _TERA, memory_rate * _TERA, link * _REACHED * _GIGA)


DEVICES: Final = {
    device.name: device
    for device in (
        _device("B200-180G", 183_359, 2250, 8.0, 900),
        _device("H200-141G", 143_771, 989, 4.8, 450),
        _device("H100-80G", 81_559, 989, 3.35, 450),
        _device("H100-NVL-94G", 95_830, 835, 3.9, 300),
        _device("A100-80G", 81_920, 312, 2.04, 300),
        _device("A100-40G", 40_960, 312, 1.56, 300),
        _device("L40S-48G", 46_068, 362, 0.86, _PCIE_4),
        _device("A10-24G", 23_028, 125, 0.6, _PCIE_4),
        _device("L4-24G", 23_034, 121, 0.3, _PCIE_4),
        _device("V100-32G", 32_768, 125, 0.9, 150),
        _device("V100-16G", 16_384, 125, 0.9, 150),
        _device("T4-16G", 15_360, 65, 0.32, _PCIE_3),
    )
}
# What the driver keeps for itself is not among what a program is told.
_ALIKE: Final = 0.05


def device_named(name: str | None, memory: int | None) -> Device | None:
    """Return the device that the driver names so, such as NVIDIA H100 80GB HBM3; None for another, or for a part."""
    words = re.split(r"[^A-Z0-9]+", (name or "").upper())
    kin = (device for device in DEVICES.values() if device.name.partition("-")[0] in words and "MIG" not in words)
    return next((device for device in kin if abs(device.memory - (memory or 0)) < _ALIKE * device.memory), None)


# Where nothing is said of the GPU.
USUAL: Final = DEVICES["A100-80G"]

# Between nodes, of a whole node, each way: names of what a cloud or a switch is sold as → GB/s on the data sheet.
_NETWORKS: Final = {
    "10GbE": 1.25,
    "25GbE": 3.125,
    "100GbE": 12.5,
    "IB-HDR": 25,
    "IB-NDR": 50,
    "8xIB-HDR": 200,
    "8xIB-NDR": 400,
    "EFA-400": 50,
    "EFA-3200": 400,
}
NETWORKS: Final = {name: rate * _REACHED * _GIGA for name, rate in _NETWORKS.items()}
