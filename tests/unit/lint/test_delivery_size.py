"""What no ConfigMap holds is refused, by the path of what is largest."""

from typing import Any

from deepspeed_operator.api.status import Finding
from deepspeed_operator.lint.delivery_size import delivery_findings
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
