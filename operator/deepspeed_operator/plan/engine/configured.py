"""What a plan takes from the configuration, as facts."""

from collections.abc import Iterator

from deepspeed_operator.dsconfig.setup import Setup
from deepspeed_operator.job.precision import precision_of
from deepspeed_operator.job.provenance import Fact, Source
from deepspeed_operator.plan.engine.wrappers import optimizer_of


def configured(setup: Setup, precision: Source = Source.DS_CONFIG) -> Iterator[Fact]:
    """Yield precision, with who says it, and optimizer: where none is configured, what is assumed."""
    yield Fact("precision", precision_of(setup).value, precision)
    optimizer = optimizer_of(setup)
    yield Fact("optimizer", optimizer.name, Source.ASSUMED if optimizer.assumed else Source.DS_CONFIG)
