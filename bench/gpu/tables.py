"""Predicted against measured, as Markdown, from the JSON lines of bench/gpu/results and of the folders in it.

python -m bench.gpu.tables [--results bench/gpu/results] [--write docs/gpu.md]

Each folder is a machine, or a fabric, of its own: its rounds are never mixed with another's.
"""

import argparse
import itertools
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench.gpu import restart_tables, survival_tables, trainer_tables, verdicts
from bench.gpu.estimator import estimate
from bench.gpu.expectations import (
    RECIPE,
    SAVED,
    WORLD,
    expected_memory,
    expected_saved,
    expected_traffic,
    lines,
    parameters_of,
    setup_and_model,
    world_of,
)

_GIB: Final = 2**30
# torch.distributed's names of what the planner names by its own.
_NAMES: Final = {"all_gather_into_tensor": "all-gather", "reduce_scatter_tensor": "reduce-scatter"}
# As the planner names phases.
_PHASES: Final = {
    "init": "init",
    "forward": "forward",
    "backward": "backward",
    "step": "optimizer",
    "save": "checkpoint",
}
Record = Mapping[str, Any]


def memory(records: Iterable[Record]) -> Iterator[str]:
    """Each configuration's peak and its phase, what is outside the allocator, and DeepSpeed's own estimate."""
    yield from _head(
        "configuration",
        "measured GiB",
        "phase",
        "predicted GiB",
        "phase",
        "error",
        "reserved − peak",
        "outside",
        "ZeRO estimator",
    )
    errors: list[float] = []
    for record in records:
        if "error" in record:
            yield _row(record["name"], record["error"].splitlines()[0][:60])
            continue
        found = expected_memory(record)
        error = found.size / record["peak"] - 1
        errors.append(abs(error))
        _, model = setup_and_model(record)
        own = estimate(record, model, world_of(record))
        yield _row(
            _name(record),
            _gib(record["peak"]),
            record["phase"],
            _gib(found.size),
            next(short for short, name in _PHASES.items() if found.peak.name.value.startswith(name)),
            f"{error:+.1%}",
            _gib(record["reserved"] - record["peak"]),
            f"{_gib(record['outside'])} ({_gib(found.outside.size)})",
            f"{_gib(own)} ({own / record['peak'] - 1:+.0%})" if own is not None else "none",
        )
    yield from _worst("memory", errors)


def traffic(records: Iterable[Record]) -> Iterator[str]:
    """Payload of one step by collective, in parameters of 2 bytes, and how far the prediction is off."""
    yield from _head("configuration", "collective", "calls", "measured MB", "predicted MB", "error")
    errors: list[float] = []
    shown: set[str] = set()
    for record in (each for each in records if "traffic" in each):
        measured = payload_of(record)
        expected = expected_traffic(record, record.get("nodes", 1)).payload()
        for name in sorted({*measured, *expected}):
            calls, size = measured.get(name, (0, 0))
            error = expected.get(name, 0) / size - 1 if size else float("inf")
            errors.append(abs(error))
            sizes = (f"{each / 1e6:.1f}" for each in (size, expected.get(name, 0)))
            row = _row(_name(record), name, calls, *sizes, f"{error:+.2%}")
            # Another fabric changes nothing.
            if row not in shown:
                shown.add(row)
                yield row
    yield from _worst("payload", errors)


def saved(records: Iterable[Record]) -> Iterator[str]:
    """Parameters of narrow models, and bytes of a token that autograd saved of them, beside the planner's."""
    yield from _head("family", "parameters", "predicted", *(f"{usage}, bytes a token" for usage in SAVED))
    errors: list[float] = []
    for record in records:
        expected = {usage: expected_saved(record, usage) for usage in SAVED}
        errors += [abs(expected[usage] / record[usage] - 1) for usage in SAVED]
        sizes = (f"{record[usage]} ({expected[usage] / record[usage] - 1:+.1%})" for usage in SAVED)
        yield _row(record["name"], record["parameters"], parameters_of(record), *sizes)
    yield from _worst("bytes of a token", errors)


def _name(record: Record) -> str:
    world = world_of(record)
    return record["name"] + ("" if world == WORLD else ", one rank" if world == 1 else f", {world} ranks")


def payload_of(record: Record) -> dict[str, tuple[int, int]]:
    """Calls and bytes of a step by collective, as the planner names them."""
    found: dict[str, tuple[int, int]] = {}
    for each in record["traffic"]:
        name = str(each["collective"])
        name = _NAMES.get(name, name.replace("_", "-"))
        calls, size = found.get(name, (0, 0))
        found[name] = calls + each["calls"], size + each["bytes"]
    return found


def pooled(records: Iterable[Record]) -> list[dict[str, Any]]:
    """One record a fabric and configuration, of all rounds: `runs` are their medians."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for record in (each for each in records if "name" in each):
        one = found.setdefault((record["fabric"], record["name"]), {**record, "step_seconds": [], "runs": []})
        if "median" in record:
            one["step_seconds"] += record["step_seconds"]
            one["runs"].append(record["median"])
            one["median"] = statistics.median(one["step_seconds"])
            one["samples_per_second"] = record["samples_per_second"] * record["median"] / one["median"]
    return list(found.values())


def timing(records: Sequence[Record], predicted: Iterable[Record]) -> Iterator[str]:
    """Step times against what was committed before, fabric by fabric."""
    expected = {(each["fabric"], each["name"]): each for each in predicted if "seconds" in each}
    for fabric in dict.fromkeys(record["fabric"] for record in records):
        mine = [each for each in records if each["fabric"] == fabric and (fabric, each["name"]) in expected]
        yield from ("", f"**{fabric}**", "")
        yield from _head(
            "configuration", "step s (median)", "all s", "samples/s", "predicted s", "error", "uncalibrated s"
        )
        times: list[tuple[str, float, float]] = []
        for record in mine:
            if "median" not in record:
                yield _row(record["name"], str(record.get("failed", record.get("error")))[:60])
                continue
            seconds, assumed = (expected[fabric, record["name"]][kind] for kind in ("seconds", "uncalibrated"))
            times.append((record["name"], record["median"], seconds))
            yield _row(
                record["name"],
                f"{record['median']:.3f}",
                " ".join(f"{each:.3f}" for each in record["step_seconds"]),
                f"{record['samples_per_second']:.2f}",
                f"{seconds:.3f}",
                f"{seconds / record['median'] - 1:+.1%}",
                f"{assumed:.3f} ({assumed / record['median'] - 1:+.0%})",
            )
        yield from _worst("step time", [abs(after / before - 1) for _, before, after in times])
        yield from _order(times)


def _order(times: Sequence[tuple[str, float, float]]) -> Iterator[str]:
    """Whether of two that were measured more than 10 % apart the faster one was predicted to be."""
    pairs = [sorted(pair, key=lambda each: each[1]) for pair in itertools.combinations(times, 2)]
    apart = [(fast, slow) for fast, slow in pairs if slow[1] > 1.1 * fast[1]]
    wrong = [f"{fast[0]} before {slow[0]}" for fast, slow in apart if fast[2] >= slow[2]]
    yield f"Pairs more than 10 % apart: {len(apart)}, ordered right: {len(apart) - len(wrong)}."
    if wrong:
        yield f"Not foreseen: {', '.join(wrong)}."


def article(records: Sequence[Record]) -> Iterator[str]:
    """The claim: ZeRO-2 with accumulation against plain data parallelism, and what each of the two contributes."""
    yield from _head(
        "fabric", "stage 0, g 1", "stage 0, g 4", "stage 2, g 1", "stage 2, g 4", "0/1 → 2/4", "accumulation", "ZeRO"
    )
    for fabric in dict.fromkeys(record["fabric"] for record in records):
        speed = {
            each["name"]: each["samples_per_second"]
            for each in records
            if each["fabric"] == fabric and "median" in each
        }
        names = [f"large-s{stage}-g{accumulation}" for stage in (0, 2) for accumulation in (1, 4)]
        if not all(name in speed for name in names):
            continue
        plain, accumulated, _, both = (speed[name] for name in names)
        yield _row(
            fabric,
            *(f"{speed[name]:.2f}" for name in names),
            f"{both / plain - 1:+.0%}",
            f"{accumulated / plain - 1:+.0%}",
            f"{both / accumulated - 1:+.0%}",
        )
    yield ""
    yield "samples/s of both GPUs; accumulation: stage 0 with 4 against 1; ZeRO: stage 2 against stage 0, both with 4."


def recipe(records: Sequence[Record], predicted: Sequence[Record]) -> Iterator[str]:
    """The recipe against what was advised instead of it, by medians of each round."""
    yield from _head("fabric", "configuration", "advice", "rounds, s", "samples/s", "gain", "predicted", "error")
    measured = {(each["fabric"], each["name"]): each for each in records if "median" in each}
    for fabric in dict.fromkeys(record["fabric"] for record in records):
        before = measured.get((fabric, RECIPE))
        advised = [each for each in predicted if each["fabric"] == fabric and (fabric, each["name"]) in measured]
        if before is None:
            continue
        yield _row(fabric, RECIPE, "", _runs(before), f"{_rate(before):.2f}", "", "", "")
        for each in (each for each in advised if "advice" in each):
            after = measured[fabric, each["name"]]
            gain = _rate(after) / _rate(before)
            shown = (f"{_rate(after):.2f}", f"×{gain:.2f}", f"×{each['gain']:.2f}", f"{each['gain'] / gain - 1:+.1%}")
            yield _row(fabric, each["name"], each["advice"], _runs(after), *shown)


def _runs(record: Record) -> str:
    return " ".join(f"{each:.3f}" for each in record["runs"])


def _rate(record: Record) -> float:
    """Samples a second, by the median of the rounds."""
    return record["samples_per_second"] * record["median"] / statistics.median(record["runs"])


def _head(*names: str) -> Iterator[str]:
    yield _row(*names)
    yield _row(*("---" for _ in names))


def _row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _gib(size: float) -> str:
    return f"{size / _GIB:.2f}"


def _worst(what: str, errors: Sequence[float]) -> Iterator[str]:
    if errors:
        yield ""
        yield f"{len(errors)} × {what}: median error {statistics.median(errors):.1%}, worst {max(errors):.1%}."


def lines_of(folder: Path, name: str) -> list[dict[str, Any]]:
    """The objects of a folder's files of that kind: name.jsonl, name-2.jsonl, …"""
    paths = sorted(folder.glob(f"{name}*.jsonl"), key=lambda path: path.stem)
    return [each for path in paths for each in lines(path.read_text("utf-8"))]


def said_of(folder: Path, name: str) -> list[dict[str, Any]]:
    """The same, or where there are none, those of the folder above: another machine's on the same network."""
    return lines_of(folder, name) or lines_of(folder.parent, name)


def tables(folder: Path) -> Iterator[tuple[str, Iterator[str]]]:
    """Yield what a folder's lines fill."""
    timed, predicted = lines_of(folder, "timing"), said_of(folder, "predicted")
    rounds = pooled(timed)
    yield "memory", memory(lines_of(folder, "memory"))
    yield "traffic", traffic([*lines_of(folder, "traffic"), *lines_of(folder, "calibration"), *timed])
    yield "timing", timing(rounds, predicted)
    yield "article", article(rounds)
    yield "recipe", recipe(rounds, predicted)
    yield "engine", verdicts.table(lines_of(folder, "engine"))
    trained = [each for each in lines_of(folder, "trainer") if "mean" in each]
    yield "steps", _of_rows(_STEPS, trainer_tables.steps(trained, predicted))
    yield "stages", _of_rows(_STAGES, trainer_tables.stages(trained))
    yield "restarts", _of_rows(restart_tables.HEAD, restart_tables.rows(lines_of(folder, "restarts")))
    ended = lines_of(folder, "survival")
    yield "told", _of_rows(survival_tables.TOLD, survival_tables.told(ended))
    yield "hangs", _of_rows(survival_tables.HUNG, survival_tables.hung(ended))
    yield "progress", _of_rows(survival_tables.PROGRESS, survival_tables.progress(ended))
    yield "saved", saved(lines_of(folder, "saved"))


_STEPS: Final = ("configuration", "step s", "predicted s", "predicted now", "host's part s", "peak GiB", "predicted")
_STAGES: Final = ("its steps taken", "those of", "are told to take s", "measured s", "error")


def _of_rows(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    yield from _head(*names)
    for each in rows:
        yield _row(*each)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the tables between the marks of a document")
    arguments = parser.parse_args()
    found = tables_below(arguments.results)
    if arguments.write is not None:
        arguments.write.write_text(filled(arguments.write.read_text("utf-8"), found), "utf-8")
        return
    for name, table in found.items():
        print(f"## {name}", "", *table, "", sep="\n")


def tables_below(results: Path) -> dict[str, Iterator[str]]:
    """Return the lines of each table by its mark: that of a folder below begins with its path."""
    inner = sorted(each for each in results.rglob("*") if each.is_dir())
    return {
        (folder.relative_to(results) / name).as_posix(): table
        for folder in (results, *inner)
        for name, table in tables(folder)
    }


def filled(document: str, found: Mapping[str, Iterable[str]]) -> str:
    """Return the document with these tables between their marks, where it has them."""
    for name, table in found.items():
        before, mark, after = document.partition(f"<!-- {name} -->\n")
        if mark:
            text = "".join(f"{line}\n" for line in table)
            document = f"{before}{mark}{text}{after[after.index('<!-- end -->') :]}"
    return document


if __name__ == "__main__":
    main()
