"""What came of a fault: read from the journal of the ranks, and from status."""

from dataclasses import dataclass

from tests.e2e.kube import Job
from tests.survival.scene import Life, Line, Scene, by_life

RANKS = {0, 1}


@dataclass(frozen=True)
class Measured:
    """One row of the table. Seconds are after the fault; None where there was no other life of the ranks."""

    user: int
    infrastructure: int
    reasons: str
    outcome: str
    unintended: int  # lines of an earlier life after the first one of a later
    orphans: int
    lost: int  # results: the ranks had made their last step, and the job did not say so
    stopped: float | None  # the last line of the life that the fault ended
    executed: float | None  # all ranks of a later life run
    stepped: float | None  # and have made a step


def measured(scene: Scene, job: Job | None, fault_at: float) -> Measured:
    """`job` as it ended; None where it is gone."""
    lines = scene.lines()
    lives = by_life(lines)
    before = max((life for life, own in lives.items() if own[0].at < fault_at), default=(1, 1))
    executed, stepped = (_all_ranks(lives, before, kind) for kind in ("exec", "step"))
    ended = {line.rank for line in lines if line.what == "end"} == RANKS
    counts, reasons = _restarts(scene, job) if job is not None else ((0, 0), "")
    outcome = job.outcome or job.status.get("state", "") if job is not None else "gone"
    return Measured(
        *counts,
        reasons,
        outcome,
        _unintended(lives),
        len(scene.orphans()),
        int(job is not None and ended and outcome != "Complete"),
        max(line.at for line in lives[before]) - fault_at if executed is not None else None,
        executed - fault_at if executed is not None else None,
        stepped - fault_at if stepped is not None else None,
    )


def _all_ranks(lives: dict[Life, list[Line]], before: Life, kind: str) -> float | None:
    """Return when the first line of this kind was there of every rank of a later life; None if never."""
    for own in (own for life, own in lives.items() if life > before):
        firsts = {line.rank: line.at for line in reversed(own) if line.what.startswith(kind)}
        if set(firsts) == RANKS:
            return max(firsts.values())
    return None


def _unintended(lives: dict[Life, list[Line]]) -> int:
    found = 0
    for life, own in lives.items():
        begun = min((later[0].at for other, later in lives.items() if other > life), default=float("inf"))
        found += sum(line.at > begun for line in own)
    return found


def _restarts(scene: Scene, job: Job) -> tuple[tuple[int, int], str]:
    """Return how many counted for the user and the infrastructure, and the reasons that were told."""
    counted = [part for part in (job.run.get("restarts"), job.status.get("attempt", {}).get("restarts")) if part]
    user, infrastructure = (sum(each[budget] for each in counted) for budget in ("user", "infrastructure"))
    replaced = [each["reason"] for each in job.status.get("attempt", {}).get("replacements", [])]
    attempts = [each["reason"] for each in job.status.get("attempts", []) if each.get("reason")]
    in_place = [
        event["reason"]
        for event in scene.namespace.events(scene.name)
        if "started again in their pods" in event["message"]
    ]
    # Of a pod that was replaced the agents have their own words beside.
    return (user, infrastructure), ", ".join(dict.fromkeys(replaced or attempts or in_place))
