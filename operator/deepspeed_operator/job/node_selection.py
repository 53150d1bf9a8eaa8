"""Nodes that a pod may land on, as far as labels decide it: its node selector and its required node affinity."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from deepspeed_operator.api.untyped import Json, list_at, object_at, objects_at

INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
# The only field of a node that matchFields knows.
_NAME: Final = "metadata.name"


@dataclass(frozen=True, slots=True)
class LabelledNode:
    name: str
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Requirement:
    """A NodeSelectorRequirement."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":  # a node without the label has none of the values
                return value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                number, limit = _number(value), _number(self.values[0] if self.values else None)
                if number is None or limit is None:
                    return False
                return number > limit if self.operator == "Gt" else number < limit
            case _:
                return False


@dataclass(frozen=True, slots=True)
class NodeSelectorTerm:
    """A NodeSelectorTerm; an empty one matches no node."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    def holds(self, node: LabelledNode) -> bool:
        if not self.labels and not self.fields:
            return False
        field = {_NAME: node.name}
        return all(each.holds(node.labels) for each in self.labels) and all(each.holds(field) for each in self.fields)


@dataclass(frozen=True, slots=True)
class Demand:
    """What a template demands of a node: all of the selector, and one of the terms where there are any."""

    selector: tuple[Requirement, ...] = ()
    terms: tuple[NodeSelectorTerm, ...] | None = None

    def admits(self, node: LabelledNode) -> bool:
        selected = all(each.holds(node.labels) for each in self.selector)
        return selected and (self.terms is None or any(term.holds(node) for term in self.terms))

    def labels(self) -> Iterator[tuple[str, str]]:
        """Yield the labels that a node must have; where it may have one of several values, each of them."""
        for requirement in (*self.selector, *(each for term in self.terms or () for each in term.labels)):
            if requirement.operator == "In":
                yield from ((requirement.key, value) for value in requirement.values)


def demand_of(pod: Json) -> Demand:
    """Return what a pod of this spec demands of its node."""
    selector = object_at(pod, "nodeSelector").items()
    required = object_at(pod, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    terms = tuple(
        NodeSelectorTerm(_requirements(term, "matchExpressions"), _requirements(term, "matchFields"))
        for term in objects_at(required, "nodeSelectorTerms")
    )
    wanted = tuple(Requirement(label, "In", (str(value),)) for label, value in selector)
    return Demand(wanted, terms if required else None)


def _requirements(term: Json, kind: str) -> tuple[Requirement, ...]:
    return tuple(
        Requirement(str(each.get("key")), str(each.get("operator")), tuple(map(str, list_at(each, "values"))))
        for each in objects_at(term, kind)
    )


def _number(text: str | None) -> int | None:
    """Parse as the scheduler does: an integer of 64 bits."""
    digits = (text or "").removeprefix("-")
    return int(text or "") if digits.isascii() and digits.isdigit() and len(digits) < 19 else None
