"""The identity of a configuration and of a template."""

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from deepspeed_operator.api.job import DeepSpeedJob


def config_digest(config: Mapping[str, Any]) -> str:
    """Return `sha256:…` of what the configuration says: key order, spaces and ways to write a number do not count."""
    canonical = json.dumps(config, sort_keys=True, separators=(",", ":"))
    return f"sha256:{sha256(canonical.encode()).hexdigest()}"


def short_digest(content: Mapping[str, Any]) -> str:
    """Return what is enough of a digest to see that something has changed."""
    return config_digest(content).removeprefix("sha256:")[:16]


def template_digest(job: DeepSpeedJob) -> str:
    """Return by what a pod is known to be made of spec.template as it is now, or not to be."""
    return short_digest(job.spec.template or {})
