"""Which rank of a gang that hangs is behind the others, by where each of them stands."""

from __future__ import annotations

from typing import Any, Callable, Mapping, NamedTuple, Sequence

UNKNOWN = "an unknown place"
_STOPPED = {"T": "is stopped (state T)", "t": "is held by a debugger (state t)"}


class Standing:
    """One rank, as dso_evidence.py finds it. `index` is that of its pod."""

    __slots__ = ("collective", "index", "kernel", "load", "rank", "state", "step", "where")

    def __init__(self, index: int, rank: Mapping[str, Any]) -> None:
        self.index = index
        self.rank: int = rank["rank"]
        self.step: int | None = rank["step"]  # None before the first
        self.state: str = rank["state"]
        self.kernel: str = rank["kernel"]  # where in the kernel it waits
        self.where: str = rank["where"]  # the file, line and function, or the collective; empty where nobody knows
        self.collective: bool = rank["collective"]
        self.load: str = rank["load"]  # as dso_progressranks has it

    @property
    def frozen(self) -> bool:
        """Whether it is stopped, or sleeps in the kernel; one that has told its stack does not."""
        return self.state in _STOPPED or (self.state == "D" and not self.where)

    @property
    def spot(self) -> str:
        return self.where or UNKNOWN

    def words(self) -> str:
        if self.state in _STOPPED:
            return _STOPPED[self.state]
        if self.frozen:
            kernel = f", in {self.kernel} of the kernel" if self.kernel else ""
            return f"is in uninterruptible sleep (state D{kernel})"
        return f"is in {self.spot}"


class Laggard(NamedTuple):
    """`rank` of who is behind, and `pod`, the index of its pod; None where that is not certain."""

    words: str
    rank: int | None = None
    pod: int | None = None


def behind(ranks: Sequence[Standing]) -> Laggard:
    """Of several who are behind, the first by its rank is named."""
    if not ranks:
        return Laggard("the agents could not see where the ranks are")
    if len(ranks) == 1:
        only = ranks[0]
        return Laggard(f"rank {only.rank} {only.words()}", only.rank, only.index)
    lowest = min((each.step or 0) for each in ranks)
    waits = any(each.collective for each in ranks)
    tests: Sequence[Callable[[Standing], bool]] = (
        lambda each: each.frozen,
        lambda each: (each.step or 0) == lowest,
        lambda each: waits and not each.collective,
    )
    for test in tests:
        late = [each for each in ranks if test(each)]
        if late and len(late) < len(ranks):
            return _named(late, ranks)
    return _uncertain(ranks)


def loads_apart(ranks: Sequence[Standing]) -> str:
    """Who has found no checkpoint to load where others have, before any step; empty where nobody has.

    At ZeRO stage 3 those that load wait for the others, which are past it.
    """
    none = [each.rank for each in ranks if each.load == "none"]
    others = [each.rank for each in ranks if each.load in ("loads", "found")]
    if not (none and others) or any(each.step is not None for each in ranks):
        return ""
    load = "loads" if len(others) == 1 else "load"
    return f"; {_who(none)} found no checkpoint to load, where {_who(others)} {load} one"


def _named(late: Sequence[Standing], ranks: Sequence[Standing]) -> Laggard:
    first = min(late, key=lambda each: each.rank)
    others = [each for each in ranks if each not in late]
    more = [each.rank for each in late if each is not first]
    also = f" ({_numbers(more)} behind, too)" if more else ""
    steps = {each.step for each in others}
    step = ""
    if first.step not in steps:
        step = f" after step {first.step}" if first.step is not None else " before its first step"
    words = f"rank {first.rank} {first.words()}{step}{also}, {_of_others(others)}"
    return Laggard(words, first.rank, first.index)


def _uncertain(ranks: Sequence[Standing]) -> Laggard:
    spots = _counted(ranks)
    if len(spots) == 1:
        where = spots[0][0]
        if ranks[0].collective:
            return Laggard(f"all ranks are in {where}: a connection between them hangs, or a GPU")
        return Laggard(f"all ranks are in {where}")
    rare, count = spots[-1]
    first = next(each for each in ranks if each.spot == rare)
    if 2 * count < len(ranks):
        others = [each for each in ranks if each.spot != rare]
        return Laggard(f"perhaps rank {first.rank} is behind: it {first.words()}, {_of_others(others)}")
    return Laggard(f"it is not certain which rank is behind: {_listed(spots)}")


def _of_others(others: Sequence[Standing]) -> str:
    who = f"rank {others[0].rank}" if len(others) == 1 else "the others"
    return f"{who} in {_listed(_counted(others))}"


def _counted(ranks: Sequence[Standing]) -> list[tuple[str, int]]:
    """Where they stand, and how many there; the most first."""
    spots = [each.spot for each in ranks]
    return sorted(((spot, spots.count(spot)) for spot in dict.fromkeys(spots)), key=lambda each: -each[1])


def _listed(spots: Sequence[tuple[str, int]]) -> str:
    if len(spots) == 1:
        return spots[0][0]
    shown = ", ".join(f"{spot} ({count})" for spot, count in spots[:3])
    return shown + (", …" if len(spots) > 3 else "")


def _numbers(ranks: Sequence[int]) -> str:
    return f"{_who(ranks)} {'is' if len(ranks) == 1 else 'are'}"


def _who(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {_first(ranks)}"


def _first(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, sorted(ranks)[:6]))
    return shown + (f" and {len(ranks) - 6} more" if len(ranks) > 6 else "")
