"""What deserves a word about a job's network."""

from deepspeed_operator.api.spec import DeepSpeedJobSpec
from deepspeed_operator.api.status import Finding
from deepspeed_operator.job.accelerators import Library
from deepspeed_operator.job.fabric.profile import profile_of
from deepspeed_operator.lint.network.fabric import fabric_findings
from deepspeed_operator.lint.network.interfaces import interface_findings
from deepspeed_operator.lint.network.traps import trap_findings
from deepspeed_operator.lint.network.variable_names import name_findings
from deepspeed_operator.lint.network.variables import PREFIX, variables_of


def network_findings(spec: DeepSpeedJobSpec, library: Library | None) -> list[Finding]:
    """Return warnings and advice about the network, and errors about names that cannot be used.

    `library` carries the collectives; None: which one is not known.
    """
    variables, fabric = variables_of(spec), profile_of(spec)
    nccl = library is None or library.prefix == PREFIX
    return [
        *name_findings(spec, variables, fabric, library),
        *interface_findings(variables, library, nodes=spec.nodes),
        *(trap_findings(variables) if nccl else ()),
        *fabric_findings(spec, fabric, variables, library),
    ]
