"""What a plan takes from the configuration, as facts."""

from collections.abc import Iterator

from deepspeed_operator.dsconfig.batch import AUTO
from deepspeed_operator.dsconfig.setup import Setup
from deepspeed_operator.plan.model import Fact, Source
from deepspeed_operator.plan.precision import precision_of
from deepspeed_operator.plan.wrappers import optimizer_of


def configured(setup: Setup) -> Iterator[Fact]:
    """Yield precision, where no framework decides it, and optimizer: where none is configured, what is assumed."""
    if AUTO not in (setup.section(name).get("enabled") for name in ("bf16", "fp16")):
        yield Fact("precision", precision_of(setup).value, Source.DS_CONFIG)
    optimizer = optimizer_of(setup)
    yield Fact("optimizer", optimizer.name, Source.ASSUMED if optimizer.assumed else Source.DS_CONFIG)
