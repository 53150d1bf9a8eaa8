"""Names of network interfaces: NCCL takes prefixes, exact names after = and exclusions after ^; gloo whole names."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from deepspeed_operator.api.finding import Code, advice, error, warning
from deepspeed_operator.api.status import Finding
from deepspeed_operator.dsconfig.wording import quoted
from deepspeed_operator.job.accelerators import Library
from deepspeed_operator.lint.network.variables import PREFIX, Variable

Variables = Mapping[str, Variable]

_LO: Final = "lo"
_NAME_ONE: Final = "Name the pods' interface, such as {}eth0, or write spec.network.interface."


def interface_findings(variables: Variables, library: Library | None, *, nodes: int) -> Iterator[Finding]:
    """Yield what is said of NCCL's variable and of gloo's, which a job on CPUs fails on.

    A job without accelerators reads gloo's only. But who sets NCCL's means GPUs, and takes the file with him.
    """
    nccl, gloo = variables.get("NCCL_SOCKET_IFNAME"), variables.get("GLOO_SOCKET_IFNAME")
    on_cpus = library is not None and library.name == "gloo"
    if nccl is not None and nccl.value and (library is None or on_cpus or library.prefix == PREFIX):
        yield from _of_nccl(nccl, nccl.value, nodes)
    if gloo is not None and gloo.value:
        yield from _of_gloo(gloo, gloo.value, nodes, certain=on_cpus)


def _of_nccl(variable: Variable, value: str, nodes: int) -> Iterator[Finding]:
    names = value.lstrip("^=").split(",")
    exact = value.lstrip("^").startswith("=")
    if value.startswith("^"):
        # NCCL's own choice leaves out lo and docker*; a list of the user's takes its place.
        left_out = any(name == _LO if exact else name and _LO.startswith(name) for name in names)
        if nodes > 1 and not left_out:
            message = f"{quoted(value)} lets loopback in, which reaches no other pod: a list must leave out lo, too."
            yield warning(variable.path, Code.LOOPBACK, variable.said(message), f"Write {value},{_LO}.")
        return
    # VLANs of a bond are called bond0.2093; of plain interfaces only the tenth and later begin like another.
    loose = [name for name in names if re.search(r"[1-9]$|^bond\d+$", name)]
    if loose and not exact:
        longer = f"{loose[0]}0" if not loose[0].startswith("bond") else f"{loose[0]}.100"
        message = f"{quoted(loose[0])} is a prefix: an interface {longer} is taken, too."
        fix = f"Write ={value}, or spec.network.interface: {loose[0]}."
        yield warning(variable.path, Code.NAME_PREFIX, variable.said(message), fix)
    if _LO in names and nodes > 1:
        yield _loopback(variable, "=")


def _of_gloo(variable: Variable, value: str, nodes: int, *, certain: bool) -> Iterator[Finding]:
    names = value.split(",")
    marked = [name for name in names if name.startswith(("^", "="))]
    if marked:
        message = f"{quoted(marked[0])} is no interface: gloo takes whole names, and ^ and = are NCCL's marks."
        kind = error if certain else warning
        yield kind(variable.path, Code.INTERFACE_NAME, variable.said(message), _NAME_ONE.format(""))
    elif _LO in names and nodes > 1:
        yield _loopback(variable, "")
    elif len(names) > 1:
        message = (
            f"gloo connects over each of these {len(names)}: every pod must have all, and reach the others by all."
        )
        yield advice(variable.path, Code.INTERFACE_NAME, variable.said(message), _NAME_ONE.format(""))


def _loopback(variable: Variable, mark: str) -> Finding:
    return warning(variable.path, Code.LOOPBACK, variable.said("lo reaches no other pod."), _NAME_ONE.format(mark))
