"""The catalogue of reasons: complete, the agent's included, and printed in docs/failures.md."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from deepspeed_operator.api.reason_catalogue import BY_CONDITION, CATALOGUE
from deepspeed_operator.api.reason_entry import Entry
from deepspeed_operator.api.reasons import Reason
from tests.consoles import ROOT

PAGE = ROOT / "docs" / "failures.md"
AGENT = ROOT / "operator" / "deepspeed_operator" / "agent"
TABLE = re.compile(r"(?<=^<!-- reasons: )(\w+) -->\n(?:\|.*\n)*", re.MULTILINE)
# Words of the agent's source that look like a reason: phases, launchers, frameworks, NCCL's words and Python's.
NO_REASONS = {
    *("Pending", "Waiting", "Preflight", "Stopping", "Finished"),
    *("None", "Ranks", "DeepSpeed", "Torchrun", "Accelerate", "Lightning"),
    *("Init", "Plugin", "Socket", "Mixed", "Nodes", "Unknown", "NoDevFiles"),
    *("NoneType", "DummyOptim", "Python", "Traceback", "Head", "Fail", "Restart", "Auto"),
    *("FirstStep", "Step", "Evaluation", "Saving", "ChildFailedError"),
    *("KubeflowCallback", "Script", "DeepSpeedEngine", "DeepSpeedLog", "Trainer", "TrainerLog"),
    *("LightningBar", "ProgressBar", "Checkpoint", "Authorization"),
}
PATH = re.compile(r"\b(?:spec|status)\.\w+(?:\.\w+)*")


def test_each_reason_has_one_entry() -> None:
    assert Counter(reason for entries in BY_CONDITION.values() for reason in entries) == Counter(Reason)


@pytest.mark.parametrize("reason", Reason)
def test_a_remedy_says_how_to_run_again(reason: Reason) -> None:
    assert "{" not in CATALOGUE[reason].remedy_by("run again")


def test_the_page_documents_the_catalogue(pytestconfig: pytest.Config) -> None:
    tables = {str(condition or "Events"): entries for condition, entries in BY_CONDITION.items()}
    text = PAGE.read_text()
    assert sorted(TABLE.findall(text)) == sorted(tables)
    now = TABLE.sub(lambda mark: f"{mark[1]} -->\n{''.join(rows(tables[mark[1]]))}", text)
    if pytestconfig.getoption("update_golden"):
        PAGE.write_text(now)
    assert now == PAGE.read_text()


def rows(entries: dict[Reason, Entry]) -> Iterator[str]:
    yield "| reason | category | meaning | what to do |\n|---|---|---|---|\n"
    for reason, entry in entries.items():
        remedy = PATH.sub(r"`\g<0>`", entry.remedy_by("run again"))
        yield f"| `{reason}` | {entry.category or ''} | {entry.meaning} | {remedy} |\n"


def test_the_catalogue_has_each_reason_of_the_agent() -> None:
    words = {word for path in AGENT.glob("*.py") for word in camel_case(path)}
    assert {"RankFailed", "PodCheckFailed", "HostNotResolved", "AgentError", "Completed"} <= words
    assert words - NO_REASONS <= set(CATALOGUE)


def camel_case(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from re.findall(r"^(?:[A-Z][a-z]+)+$", node.value)
