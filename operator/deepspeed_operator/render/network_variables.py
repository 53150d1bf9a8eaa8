"""Variables of the network: those that the user chose, and the profile's, which yield to any value that is there."""

from deepspeed_operator.api.spec import DeepSpeedJobSpec
from deepspeed_operator.api.untyped import Json
from deepspeed_operator.job.accelerators import Library
from deepspeed_operator.job.fabric.profile import profile_of
from deepspeed_operator.job.template import pod_template

_NCCL = "NCCL_"


def chosen_variables(spec: DeepSpeedJobSpec, library: Library | None) -> dict[str, str]:
    """Return what the container gets for spec.network's own words, where the template's env says nothing."""
    if spec.network is None:
        return {}
    ours = {**_interface_variables(spec.network.interface, library), **spec.network.env}
    declared = {variable.get("name") for variable in pod_template(spec).env}
    return {name: value for name, value in ours.items() if name not in declared}


def environment(spec: DeepSpeedJobSpec, library: Library | None) -> Json:
    """Return the variables of the profile: the agent sets those that the container has not, whoever set them."""
    nccl = library is None or library.prefix == _NCCL
    given = profile_of(spec).environment
    return {name: value for name, value in given.items() if nccl or not name.startswith(_NCCL)}


def _interface_variables(interface: str | None, library: Library | None) -> dict[str, str]:
    if interface is None:
        return {}
    # NCCL takes a plain name for a prefix; gloo and TensorPipe compare whole names.
    # Of devices that are not known, such as claimed ones, most are GPUs; other libraries do not read its variable.
    forms = {"NCCL_SOCKET_IFNAME": "={}"} if library is None else library.interface
    named = {name: form.format(interface) for name, form in forms.items()}
    return {
        **named,
        "GLOO_SOCKET_IFNAME": interface,
        "TP_SOCKET_IFNAME": interface,
    }
