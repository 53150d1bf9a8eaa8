"""Predict what `timing` measures, from `calibration` alone; to be committed before it is measured.

    python3 -m bench.gpu.predict > bench/gpu/results/predicted.jsonl

From a calibration by the table filled-calibration, what filled-timing measures.

One JSON line a configuration and fabric: seconds of a step as the calibration predicts them, and uncalibrated, from the
GPU's data sheet and a declared network. Then one for each advice at the recipe's global batch: the change that
`dsjob plan bench/gpu/recipe.yaml --apply` makes, its gain, and the name of the configuration that it makes.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from bench.gpu.configurations import Configuration, calibration, filled_timing, timing
from bench.gpu.expectations import RECIPE, VERSION, WORLD, lines, setup_and_model
from bench.gpu.fabrics import nodes
from deepspeed_operator.job.data_sheets import DEVICES
from deepspeed_operator.plan.advice.alternatives import Alternative, Circumstances, advise, plan_of
from deepspeed_operator.plan.advice.candidates import changed
from deepspeed_operator.plan.time.calibration import calibrated, fabrics
from deepspeed_operator.plan.time.costs import Costs, assumed
from deepspeed_operator.plan.time.links import Bandwidth, Links

_RESULTS: Final = Path(__file__).parent / "results"
# Bytes a second that a user would declare of these sockets.
_NETWORKS: Final = {"tcp1": 9e9, "tcp8": 10e9}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calibration", type=Path, default=_RESULTS / "calibration.jsonl")
    parser.add_argument("--gpu", choices=DEVICES, default="H200-141G")
    arguments = parser.parse_args()
    for line in predicted(lines(arguments.calibration.read_text("utf-8")), arguments.gpu):
        print(json.dumps(line))


def predicted(measured: list[dict[str, Any]], gpu: str) -> Iterator[dict[str, Any]]:
    """Yield what the lines of a calibration tell of everything that is timed, on GPUs of that name."""
    names = {each["name"] for each in measured if "name" in each}
    known = {each.name for each in calibration()}
    device, table = DEVICES[gpu], timing() if names <= known else filled_timing()
    for fabric in fabrics(measured):
        learned = calibrated(measured, fabric).costs
        links = Links(Bandwidth(device.interconnect), Bandwidth(_NETWORKS.get(fabric, 0.0)))
        for each in table:
            _, model = setup_and_model(each.record())
            guessed = assumed(model, device, links, tokens=each.sequence)
            seconds, uncalibrated = (_seconds(each, costs, nodes(fabric)) for costs in (learned, guessed))
            yield {"fabric": fabric, "name": each.name, "seconds": seconds, "uncalibrated": uncalibrated}
        for line in _advice(table, learned, nodes(fabric), device.memory):
            yield {"fabric": fabric, **line}


def _circumstances(configuration: Configuration, costs: Costs, nodes: int, capacity: int | None) -> Circumstances:
    _, model = setup_and_model(configuration.record())
    return Circumstances(model, WORLD, nodes, VERSION, costs, capacity)


def _seconds(configuration: Configuration, costs: Costs, nodes: int) -> float | None:
    around = _circumstances(configuration, costs, nodes, None)
    time = plan_of(configuration.ds_config(), configuration.micro, configuration.accumulation, around).time
    return round(time.seconds, 4) if time is not None else None


def _advice(table: tuple[Configuration, ...], costs: Costs, nodes: int, capacity: int) -> Iterator[dict[str, Any]]:
    """Yield what is advised instead of the recipe, where it is timed, at the same global batch, the best first."""
    recipe = next((each for each in table if each.name == RECIPE), None)
    if recipe is None:
        return
    around = _circumstances(recipe, costs, nodes, capacity)
    config = recipe.ds_config()
    now = plan_of(config, recipe.micro, recipe.accumulation, around)
    for number, each in enumerate(_at_the_same_batch(advise(config, now, around)), 1):
        made = changed(config, each.change)
        name = next((other.name for other in table if other.ds_config() == made), None)
        yield {"advice": number, "name": name, "change": dict(each.change.values), "gain": round(each.gain or 0, 4)}


def _at_the_same_batch(alternatives: list[Alternative]) -> Iterator[Alternative]:
    return (each for each in alternatives if not each.change.grows)


if __name__ == "__main__":
    main()
