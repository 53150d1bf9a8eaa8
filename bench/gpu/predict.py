"""Predict what `timing` measures, from `calibration` alone; to be committed before it is measured.

    python3 -m bench.gpu.predict > bench/gpu/results/predicted.jsonl

One JSON line a configuration and fabric: seconds of a step as the calibration predicts them, and uncalibrated, from the
GPU's data sheet and a declared network.
"""

import argparse
import json
from pathlib import Path
from typing import Final

from bench.gpu.configurations import Configuration, timing
from bench.gpu.expectations import VERSION, WORLD, lines, setup_and_model
from deepspeed_operator.plan.advice import Circumstances, plan_of
from deepspeed_operator.plan.calibration import calibrated, fabrics
from deepspeed_operator.plan.costs import Costs, assumed
from deepspeed_operator.plan.devices import DEVICES
from deepspeed_operator.plan.links import Bandwidth, Links

_RESULTS: Final = Path(__file__).parent / "results"
_NETWORK: Final = 10e9  # what a user would declare of these sockets


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calibration", type=Path, default=_RESULTS / "calibration.jsonl")
    parser.add_argument("--gpu", choices=DEVICES, default="H200-141G")
    arguments = parser.parse_args()
    measured = lines(arguments.calibration.read_text("utf-8"))
    device = DEVICES[arguments.gpu]
    for fabric in fabrics(measured):
        nodes = 2 if fabric.startswith("tcp") else 1
        learned = calibrated(measured, fabric).costs
        for each in timing():
            _, model = setup_and_model(each.record())
            links = Links(Bandwidth(device.interconnect), Bandwidth(_NETWORK))
            guessed = assumed(model, device, links, tokens=each.sequence)
            seconds, uncalibrated = (_seconds(each, costs, nodes) for costs in (learned, guessed))
            line = {"fabric": fabric, "name": each.name, "seconds": seconds, "uncalibrated": uncalibrated}
            print(json.dumps(line))


def _seconds(configuration: Configuration, costs: Costs, nodes: int) -> float | None:
    _, model = setup_and_model(configuration.record())
    around = Circumstances(model, WORLD, nodes, VERSION, costs)
    time = plan_of(configuration.ds_config(), configuration.micro, configuration.accumulation, around).time
    return round(time.seconds, 4) if time is not None else None


if __name__ == "__main__":
    main()
