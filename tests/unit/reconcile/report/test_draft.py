"""A draft says what the status says until it is told otherwise; findings are replaced by their codes."""

from deepspeed_operator.api.finding import Code, warning
from deepspeed_operator.api.status import MAX_FINDINGS, Finding
from deepspeed_operator.reconcile.report.draft import Findings, StatusDraft
from tests.unit.reconcile.simulation import Simulation, job

NETWORK = {Code.TRANSPORT_MISMATCH}
ADVICE = {Code.FASTER_MEASURED}


def finding(message: str, code: Code = Code.DEFAULT_VALUES) -> Finding:
    return warning("spec.network", code, message)


def of_network(message: str) -> Finding:
    return finding(message, Code.TRANSPORT_MISMATCH)


def test_a_draft_of_a_status_that_nobody_changes_is_that_status() -> None:
    status = Simulation(job()).train().job.status
    assert StatusDraft.of(status).written_over(status) == status


def test_findings_take_the_place_of_those_with_their_codes_and_no_others() -> None:
    other, engine = finding("x"), finding("y", Code.ENGINE_DIFFERS)
    findings = Findings([other, of_network("old"), engine])
    findings.replace(NETWORK, of_network("new"))
    assert findings.kept == [of_network("new"), other, engine]
    findings.replace(NETWORK)
    assert findings.kept == [other, engine]


def test_what_comes_last_is_dropped_first() -> None:
    slow = finding("slow", Code.FASTER_MEASURED)
    findings = Findings([finding(f"{number}") for number in range(MAX_FINDINGS)])
    findings.replace(ADVICE, slow, last=True)
    findings.replace(NETWORK, of_network("x"))
    assert findings.kept[0] == of_network("x")
    assert len(findings.kept) == MAX_FINDINGS
    assert slow not in findings.kept


def test_a_finding_that_was_written_is_no_news() -> None:
    findings = Findings([of_network("old")])
    findings.replace(NETWORK, of_network("new"))
    assert findings.had(Code.TRANSPORT_MISMATCH)
    assert findings.knew(of_network("old"))
    assert not findings.knew(of_network("new"))
