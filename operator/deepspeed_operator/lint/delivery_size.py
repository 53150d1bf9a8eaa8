"""Whether what every pod reads fits into one ConfigMap."""

from base64 import b64decode
from typing import Final

from deepspeed_operator.api.finding import Code, error
from deepspeed_operator.api.spec import DeepSpeedJobSpec
from deepspeed_operator.api.status import Finding
from deepspeed_operator.api.untyped import Json

CONFIG_MAP_LIMIT: Final = 1024 * 1024  # the API server's


def delivery_findings(spec: DeepSpeedJobSpec, config_map: Json) -> list[Finding]:
    """Refuse a job whose files do not fit into its ConfigMap, naming the largest one that the user can change."""
    data: dict[str, str] = {**config_map["data"], **config_map["binaryData"]}
    # As the API server counts: texts in UTF-8, and what stands in base64 as the bytes that it means.
    size = sum(len(text.encode()) for text in config_map["data"].values())
    size += sum(len(b64decode(text)) for text in config_map["binaryData"].values())
    if size <= CONFIG_MAP_LIMIT:
        return []
    largest = max(data, key=lambda name: len(data[name]))
    config = "spec.dsConfigFrom" if spec.ds_config_from else "spec.dsConfig"
    path = {"hostfile": "spec.nodes", "launch.json": "spec.training.args"}.get(largest, config)
    return [
        error(
            path,
            Code.TOO_LARGE,
            f"hostfile, configuration and agent need {size:,} bytes, {largest} most of them; "
            f"a ConfigMap holds {CONFIG_MAP_LIMIT:,}.",
            "Write less: a smaller configuration, shorter arguments, a shorter job name or fewer nodes.",
        )
    ]
