"""The versions of DeepSpeed whose schema is known, and which of them judges another."""

import re
from dataclasses import dataclass
from typing import Final

SUPPORTED: Final = ("0.15.4", "0.16.9", "0.17.6", "0.18.9", "0.19.2", "0.19.5", "0.19.6", "0.19.7", "0.19.8")
_NUMBERS = re.compile(r"(\d+)\.(\d+)\.(\d+)")

Numbers = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Judge:
    """The version whose schema is used for a declared one; `remark` says so where they differ.

    `next_newer`: the other neighbour of a declared version that is between two known ones.
    """

    version: str
    remark: str = ""
    next_newer: str | None = None


def judge_of(declared: str) -> Judge | None:
    """Return the newest known version that is not newer than the declared one; the oldest for those before it."""
    numbers = numbers_of(declared)
    if numbers is None:
        return None
    older = [version for version in SUPPORTED if (numbers_of(version) or numbers) <= numbers]
    if not older:
        oldest = SUPPORTED[0]
        return Judge(oldest, f"DeepSpeed {declared} is older than every version known here; it is judged as {oldest}.")
    if numbers_of(older[-1]) == numbers:
        return Judge(older[-1])
    remark = f"DeepSpeed {declared} is not known here; it is judged as {older[-1]}, the next older one."
    newer = SUPPORTED[len(older) :]
    return Judge(older[-1], remark, newer[0] if newer else None)


def numbers_of(version: str) -> Numbers | None:
    match = _NUMBERS.match(version)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def ranges(versions: set[str]) -> str:
    """Write a set of versions in words, neighbours as a range: `0.15.4–0.19.2, 0.19.8`."""
    runs: list[list[str]] = []
    for index, version in enumerate(SUPPORTED):
        if version in versions:
            if runs and runs[-1][-1] == SUPPORTED[index - 1]:
                runs[-1].append(version)
            else:
                runs.append([version])
    return ", ".join(run[0] if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)
