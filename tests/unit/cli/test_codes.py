"""`dsjob validate` shows the code of each finding, and leaves out by it what nobody wants to see."""

import json
from pathlib import Path

from tests.unit.cli.command import dsjob, findings

ARTICLE = Path(__file__).parents[3] / "examples/article.yaml"


def test_findings_are_shown_with_their_codes_and_can_be_ignored_by_them() -> None:
    shown = dsjob("validate", ARTICLE, "--accelerator", "cpu").stdout
    assert "\nadvice[default-values]: spec.dsConfig: " in shown
    assert "\nwarning[zero-stage]: spec.dsConfig.zero_optimization.offload_param: " in shown
    ignored = dsjob(
        "validate", ARTICLE, "--accelerator", "cpu", "--ignore", "default-values", "--ignore", "zero-stage"
    ).stdout
    assert "[default-values]" not in ignored
    assert "[zero-stage]" not in ignored
    assert ignored.endswith("\n1 configuration judged: 1 error, 2 warnings, 4 advice, 2 ignored\n")


def test_an_ignored_warning_is_none_with_strict(tmp_path: Path) -> None:
    path = tmp_path / "ds_config.json"
    path.write_text('{"train_micro_batch_size_per_gpu": 4, "comment": "ours"}')
    assert dsjob("validate", "--strict", path).exit_code == 1
    assert dsjob("validate", "--strict", "--ignore", "ignored-key", path).exit_code == 0
    printed = json.loads(dsjob("validate", "--ignore", "ignored-key", "-o", "json", path).stdout)
    assert printed["documents"][0]["findings"] == []
    assert printed["summary"] == {"error": 0, "warning": 0, "advice": 0, "ignored": 1, "unreadable": 0}


def test_an_error_cannot_be_ignored(tmp_path: Path) -> None:
    path = tmp_path / "ds_config.json"
    path.write_text('{"train_batch_size": 33, "train_micro_batch_size_per_gpu": 4}')
    assert [each["code"] for each in findings(path) if each["level"] == "error"] == ["batch-size"]
    ended = dsjob("validate", "--ignore", "batch-size", path)
    assert ended.exit_code == 1
    assert "error[batch-size]: " in ended.stdout
