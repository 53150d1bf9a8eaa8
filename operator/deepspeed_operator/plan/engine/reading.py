"""A configuration as the planner asks it."""

from collections.abc import Mapping
from typing import Any

from deepspeed_operator.dsconfig.parallelism import ParallelDegrees, divide
from deepspeed_operator.dsconfig.schema import schema_of
from deepspeed_operator.dsconfig.sections import Reading
from deepspeed_operator.dsconfig.setup import Setup


def setup_of(config: Mapping[str, Any], world: int, version: str, parallelism: ParallelDegrees | None = None) -> Setup:
    """Read a configuration that was judged before, as a supported version holds it."""
    schema = schema_of(version)
    reading = Reading(schema, config)
    division = divide(schema, config, world, parallelism or ParallelDegrees())
    return Setup(schema=schema, config=config, models=reading.models, division=division, world=world)
