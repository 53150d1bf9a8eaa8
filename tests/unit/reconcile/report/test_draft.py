"""A draft says what the status says until it is told otherwise; of findings each source has its own."""

from typing import Final

from deepspeed_operator.api.status import MAX_FINDINGS, Finding, Level
from deepspeed_operator.reconcile.report.draft import Findings, FindingSource, StatusDraft
from tests.unit.reconcile.simulation import Simulation, job

NETWORK: Final = FindingSource(("NCCL ",), "spec.network")
ADVICE: Final = FindingSource(("Measured: ",), trails=True)


def finding(message: str, path: str = "spec.network") -> Finding:
    return Finding(level=Level.WARNING, path=path, message=message)


def test_a_draft_of_a_status_that_nobody_changes_is_that_status() -> None:
    status = Simulation(job()).train().job.status
    assert StatusDraft.of(status).written_over(status) == status


def test_a_source_replaces_its_own_findings_and_no_others() -> None:
    other, same_path, same_words = finding("x"), finding("y"), finding("NCCL z", "spec.model")
    findings = Findings([other, finding("NCCL old"), same_path, same_words])
    findings.replace(NETWORK, finding("NCCL new"))
    assert findings.kept == [finding("NCCL new"), other, same_path, same_words]
    findings.replace(NETWORK)
    assert findings.kept == [other, same_path, same_words]


def test_what_trails_comes_last_so_that_it_is_dropped_first() -> None:
    findings = Findings([finding(f"{number}") for number in range(MAX_FINDINGS)])
    findings.replace(ADVICE, finding("Measured: slow"))
    findings.replace(NETWORK, finding("NCCL x"))
    assert findings.kept[0] == finding("NCCL x")
    assert len(findings.kept) == MAX_FINDINGS
    assert finding("Measured: slow") not in findings.kept


def test_a_finding_that_was_written_is_no_news() -> None:
    findings = Findings([finding("NCCL old")])
    findings.replace(NETWORK, finding("NCCL new"))
    assert findings.had(NETWORK)
    assert findings.knew(finding("NCCL old"))
    assert not findings.knew(finding("NCCL new"))
