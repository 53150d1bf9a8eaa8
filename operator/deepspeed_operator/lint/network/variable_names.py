"""Names of variables: unknown, misspelt, given up, of another library, or set twice."""

import re
from collections.abc import Iterator
from typing import Final

from deepspeed_operator.api.finding import Code, advice, error, warning
from deepspeed_operator.api.names import ENV_PREFIX
from deepspeed_operator.api.spec import DeepSpeedJobSpec
from deepspeed_operator.api.status import Finding
from deepspeed_operator.dsconfig.nearest import NearNames
from deepspeed_operator.dsconfig.wording import quoted
from deepspeed_operator.job.accelerators import Library
from deepspeed_operator.job.fabric.profile import Profile
from deepspeed_operator.lint.network.variables import OF_OTHERS, PREFIX, REPLACED, Variable, nearest, newer, table

# The NCCL of the oldest PyTorch (2.6) that images of today have.
_COMMON_NCCL: Final = "2.21"


def name_findings(
    spec: DeepSpeedJobSpec, variables: dict[str, Variable], fabric: Profile, library: Library | None
) -> Iterator[Finding]:
    """Yield errors about names that no container can have, warnings and advice about the others."""
    yield from _env(spec, variables)
    yield from _names(variables, library)
    yield from _kept(fabric, variables)


def _env(spec: DeepSpeedJobSpec, variables: dict[str, Variable]) -> Iterator[Finding]:
    """What stands in spec.network.env and cannot, or does not, come to the container."""
    network = spec.network
    for name, value in network.env.items() if network is not None else ():
        path, used = f"spec.network.env.{name}", variables[name]
        if name.startswith(ENV_PREFIX) or not re.fullmatch(r"[-._a-zA-Z][-._a-zA-Z0-9]*", name):
            yield error(
                f"spec.network.env[{quoted(name)}]",
                Code.INVALID_VARIABLE,
                "no name for a variable here.",
                "Choose another.",
            )
        elif used.path != path and used.value != value:
            yield warning(
                path,
                Code.OVERRIDDEN_VARIABLE,
                f"{used.path} sets another value, which is used.",
                "Keep one of the two.",
            )
    interface = network.interface if network is not None else None
    named = variables.get("NCCL_SOCKET_IFNAME")
    if interface is not None and named is not None and named.value not in (interface, f"={interface}"):
        message = f"NCCL takes {quoted(named.value)} instead, from {named.path}."
        yield warning("spec.network.interface", Code.OVERRIDDEN_VARIABLE, message, "Keep one of the two.")


def _names(variables: dict[str, Variable], library: Library | None) -> Iterator[Finding]:
    searches = NearNames()
    for variable in variables.values():
        name = variable.name
        if name.startswith(OF_OTHERS) or name in REPLACED or name in table():
            if name.startswith(PREFIX) and not name.startswith(OF_OTHERS):
                yield from _known(variable, library)
        elif name.startswith(PREFIX):
            # RCCL reads variables of its own under this prefix.
            if library is None or library.name == "NCCL":
                near = nearest(name, searches)
                hint = f"; the nearest that exists is {near}" if near else ""
                fix = f"Write {near}, or remove it." if near else "Remove it."
                yield warning(
                    variable.path,
                    Code.UNKNOWN_VARIABLE,
                    variable.said(f"no release of NCCL reads this variable{hint}."),
                    fix,
                )
        elif re.match(r"[nN]\w{2,4}_", name) and (near := nearest(name, searches, cutoff=0.9)):
            message = variable.said(f"nothing reads this variable; {near} exists.")
            yield warning(variable.path, Code.UNKNOWN_VARIABLE, message, f"Write {near}.")


def _known(variable: Variable, library: Library | None) -> Iterator[Finding]:
    name = variable.name
    if library is not None and library.prefix != PREFIX:
        message = f"has no effect here: {library.name} carries the collectives, and reads {library.prefix}*."
        # Without any accelerator it is of use where the same file gets some, and here it harms nobody.
        kind = advice if library.name == "gloo" else warning
        yield kind(variable.path, Code.UNREAD_VARIABLE, variable.said(message), "Remove it.")
        return
    row = table().get(name)
    if name in REPLACED:
        instead = REPLACED[name]
        fix = f"Write {instead}." if instead else "Remove it: there is nothing in its place."
        who = "PyTorch" if instead and instead.startswith("TORCH_") else "NCCL"
        until = f": NCCL {row.until} is the last that reads it" if row is not None and row.until else ""
        yield warning(
            variable.path, Code.DEPRECATED_VARIABLE, variable.said(f"{who} has deprecated this name{until}."), fix
        )
    elif row is not None and row.until is not None:
        yield warning(
            variable.path,
            Code.DEPRECATED_VARIABLE,
            variable.said(f"NCCL {row.until} is the last that reads it."),
            "Remove it.",
        )
    elif row is not None and newer(row.since, _COMMON_NCCL):
        yield advice(
            variable.path,
            Code.NEW_VARIABLE,
            variable.said(f"NCCL reads it since {row.since}; an older one ignores it."),
        )
    elif row is not None and row.debug:
        message = "a setting for debugging, by NCCL's user guide; what NCCL chooses is mostly faster."
        yield advice(variable.path, Code.DEBUG_VARIABLE, variable.said(message), "Remove it once its reason is gone.")


def _kept(fabric: Profile, variables: dict[str, Variable]) -> Iterator[Finding]:
    """The user's values that hold in place of the profile's."""
    for name, value in fabric.environment.items():
        own = variables.get(name)
        if own is not None and own.value is not None and own.value != value:
            message = f"{quoted(own.value)} holds, in place of the profile's {quoted(value)}."
            yield advice(own.path, Code.PROFILE_OVERRIDDEN, own.said(message))
