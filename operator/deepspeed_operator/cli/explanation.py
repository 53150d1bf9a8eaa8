"""What `--explain` adds: defaults that differ between DeepSpeed versions."""

from typing import Any

from deepspeed_operator.api.status import Finding
from deepspeed_operator.dsconfig.versions import SUPPORTED


def explained(config: dict[str, Any], version: str | None, where: str) -> list[Finding]:
    """Return what the configuration means in this version, or the newest, and did not mean in the oldest."""
    # The table of changes is large, and seldom asked for.
    from deepspeed_operator.dsconfig.migration import news  # noqa: PLC0415

    return news(config, None, version or SUPPORTED[-1], where)
