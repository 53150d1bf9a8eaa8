"""Whether the Lease is still ours, judged by a clock that goes on while the process is stopped."""

import asyncio

import pytest

from deepspeed_operator.controller import leader
from deepspeed_operator.controller.leader import Leadership, NotLeadingError
from deepspeed_operator.controller.settings import LeaderSettings


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(leader, "steady", lambda: now[0])
    return now


def leadership(*, enabled: bool = True) -> Leadership:
    async def make() -> Leadership:
        return Leadership(LeaderSettings(enabled=enabled, renew_deadline=10), "system", "me")

    return asyncio.run(make())


def test_before_the_first_renewal_nothing_may_be_written(clock: list[float]) -> None:
    with pytest.raises(NotLeadingError):
        leadership().check()


def test_a_renewal_counts_from_when_it_was_sent(clock: list[float]) -> None:
    candidate = leadership()
    assert candidate.renewed(95.0)
    clock[0] = 105.0
    candidate.check()
    clock[0] = 105.1
    with pytest.raises(NotLeadingError):
        candidate.check()


def test_a_lapsed_lease_stays_lapsed_even_if_it_could_be_renewed(clock: list[float]) -> None:
    candidate = leadership()
    assert candidate.renewed(100.0)
    clock[0] = 300.0
    assert not candidate.renewed(299.0)
    assert not candidate.fresh()


def test_without_election_there_is_nothing_to_lose(clock: list[float]) -> None:
    leadership(enabled=False).check()
