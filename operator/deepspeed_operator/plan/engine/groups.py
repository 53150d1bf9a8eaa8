"""Which ranks talk with each other, and how many of them share a node or its network.

Ranks are counted as DeepSpeed's topology does it: tensor-parallel ones are neighbours, then come sequence-parallel
ones, then data-parallel ones; pipeline stages are furthest apart. Nodes take ranks in that order.
"""

from dataclasses import dataclass

from deepspeed_operator.dsconfig.setup import ZERO, Setup, ZeroStage


@dataclass(frozen=True, slots=True)
class Group:
    """`nodes` are those that one group spans; `sharing` groups of the kind use the network of one node."""

    name: str
    ranks: int
    nodes: int = 1
    sharing: int = 1


@dataclass(frozen=True, slots=True)
class Groups:
    """`data` reduces gradients, `near` is the part of it in which hpZ keeps a whole copy of the parameters.

    `experts` divides a layer's experts, `replicas` reduces the gradients of those that its ranks all have.
    """

    data: Group
    near: Group
    tensor: Group
    sequence: Group
    pipeline: Group
    experts: Group
    replicas: Group


def groups_of(setup: Setup, slots: int | None = None) -> Groups:
    """Return the groups of a rank; `slots` ranks are on a node, all where it is not said."""
    division, slots = setup.division, slots or setup.world
    tensor, pipeline = division.tensor, division.pipeline
    # Where a script splits sequences, its ranks' gradients are summed over them, too.
    data = max(1, setup.world // (tensor * pipeline))
    expert = max(1, min(division.expert, data))
    # Experts' ranks are neighbours; the other way round, those that have the same ones are.
    apart, between = (data // expert, 1) if setup.plain("use_data_before_expert_parallelism") else (1, expert)
    near = int(setup.value(ZERO, "zero_hpz_partition_size") or 1) if setup.stage == ZeroStage.PARAMETERS else 1
    return Groups(
        data=_group("data-parallel", data, tensor, slots),
        near=_group("hpZ", min(near, data), tensor, slots),
        tensor=_group("tensor-parallel", tensor, 1, slots),
        sequence=_group("sequence-parallel", division.sequence, tensor, slots),
        pipeline=_group("pipeline", pipeline, tensor * data, slots),
        experts=_group("expert-parallel", expert, tensor * apart, slots),
        replicas=_group("expert-data-parallel", data // expert, tensor * between, slots),
    )


def _group(name: str, ranks: int, stride: int, slots: int) -> Group:
    here = min(ranks, max(1, slots // stride))
    nodes = -(-ranks // here)
    return Group(name, ranks, nodes, max(1, slots // here) if nodes > 1 else 1)
