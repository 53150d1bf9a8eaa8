"""What of the network is to be checked in the pods: the transport against the profile's, the bandwidth."""

from typing import Final

from deepspeed_operator.api.network import NetworkProfile, Preflight
from deepspeed_operator.api.quantity import bytes_of
from deepspeed_operator.api.spec import DeepSpeedJobSpec
from deepspeed_operator.api.transport import TransportState
from deepspeed_operator.api.untyped import Json
from deepspeed_operator.job.fabric.profile import FabricTransport, chosen_profile, profile_of
from deepspeed_operator.job.fabric.wish import wish_of

# What the ranks use where the profile's fabric is missing: libraries fall back to it without a word. Any stands for a
# plugin, such as GKE's, whose name depends on its version.
_FALLBACKS: Final = {
    FabricTransport.ANY: (TransportState.SOCKET,),
    FabricTransport.RDMA: (TransportState.SOCKET,),
    FabricTransport.P2P: (TransportState.SHM, TransportState.SOCKET),
}


def fallbacks(spec: DeepSpeedJobSpec) -> tuple[TransportState, ...]:
    """Return the transports that show that the fabric which the job asks for is not used."""
    if chosen_profile(spec) is NetworkProfile.AUTO:
        return _FALLBACKS[FabricTransport.RDMA] if wish_of(spec) is not None else ()
    return _FALLBACKS.get(profile_of(spec).transport, ())


def asked_fabric(spec: DeepSpeedJobSpec) -> str:
    """Return what the job asks for, in words."""
    wish = wish_of(spec)
    return (
        f"the fabric of profile {chosen_profile(spec)}"
        if wish is None
        else f"{wish.fabric}, which {wish.variable} asks for"
    )


def required_fabric(spec: DeepSpeedJobSpec) -> Json | None:
    """Return what the agent ends the run for; None: for nothing."""
    if spec.network is None or not spec.network.require:
        return None
    return {"profile": spec.network.profile.value, "fallbacks": [each.value for each in fallbacks(spec)]}


def preflight_bandwidth(spec: DeepSpeedJobSpec) -> int | None:
    """Return the bus bandwidth in bytes a second below which the run fails, 0 to measure only, None for neither."""
    if spec.network is None or spec.network.preflight is not Preflight.BANDWIDTH:
        return None
    return bytes_of(spec.network.minimum_bus_bandwidth or 0)
