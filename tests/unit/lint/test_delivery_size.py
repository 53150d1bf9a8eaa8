"""What no ConfigMap holds is refused, by the path of what is largest."""

from base64 import b64encode
from dataclasses import replace
from typing import Any

from deepspeed_operator.api.status import Finding
from deepspeed_operator.job.installation import AGENT_ROOM
from deepspeed_operator.lint.delivery_size import CONFIG_MAP_LIMIT, delivery_findings
from tests.unit.render.test_attempt import attempt_of


def findings(**job: Any) -> list[Finding]:
    attempt = attempt_of(**job)
    return delivery_findings(attempt.job.spec, attempt.config_map())


def test_content_that_no_config_map_holds_is_refused() -> None:
    assert findings(config_text="x" * 1_000_000) == []
    (finding,) = findings(config_text="ü" * 600_000, dsConfigFrom={"configMap": "a"})
    assert finding.path == "spec.dsConfigFrom"
    assert "1,048,576" in finding.message
    (finding,) = findings(training={"script": "a", "args": ["x" * 4096] * 300})
    assert finding.path == "spec.training.args"


def test_sizes_are_counted_as_the_api_server_counts_them() -> None:
    """It counts the bytes of binaryData, not the base64 that stands for them."""
    agent = b64encode(bytes(AGENT_ROOM)).decode()
    attempt = attempt_of(config_text="")
    made = replace(attempt, installation=replace(attempt.installation, agent=agent)).config_map()
    left = CONFIG_MAP_LIMIT - AGENT_ROOM - sum(len(text.encode()) for text in made["data"].values())
    for more, found in ((0, 0), (1, 1)):
        made["data"]["ds_config.json"] = "x" * (left + more)
        assert len(delivery_findings(attempt.job.spec, made)) == found
