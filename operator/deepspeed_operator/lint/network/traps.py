"""Values of NCCL's variables that do something else than they seem to, or that cost more than they seem to."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from deepspeed_operator.api.finding import Code, warning
from deepspeed_operator.api.status import Finding
from deepspeed_operator.dsconfig.wording import quoted
from deepspeed_operator.lint.network.variables import Variable

Variables = Mapping[str, Variable]

# Largest values; ibverbs and NCCL refuse, or cut, what is above.
_LARGEST: Final = {
    "NCCL_IB_RETRY_CNT": 7,
    "NCCL_IB_TIMEOUT": 31,
    "NCCL_IB_TC": 255,
    "NCCL_IB_FIFO_TC": 255,
    "NCCL_IB_SL": 15,
    "NCCL_IB_QPS_PER_CONNECTION": 128,
    "NCCL_SOCKET_NTHREADS": 16,
    "NCCL_MIN_CTAS": 64,
    "NCCL_MAX_CTAS": 64,
}
_MOST_SOCKETS: Final = 64
_DEBUG_LEVELS: Final = frozenset({"", "VERSION", "WARN", "INFO", "ABORT", "TRACE"})
_DISABLES: Final = {
    "NCCL_P2P_DISABLE": (
        "GPUs of a node no longer reach each other over NVLink or PCIe: every byte goes through host memory.",
        "Remove it; if it hides a fault, find that fault (ACS on bare metal, IOMMU, a broken NVLink).",
    ),
    "NCCL_SHM_DISABLE": (
        "ranks of a node that have no peer-to-peer path talk over the network.",
        "Remove it; if /dev/shm was full, raise spec.sharedMemory.",
    ),
    "NCCL_IB_DISABLE": (
        "RDMA devices are not used: all traffic between nodes is TCP.",
        "Remove it, or write spec.network.profile: TCP, which says the same where one looks for it.",
    ),
}


def trap_findings(variables: Variables) -> Iterator[Finding]:
    """Yield warnings about single variables of NCCL, and about those that contradict each other."""
    yield from _adapters(variables)
    yield from _numbers(variables)
    yield from _disabled(variables)
    yield from _debugging(variables)
    yield from _protocols(variables)
    yield from _contradictions(variables)


def _adapters(variables: Variables) -> Iterator[Finding]:
    hca, index = variables.get("NCCL_IB_HCA"), variables.get("NCCL_IB_GID_INDEX")
    if hca is not None and hca.value and hca.value[0] not in "^=":
        loose = [name for name in hca.value.split(",") if re.search(r"_[1-9]$", name)]
        if loose:
            message = f"{quoted(loose[0])} is a prefix: {loose[0]}0 to {loose[0]}9 are taken, too."
            yield _warning(hca, Code.NAME_PREFIX, message, f"Write ={hca.value}.")
    if index is not None and index.value not in (None, "", "-1"):
        message = "one index for all adapters and nodes; pods of one node have their addresses at different ones."
        fix = "Remove it: since 2.21 NCCL finds the index of each connection. NCCL_IB_ADDR_RANGE narrows the choice."
        yield _warning(index, Code.FIXED_GID_INDEX, message, fix)


def _numbers(variables: Variables) -> Iterator[Finding]:
    for name, largest in _LARGEST.items():
        number = _number(variables, name)
        if number is not None and number > largest:
            yield _warning(
                variables[name],
                Code.VARIABLE_OUT_OF_RANGE,
                f"{number} is more than {largest}, the most there is.",
                f"Write {largest}.",
            )
    threads, sockets = _number(variables, "NCCL_SOCKET_NTHREADS"), _number(variables, "NCCL_NSOCKS_PERTHREAD")
    if threads is not None and sockets is not None and threads * sockets > _MOST_SOCKETS:
        message = f"{threads} threads × {sockets} sockets are more than {_MOST_SOCKETS}, which NCCL cuts them to."
        yield _warning(
            variables["NCCL_NSOCKS_PERTHREAD"],
            Code.VARIABLE_OUT_OF_RANGE,
            message,
            f"Write {max(1, _MOST_SOCKETS // threads)}.",
        )
    least, most = _number(variables, "NCCL_MIN_CTAS"), _number(variables, "NCCL_MAX_CTAS")
    if least is not None and most is not None and least > most:
        message = f"contradicts NCCL_MAX_CTAS, which is {most}."
        yield _warning(
            variables["NCCL_MIN_CTAS"], Code.CONTRADICTORY_VARIABLES, message, "Remove both: NCCL tunes them."
        )


def _disabled(variables: Variables) -> Iterator[Finding]:
    for name, (message, fix) in _DISABLES.items():
        if _number(variables, name) == 1:
            yield _warning(variables[name], Code.DISABLED_TRANSPORT, message, fix)


def _debugging(variables: Variables) -> Iterator[Finding]:
    level, file = variables.get("NCCL_DEBUG"), variables.get("NCCL_DEBUG_FILE")
    if level is not None and level.value is not None:
        said = level.value.upper()
        if said == "TRACE":
            message = "writes a line for every operation; most builds of NCCL leave it out, and then it is INFO."
            yield _warning(level, Code.DEBUG_LEVEL, message, "Write INFO, and NCCL_DEBUG_SUBSYS for what you look for.")
        elif said not in _DEBUG_LEVELS:
            yield _warning(
                level, Code.DEBUG_LEVEL, f"{quoted(level.value)} is no level.", "Write VERSION, WARN or INFO."
            )
    if file is not None and file.value and "%p" not in file.value:
        message = "all ranks of a node write the same file, over each other."
        yield _warning(file, Code.DEBUG_FILE, message, "Put %p (process) and %h (host) into its name.")


def _protocols(variables: Variables) -> Iterator[Finding]:
    protocol = variables.get("NCCL_PROTO")
    if protocol is None or not protocol.value or protocol.value.startswith("^"):
        return
    if "LL128" in protocol.value.upper().split(","):
        message = "forces LL128 also where the platform does not keep its 128-byte stores whole: data gets corrupted."
        yield _warning(
            protocol, Code.FORCED_LL128, message, "Remove it: NCCL takes LL128 where it is safe. ^LL128 forbids it."
        )


def _contradictions(variables: Variables) -> Iterator[Finding]:
    net = variables.get("NCCL_NET")
    named = (net.value or "").lower() if net is not None else ""
    plugin = variables.get("NCCL_NET_PLUGIN")
    if net is not None and named == "socket":
        for name in sorted(variables):
            if name.startswith("NCCL_IB_") and name != "NCCL_IB_DISABLE":
                yield _warning(
                    variables[name],
                    Code.CONTRADICTORY_VARIABLES,
                    "has no effect beside NCCL_NET Socket.",
                    "Remove one of the two.",
                )
    if net is not None and named == "ib" and _number(variables, "NCCL_IB_DISABLE") == 1:
        yield _warning(
            net,
            Code.CONTRADICTORY_VARIABLES,
            "contradicts NCCL_IB_DISABLE 1: no network is left.",
            "Remove one of the two.",
        )
    if net is not None and plugin is not None and plugin.value == "none" and named not in ("", "ib", "socket"):
        message = f"{quoted(net.value)} is a plugin's network, and NCCL_NET_PLUGIN none loads no plugin."
        yield _warning(net, Code.CONTRADICTORY_VARIABLES, message, "Remove NCCL_NET_PLUGIN.")
    if _number(variables, "NCCL_COLLNET_ENABLE") == 1 and plugin is not None and plugin.value == "none":
        message = "in-network reduction comes from a plugin, and NCCL_NET_PLUGIN none loads none."
        yield _warning(
            variables["NCCL_COLLNET_ENABLE"], Code.CONTRADICTORY_VARIABLES, message, "Remove one of the two."
        )
    if _number(variables, "NCCL_MNNVL_ENABLE") == 1 and _number(variables, "NCCL_CUMEM_ENABLE") == 0:
        message = "NVLink between nodes needs memory from cuMem, which NCCL_CUMEM_ENABLE 0 switches off."
        yield _warning(
            variables["NCCL_MNNVL_ENABLE"], Code.CONTRADICTORY_VARIABLES, message, "Remove NCCL_CUMEM_ENABLE."
        )


def _number(variables: Variables, name: str) -> int | None:
    value = variables[name].value if name in variables else None
    return int(value) if value is not None and re.fullmatch(r"\d{1,9}", value) else None


def _warning(variable: Variable, code: Code, message: str, fix: str) -> Finding:
    return warning(variable.path, code, variable.said(message), fix)
