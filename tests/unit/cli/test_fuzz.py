"""Whatever is in a file, dsjob says something about it, and never with a traceback."""

import random
from pathlib import Path

import pytest

from deepspeed_operator.cli.records import record
from deepspeed_operator.cli.report import InputFailure, Options
from deepspeed_operator.cli.show import failure_lines, report_lines, summary_line
from deepspeed_operator.cli.sources import PlacedError, content_of, source_of
from deepspeed_operator.cli.validate import reports_of

ROOT = Path(__file__).parents[3]
JSON = """{
  # hjson
  "train_batch_size": 32, "train_micro_batch_size_per_gpu": 4, // twice
  "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}, "sub_group_size": 1e9},
  optimizer: {type: "AdamW", "params": {"lr": "auto", 'betas': [0.9, 0.999]}}
}
"""
TEXTS = {
    "ds_config.json": JSON,
    "article.yaml": (ROOT / "examples/article.yaml").read_text(),
    "quickstart.yaml": (ROOT / "examples/quickstart.yaml").read_text(),
}
PIECES = [
    "{", "}", "[", "]", ":", ",", "\n", "\n  ", '"', "'", "#", "//", "/*", "'''", "|", "&a", "*a", "<<: *a", "---\n",
    "-", "\t", "\r", "\0", "\x1b", "\ud800", "é", "\\u12", "NaN", ".inf", "1e400", "9" * 400, "null", "true",
    '"true"', "x" * 5000, "spec: ",
    "kind: List", "apiVersion: v1", "template: {spec: 1}", "nodes: -1", '"stage": 3', "[" * 120, "? ", "!!int ",
]  # fmt: skip
DOCUMENTS = 700


def mutated(text: str, draw: random.Random) -> str:
    for _ in range(draw.randint(1, 6)):
        begin = draw.randrange(len(text) + 1)
        end = begin + draw.choice([0, 0, 1, 1, 5, 40])
        text = text[:begin] + draw.choice([*PIECES, "", text[end : end + 60]]) + text[end:]
    return text


@pytest.mark.parametrize("name", TEXTS)
def test_damaged_files(name: str) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    said = 0
    for _ in range(DOCUMENTS):
        source = source_of(name, mutated(TEXTS[name], draw).encode(errors="replace").decode())
        try:
            reports, failures = reports_of([content_of(source)], Options(nodes=2)), []
        except PlacedError as error:
            reports, failures = [], [InputFailure(name, error.message, error.fix, error.source, error.position)]
        lines = [line for report in reports for line in report_lines(report)]
        lines += [line for failure in failures for line in failure_lines(failure)]
        assert summary_line(reports, failures)
        assert record(reports, failures)["format"] == 1
        assert not any(character in line for line in lines for character in "\n\0")
        said += len(lines)
    assert said > DOCUMENTS
