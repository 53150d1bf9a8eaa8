"""Whether the ranks form the world that the job asks for: what each pod reports, and what the gang concludes."""

from __future__ import annotations

from typing import Any, Iterable, Mapping

from dso_launch import LaunchDocument

MOST_WORLDS, MOST_ENGINES, MOST_PODS = 8, 4, 5
Report = Mapping[str, Any]


def of_pod(reports: Iterable[Report]) -> dict[str, Any]:
    """What a member reports to the hub: the sizes of worlds that its pod's processes joined, and rank 0's engines.

    A size is certain where a launcher's rank joined it, or where DeepSpeed made an engine that trains in it. It is the
    pod's own where all ranks of every such world are here.
    """
    worlds: dict[int, bool] = {}
    ranks: dict[tuple[int, str], set[str]] = {}  # of each world
    engines: list[Any] = []
    for report in reports:
        size, engine = report.get("world"), report.get("engine")
        if isinstance(size, int) and (size in worlds or len(worlds) < MOST_WORLDS):
            worlds[size] = worlds.get(size, False) or report.get("certain") is True
            ranks.setdefault((size, str(report.get("group") or "")), set()).add(str(report.get("rank")))
        if isinstance(engine, dict) and engine not in engines and len(engines) < MOST_ENGINES:
            engines.append(engine)
    others = {size for (size, group), here in ranks.items() if not group or len(here) < size}
    return {"worlds": [[size, certain, size not in others] for size, certain in worlds.items()], "engines": engines}


class RanksWorld:
    """The gang's world in one round, of which the hub alone hears."""

    def __init__(self, launch: LaunchDocument) -> None:
        self.launch = launch
        self.size = launch.nodes * launch.slots
        self.pods: dict[int, dict[str, Any]] = {}

    def take(self, index: int, report: Any) -> None:
        try:
            worlds = [(int(size), bool(certain), bool(own)) for size, certain, own in report["worlds"][:MOST_WORLDS]]
            engines = [dict(engine) for engine in report["engines"][:MOST_ENGINES]]
        except (ValueError, LookupError, TypeError):
            return  # not an agent's
        self.pods[index] = {"worlds": worlds, "engines": engines}

    def planned(self, size: int, own: bool) -> bool:
        """Whether this is the size of the planned world, and not of one that a pod of several has by itself."""
        return size == self.size and (self.launch.nodes == 1 or not own)

    def mismatch(self) -> str:
        """What is certainly wrong with the worlds, so far: the next program of a script may form the right one.

        Where a group of the planned size was formed, other groups beside it are the program's own affair: helpers,
        evaluations, servers.
        """
        pods = sorted(self.pods.items())
        if self.launch.head_decides:
            return ""  # what the pods' programs are, and which of them train, is the head's affair
        if any(self.planned(size, own) for _, pod in pods for size, _, own in pod["worlds"]):
            return ""
        certain = {index: [(size, own) for size, sure, own in pod["worlds"] if sure] for index, pod in pods}
        formed = {index: worlds for index, worlds in certain.items() if worlds}
        trained = any(engine.get("optimizer") for _, pod in pods for engine in pod["engines"])
        # One pod's evaluation, whose training was not seen, is no other world.
        if not formed or not (trained or len(formed) == self.launch.nodes):
            return ""
        alone = [each for each in formed.values() if all(own or size <= self.launch.slots for size, own in each)]
        sizes = sorted({size for worlds in formed.values() for size, _ in worlds})
        numbers = ", ".join(str(size) for size in sizes)
        where = ", ".join(self.launch.pod_of(index) for index in list(formed)[:MOST_PODS])
        where += ", …" if len(formed) > MOST_PODS else ""
        apart = "; each trained alone" if len(alone) > 1 else ""
        across = f" across {self.launch.nodes} pods" if self.size in sizes else ""
        return f"the ranks formed worlds of {numbers} (in {where}{apart}); planned is one of {self.size}{across}"

    def unseen(self) -> str:
        """Why the world is not asserted, of a run that ended well; empty where it is."""
        worlds = [(size, own) for pod in list(self.pods.values()) for size, _, own in pod["worlds"]]
        if self.size == 1 or any(self.planned(size, own) for size, own in worlds):
            return ""
        if worlds:
            return "its processes formed other groups by themselves"
        return "no process was seen to join a group of torch.distributed"

    def summary(self, over: bool) -> dict[str, Any]:
        """For the operator: a note where the world is another one or, once the run is over, unknown; the engines."""
        engines: list[Any] = []
        for _, pod in sorted(self.pods.items()):
            engines += [engine for engine in pod["engines"] if engine not in engines]
        unseen = self.unseen() if over else ""
        note = self.mismatch() or (f"world not asserted: {unseen}" if unseen else "")
        return {"note": note or None, "engines": engines[:MOST_ENGINES]}
