"""GPUs by name: what their data sheets say, from which an uncalibrated plan is assumed."""

import re
from dataclasses import dataclass
from typing import Final

from deepspeed_operator.job.precision import Precision

_TERA: Final = 10**12
_GIGA: Final = 10**9
_MIB: Final = 2**20
_ALIKE: Final = 0.05


@dataclass(frozen=True, slots=True)
class Device:
    """`memory` in bytes as the driver reports them; `flops` a second of 16 bits, dense, `plain_flops` of fp32 without
    TF32; `memory_rate` and `interconnect`, the latter each way between GPUs of a node, in bytes a second. `half`: the
    16-bit type that its tensor cores multiply: bf16 from compute capability 8.0 on, before that fp16 alone. `host`: how
    many times as long as beside an H200 Python usually takes beside it.
    """

    name: str
    memory: int
    flops: float
    plain_flops: float
    memory_rate: float
    interconnect: float
    half: Precision
    host: float = 1.0

    def has(self, memory: int) -> bool:
        """Whether a whole one may be said to have so many bytes: what the driver keeps for itself is not among them."""
        return abs(memory - self.memory) < _ALIKE * self.memory


# Of the data sheet's bandwidth, what NCCL reached between two H100s: 292 of 450 GB/s.
_REACHED: Final = 0.65
_PCIE_5: Final = 64
_PCIE_4: Final = 32
_PCIE_3: Final = 16
_BEFORE_AMPERE: Final = ("V100", "T4")
# Of the CPUs that machines with these GPUs are sold with (Xeons of 2017 and 2019; EPYC of 2020, Xeons of 2021) beside
# those of 2023, one thread of each. Nobody measured it: the first steps of a job do.
_HOSTS: Final = {"V100": 1.6, "T4": 1.6, "A100": 1.3, "A10": 1.3, "A6000": 1.3, "A5000": 1.3, "RTX3090": 1.3}


def _device(name: str, mebibytes: int, teraflops: tuple[float, float], memory_rate: float, link: float) -> Device:
    family = name.partition("-")[0]
    half = Precision.FP16 if family in _BEFORE_AMPERE else Precision.BF16
    flops, plain = (each * _TERA for each in teraflops)
    interconnect, host = link * _REACHED * _GIGA, _HOSTS.get(family, 1.0)
    return Device(name, mebibytes * _MIB, flops, plain, memory_rate * _TERA, interconnect, half, host)


DEVICES: Final = {
    device.name: device
    for device in (
        _device("B200-180G", 183_359, (2250, 75), 8.0, 900),
        _device("H200-141G", 143_771, (989, 67), 4.8, 450),
        _device("H100-80G", 81_559, (989, 67), 3.35, 450),
        _device("H100-NVL-94G", 95_830, (835, 60), 3.9, 300),
        _device("A100-80G", 81_920, (312, 19.5), 2.04, 300),
        _device("A100-40G", 40_960, (312, 19.5), 1.56, 300),
        _device("L40S-48G", 46_068, (362, 91.6), 0.86, _PCIE_4),
        _device("A10-24G", 23_028, (125, 31.2), 0.6, _PCIE_4),
        _device("L4-24G", 23_034, (121, 30.3), 0.3, _PCIE_4),
        _device("V100-32G", 32_768, (125, 15.7), 0.9, 150),
        _device("V100-16G", 16_384, (125, 15.7), 0.9, 150),
        _device("T4-16G", 15_360, (65, 8.1), 0.32, _PCIE_3),
        # 16 bits with sums in fp32, which GeForce cards multiply at half the rate. From NVIDIA's papers on the
        # architectures GA102, Ada (2.1) and RTX Blackwell, and the data sheets of RTX A5000 and A6000; NVLink bridges
        # join pairs only, and are not counted.
        _device("RTX5090-32G", 32_607, (209.5, 104.8), 1.79, _PCIE_5),
        _device("RTX4090-24G", 24_564, (165.2, 82.6), 1.01, _PCIE_4),
        _device("RTX3090-24G", 24_576, (71, 35.6), 0.94, _PCIE_4),
        _device("A6000-48G", 49_140, (154.8, 38.7), 0.77, _PCIE_4),
        _device("A5000-24G", 24_564, (111.1, 27.8), 0.77, _PCIE_4),
    )
}


def device_named(name: str | None, memory: int | None) -> Device | None:
    """Return the device that the driver names so, such as NVIDIA H100 80GB HBM3; None for another, or for a part."""
    words = re.split(r"[^A-Z0-9]+", (name or "").upper())
    if not _OTHERS.isdisjoint(words):
        return None
    kin = (device for device in DEVICES.values() if _family(device.name).removeprefix("RTX") in words)
    return next((device for device in kin if device.has(memory or 0)), None)


# A part of a GPU, or another one of nearly the same name.
_OTHERS: Final = frozenset({"MIG", "TI", "LAPTOP", "D"})


def _family(name: str) -> str:
    return name.partition("-")[0]


def devices_like(text: str) -> list[Device]:
    """Return the devices that a person may mean: by the name of a family (L4), else by how a name begins (rtx 4090)."""
    given = re.sub(r"[^a-z0-9]|nvidia|geforce", "", text.lower()).removeprefix("rtx")
    plain = {device.name: re.sub(r"[^a-z0-9]", "", device.name.lower()).removeprefix("rtx") for device in _KNOWN}
    for same in (
        [device for device in _KNOWN if plain[device.name] in (given, given.removesuffix("b"))],
        [device for device in _KNOWN if _family(device.name).lower().removeprefix("rtx") == given],
        [device for device in _KNOWN if given and plain[device.name].startswith(given)],
    ):
        if same:
            return same
    return []


_KNOWN: Final = tuple(DEVICES.values())


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


def reached(gigabits: float) -> float:
    """Return the bytes a second that a network sold with so many gigabits a second is assumed to carry."""
    return gigabits / 8 * _REACHED * _GIGA
