"""The CRD's rules across fields (CEL), as Python says them. A test holds that none of them is missing here."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from deepspeed_operator.api.elastic import MIN_NODES_AT_MOST_NODES
from deepspeed_operator.api.failure_policy import FENCE_SECONDS, FORCE_AFTER_FENCE
from deepspeed_operator.api.finding import Code, error
from deepspeed_operator.api.job import NAME_RULE
from deepspeed_operator.api.lifecycle import (
    HEAD_NEEDS_PEERS,
    PARTIAL_GANG_WITHIN_STARTUP,
    Lifecycle,
    SuccessPolicy,
)
from deepspeed_operator.api.names import NAME_MAX_LENGTH, NAME_PATTERN
from deepspeed_operator.api.network import MINIMUM_NEEDS_PREFLIGHT, REQUIRE_NEEDS_FABRIC, NetworkProfile, Preflight
from deepspeed_operator.api.spec import (
    EXACTLY_ONE_PROGRAM,
    LAUNCHER_NEEDS_PYTHON,
    LAUNCHER_NONE_NEEDS_COMMAND,
    ONE_CONFIG_SOURCE,
    Launcher,
)
from deepspeed_operator.api.status import Finding
from deepspeed_operator.api.untyped import object_at

Object = Mapping[str, Any]
_ANY_FABRIC: Final = (NetworkProfile.AUTO, NetworkProfile.TCP)
_GENERATED: Final = "xxxxx"  # what the API server appends to metadata.generateName is as long


def _name_fits(job: Object) -> bool:
    metadata = object_at(job, "metadata")
    name: object = metadata.get("name") or f"{metadata.get('generateName') or ''}{_GENERATED}"
    return isinstance(name, str) and len(name) <= NAME_MAX_LENGTH and re.search(NAME_PATTERN, name) is not None


def _one_program(training: Object) -> bool:
    return sum(training.get(program) is not None for program in ("script", "module", "command")) == 1


def _has_command_or_ranks(training: Object) -> bool:
    return training.get("launcher") != Launcher.NONE or training.get("command") is not None


def _launcher_starts_python(training: Object) -> bool:
    return training.get("launcher") not in {Launcher.DEEPSPEED, Launcher.TORCHRUN} or training.get("command") is None


def _one_config_source(spec: Object) -> bool:
    return spec.get("dsConfig") is None or spec.get("dsConfigFrom") is None


def _requires_a_fabric(network: Object) -> bool:
    return network.get("require") is not True or network.get("profile") not in {None, *_ANY_FABRIC}


def _measures_its_minimum(network: Object) -> bool:
    return network.get("minimumBusBandwidth") is None or network.get("preflight") == Preflight.BANDWIDTH


def _head_has_peers(spec: Object) -> bool:
    nodes = spec.get("nodes", 1)
    return spec.get("successPolicy") != SuccessPolicy.HEAD or not isinstance(nodes, int) or nodes > 1


def _goes_on_with_no_more(spec: Object) -> bool:
    nodes, fewest = spec.get("nodes", 1), object_at(spec, "elastic").get("minNodes")
    return not (isinstance(nodes, int) and isinstance(fewest, int)) or fewest <= nodes


def _gives_back_within_startup(lifecycle: Object) -> bool:
    partial, startup = lifecycle.get("partialGangDeadlineSeconds"), lifecycle.get("startupDeadlineSeconds")
    startup = Lifecycle().startup_deadline_seconds if startup is None else startup
    return not (isinstance(partial, int) and isinstance(startup, int)) or partial < startup


def _forces_after_the_fence(node_loss: Object) -> bool:
    seconds = node_loss.get("forceDeleteAfterSeconds")
    return not isinstance(seconds, int) or seconds == -1 or seconds >= FENCE_SECONDS


HOLDS: Final[Mapping[str, Callable[[Object], bool]]] = {
    NAME_RULE.rule: _name_fits,
    EXACTLY_ONE_PROGRAM.rule: _one_program,
    LAUNCHER_NONE_NEEDS_COMMAND.rule: _has_command_or_ranks,
    LAUNCHER_NEEDS_PYTHON.rule: _launcher_starts_python,
    ONE_CONFIG_SOURCE.rule: _one_config_source,
    REQUIRE_NEEDS_FABRIC.rule: _requires_a_fabric,
    MINIMUM_NEEDS_PREFLIGHT.rule: _measures_its_minimum,
    HEAD_NEEDS_PEERS.rule: _head_has_peers,
    MIN_NODES_AT_MOST_NODES.rule: _goes_on_with_no_more,
    PARTIAL_GANG_WITHIN_STARTUP.rule: _gives_back_within_startup,
    FORCE_AFTER_FENCE.rule: _forces_after_the_fence,
}


def is_transition(rule: str) -> bool:
    """Whether the rule compares with the stored object, which a file knows nothing of."""
    return "oldSelf" in rule


def broken_rules(value: Object, schema: Object) -> Iterator[Finding]:
    """Yield the rules of this schema that the value breaks, in the rules' own words."""
    for validation in schema.get("x-kubernetes-validations", ()):
        rule = validation["rule"]
        if not is_transition(rule) and not HOLDS[rule](value):
            path, _, message = validation["message"].partition(": ")
            yield error(path, Code.INVALID_COMBINATION, message)
