"""What our agent costs beside DeepSpeed's launcher: the same script on two GPUs, started by either.

    python3 -m bench.gpu.launchers --output launchers.jsonl                     two GPUs, ≈ 400 s
    DS_ACCELERATOR=cpu python3 -m bench.gpu.launchers --output … --tiny         dry run on CPUs

First what 10,000 log lines a second from one rank cost, and a short run by DeepSpeed: a machine's first runs are
slower, so these are not compared, but tell by which variables the ranks' environments differ. Then throughput in
interleaved pairs, ≈ 65 s each, and with --causes runs in which one such variable is as under the other launcher. One
JSON line each; ends with 1 where a bar is missed (not in a dry run).
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

_ROOT: Final = Path(__file__).parents[2]
_SCRIPT: Final = Path(__file__).parent / "inside" / "launched.py"
_RANKS: Final = 2
_NOISE: Final = 10_000
_LEAST_RATIO: Final = 0.99
_MOST_NOISE: Final = 0.01
_OURS, _THEIRS = "dsjob run", "deepspeed"
_CONFIG: Final = {
    # Large enough for a step to wait for the GPU: the speed of a shared host's CPU changes by a fifth in seconds.
    "train_micro_batch_size_per_gpu": 16,
    "zero_optimization": {"stage": 1},
    # Not the fused one, which would be compiled first.
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-5, "torch_adam": True}},
    "bf16": {"enabled": True},
}


class Launchers:
    """Starts the script by one launcher or the other, and reads what it reports."""

    def __init__(self, directory: Path, *, tiny: bool) -> None:
        self._directory = directory
        self._tiny = tiny
        self._runs = 0

    def run(self, launcher: str, *arguments: str, **variables: str) -> tuple[Path, Path, float]:
        """Return the report's path, the log's, and the seconds that all took."""
        self._runs += 1
        report, log = (self._directory / f"{self._runs}.{kind}" for kind in ("json", "log"))
        arguments = ("--report", str(report), *arguments, *(["--tiny"] if self._tiny else []))
        command = self._ours(arguments) if launcher == _OURS else self._theirs(arguments)
        environment = {**os.environ, **variables}
        if self._tiny and launcher == _THEIRS:
            environment["LOCAL_SIZE"] = str(_RANKS)  # how many "GPUs" its launcher finds among CPUs
        begun = time.monotonic()
        with log.open("wb") as output:
            done = subprocess.run(
                command, env=environment, cwd=self._directory, stdout=output, stderr=output, timeout=180, check=False
            )
        if done.returncode:
            lines = log.read_text(errors="replace").splitlines()
            raise SystemExit("\n".join([*lines[-30:], f"{launcher} ended with {done.returncode}"]))
        return report, log, time.monotonic() - begun

    def _ours(self, arguments: tuple[str, ...]) -> list[str]:
        job = {
            "apiVersion": "deepspeed-operator.dev/v1alpha1",
            "kind": "DeepSpeedJob",
            "metadata": {"name": "launched"},
            "spec": {
                "slotsPerNode": _RANKS,
                "training": {
                    "script": str(_SCRIPT),
                    "python": sys.executable,
                    "args": ["--config", "$(DEEPSPEED_CONFIG)", *arguments],
                },
                "dsConfig": _CONFIG,
            },
        }
        path = self._directory / f"{self._runs}.yaml"
        path.write_text(json.dumps(job))
        return [sys.executable, "-m", "deepspeed_operator.cli.main", "run", str(path)]

    def _theirs(self, arguments: tuple[str, ...]) -> list[str]:
        config = self._directory / "ds_config.json"
        config.write_text(json.dumps(_CONFIG))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        deepspeed = [sys.executable, "-m", "deepspeed.launcher.runner", "--num_gpus", str(_RANKS)]
        return [*deepspeed, "--master_port", str(port), str(_SCRIPT), "--config", str(config), *arguments]


def differences(reports: dict[str, Path]) -> dict[str, dict[str, list[str | None]]]:
    """Return the variables that were not the same in a run of each launcher, with every rank's value."""
    found: dict[str, list[dict[str, str]]] = {
        launcher: [json.loads(report.with_name(f"{report.name}.{rank}").read_text()) for rank in range(_RANKS)]
        for launcher, report in reports.items()
    }
    names = sorted({name for ranks in found.values() for rank in ranks for name in rank})
    values = {
        name: {launcher: [rank.get(name) for rank in ranks] for launcher, ranks in found.items()} for name in names
    }
    return {name: each for name, each in values.items() if each[_OURS] != each[_THEIRS]}


def pairs(launchers: Launchers, number: int, steps: int) -> Iterator[dict[str, Any]]:
    """Yield each pair of runs, the one and the other first in turns."""
    for pair in range(number):
        order = (_OURS, _THEIRS) if pair % 2 == 0 else (_THEIRS, _OURS)
        runs = {launcher: throughput(launchers, launcher, steps) for launcher in order}
        ratio = runs[_OURS]["samplesPerSecond"] / runs[_THEIRS]["samplesPerSecond"]
        yield {"pair": pair, "first": order[0], "ratio": ratio, "runs": runs}


def throughput(launchers: Launchers, launcher: str, steps: int, **variables: str) -> dict[str, Any]:
    """Return what a run of many steps reported."""
    report, _, took = launchers.run(launcher, "--steps", str(steps), **variables)
    said = json.loads(report.read_text())
    rate = said["samples"] * said["steps"] / said["seconds"]
    return {**said, "samplesPerSecond": rate, "wholeSeconds": round(took, 1)}


def causes(launchers: Launchers, steps: int, directory: Path) -> Iterator[dict[str, Any]]:
    """Yield runs with one variable as the other launcher has it: ours leaves alone what is set."""
    cpus = len(os.sched_getaffinity(0))
    debug = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET", "NCCL_DEBUG_FILE": str(directory / "nccl.%p")}
    for launcher, variables in (
        (_OURS, {"OMP_NUM_THREADS": str(cpus)}),
        (_OURS, {"NCCL_DEBUG": "VERSION"}),
        (_THEIRS, {"OMP_NUM_THREADS": str(cpus // _RANKS)}),
        (_THEIRS, debug),
        (_THEIRS, {"PYTHONFAULTHANDLER": "1"}),
    ):
        yield {"cause": variables, "launcher": launcher, **throughput(launchers, launcher, steps, **variables)}


def noise(report: Path, log: Path) -> dict[str, Any]:
    """Return what logging cost a step, as a share of it."""
    said = json.loads(report.read_text())
    with log.open("rb") as lines:
        printed = sum(b"noise ....." in line for line in lines)
    return {
        **said,
        "cost": said["noisy"] / said["quiet"] - 1,
        "lines": printed,
        "linesPerSecond": printed / said["loudSeconds"],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="JSON lines")
    parser.add_argument("--pairs", type=int, default=5, help="0 for the log lines only")
    parser.add_argument("--steps", type=int, default=50, help="timed steps of a run")
    parser.add_argument("--causes", action="store_true", help="runs with one variable changed besides")
    parser.add_argument("--tiny", action="store_true", help="a tiny model, for a dry run on CPUs")
    arguments = parser.parse_args()
    os.environ["PYTHONPATH"] = f"{_ROOT / 'operator'}:{os.environ.get('PYTHONPATH', '')}"
    with tempfile.TemporaryDirectory() as directory, arguments.output.open("a", encoding="utf-8") as output:

        def write(line: dict[str, Any]) -> None:
            output.write(json.dumps(line) + "\n")
            output.flush()

        launchers = Launchers(Path(directory), tiny=arguments.tiny)
        steps = max(arguments.steps // 4, 1)
        ours, log, _ = launchers.run(_OURS, "--steps", str(steps), "--noise", str(_NOISE))
        theirs, *_ = launchers.run(_THEIRS, "--steps", str(steps))
        noisy, differing = noise(ours, log), differences({_OURS: ours, _THEIRS: theirs})
        write({"noise": noisy})
        print(
            f"log lines: {noisy['linesPerSecond']:,.0f} a second from one rank; a step {noisy['quiet'] * 1000:.2f} ms "
            f"without, {noisy['noisy'] * 1000:.2f} ms with: {noisy['cost']:+.2%}"
        )
        write({"environment": differing})
        _print_differences(differing)
        ratios: list[float] = []
        for pair in pairs(launchers, arguments.pairs, arguments.steps):
            write(pair)
            ratios.append(pair["ratio"])
            rates = {name: round(run["samplesPerSecond"], 2) for name, run in pair["runs"].items()}
            print(f"pair {pair['pair']}, samples/s: {rates}, ratio {pair['ratio']:.4f}", flush=True)
        if arguments.causes:
            for cause in causes(launchers, arguments.steps, Path(directory)):
                write(cause)
                print(
                    f"{cause['launcher']} with {cause['cause']}: {cause['samplesPerSecond']:.2f} samples/s", flush=True
                )
    met = noisy["cost"] < _MOST_NOISE
    if ratios:
        ratio = statistics.median(ratios)
        met = met and ratio >= _LEAST_RATIO
        print(
            f"{_OURS} to {_THEIRS}: median ratio {ratio:.4f} of {len(ratios)}, {min(ratios):.4f} to {max(ratios):.4f}"
        )
    return 0 if met or arguments.tiny else 1


def _print_differences(found: dict[str, dict[str, list[str | None]]]) -> None:
    for name, values in found.items():
        shown = {
            launcher: "/".join("unset" if value is None else value for value in values[launcher]) for launcher in values
        }
        print(f"{name}: {shown[_OURS]} ({_OURS}), {shown[_THEIRS]} ({_THEIRS})", flush=True)


if __name__ == "__main__":
    sys.exit(main())
