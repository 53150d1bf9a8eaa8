"""Each row of the table of wrong results, shown by DeepSpeed itself: wrong in a version of the row, right in another.

The experiments are those of dev/versions/inside/wrong_results.py, which says what each result is.
"""

import json
from functools import cache
from typing import Any, NamedTuple

import pytest

from deepspeed_operator.dsconfig.versions import numbers_of
from deepspeed_operator.dsconfig.wrong_results import WRONG_RESULTS
from dev.versions import scripts

pytestmark = pytest.mark.timeout(900)
# What no experiment on CPUs shows: a pipeline.
UNSHOWN = {"gradients-divided-by-stages"}

Results = dict[str, Any]  # by version


class Proof(NamedTuple):
    """An experiment about the rows with this code, and what it comes to in wrong versions and in right ones."""

    code: str
    experiment: str
    wrong: Results
    right: Results


SGD = [1.0, 0.5, 0.25, 0.12]  # the singular values of the gradient itself
ORTHOGONAL = "orthogonal"  # all singular values are near 1, as Newton and Schulz's five steps make them
RISES = [0.0, 0.0, 0.25, 0.5, 0.75]
EACH, SCALED = [-0.25] * 4, [-0.0625] * 4
PROOFS = [
    Proof("first-learning-rate", "first-learning-rate", {"0.15.2": [1.0, 0.0]}, {"0.15.4": [0.0, 0.0]}),
    Proof("stale-parameters", "stale-parameters", {"0.17.6": 3.0}, {"0.18.9": 1.0}),
    Proof(
        "stairs-ignored",
        "stairs-ignored",
        {"0.19.2": [0.0, 0.25, 0.5, 0.75, 1.0]},
        {"0.19.5": [0.0, 0.0, 0.5, 0.5, 1.0]},
    ),
    Proof("all-reduce-fetch", "all-reduce-fetch", {"0.19.2": False}, {"0.19.5": True}),
    Proof("decay-never-begins", "decay-never-begins", {"0.15.4": [*RISES, 0.0, 0.0], "0.19.8": [*RISES, 0.0, 0.0]}, {}),
    Proof(
        "cosine-never-begins",
        "cosine-never-begins",
        {"0.19.2": [*RISES, "ZeroDivisionError"], "0.19.5": [*RISES, 0.01, 0.01]},
        {},
    ),
    Proof(
        "cosine-never-begins", "cosine-swings", {"0.18.9": [*RISES, 0.505, 0.01], "0.19.5": [*RISES, 0.01, 0.01]}, {}
    ),
    Proof(
        "gradients-lost",
        "gradients-lost",
        {"0.15.4": [-0.25, 0.0, 0.0, -0.25], "0.18.9": [-0.25, 0.0, 0.0, -0.25]},
        {"0.19.2": EACH},
    ),
    Proof("gradients-overwritten", "gradients-overwritten", {"0.17.6": [0.0, 0.0, 0.0, -0.25]}, {"0.18.3": EACH}),
    Proof(
        "gradients-not-cleared",
        "gradients-not-cleared",
        {"0.17.6": [[-1.0, 0.0, 0.0, 0.0], [-2.0, -1.0, 0.0, 0.0]]},
        {"0.18.9": [[-1.0, 0.0, 0.0, 0.0], [-1.0, -1.0, 0.0, 0.0]]},
    ),
    Proof("overflow-not-shared", "overflow-not-shared", {"0.17.6": [1, 0]}, {"0.18.9": [1, 1]}),
    Proof("unscaled-autocast", "unscaled-autocast", {"0.17.6": False}, {"0.18.9": True}),
    Proof("never-steps", "never-steps", {"0.17.6": [0.0] * 4}, {"0.18.9": [-1.0] * 4}),
    Proof("muon-is-sgd", "muon-stage-0", {"0.17.6": SGD, "0.19.6": SGD}, {"0.19.7": ORTHOGONAL}),
    Proof("muon-is-sgd", "muon-fp32-sums", {"0.18.9": SGD, "0.19.6": SGD}, {"0.19.7": "refused"}),
    Proof("muon-is-sgd", "muon-offloaded", {"0.18.9": SGD, "0.19.7": SGD}, {"0.19.8": ORTHOGONAL}),
    Proof("muon-scattered", "muon-scattered", {"0.19.2": [1.13, 0.88, 0.72, 0.53]}, {"0.19.5": ORTHOGONAL}),
    Proof("muon-each-micro-step", "muon-each-micro-step", {"0.19.7": [0.0] * 4}, {"0.19.8": ORTHOGONAL}),
    Proof("muon-first-learning-rate", "muon-first-learning-rate", {"0.18.9": [0.0, 0.3]}, {"0.19.2": [0.0, 0.0]}),
    Proof("muon-rates-ignored", "muon-rates-ignored", {"0.17.6": [0.1, 0.1]}, {"0.18.3": [0.2, 0.3]}),
    Proof("one-learning-rate", "one-learning-rate", {"0.19.2": [0.2, 0.2]}, {"0.19.5": [0.2, 0.3]}),
    Proof("learning-rates-overwritten", "learning-rates-overwritten", {"0.18.3": [0.9] * 2, "0.19.8": [0.9] * 2}, {}),
    Proof("gradients-divided-twice", "gradients-divided-twice", {"0.18.3": SCALED}, {"0.18.9": EACH}),
    Proof(
        "last-gradient-not-reduced",
        "last-gradient-not-reduced",
        {"0.18.9": [-0.75, -0.5, 0.0, 0.0]},
        {"0.19.2": [-0.75, -0.75, 0.0, 0.0]},
    ),
]
SHOWN = [(proof, version) for proof in PROOFS for version in {**proof.wrong, **proof.right}]


@cache
def results(version: str) -> Results:
    """All that is asked of one version, which is imported once."""
    names = [proof.experiment for proof, asked in SHOWN if asked == version]
    return dict(json.loads(line) for line in scripts.output(version, "wrong_results.py", *names).splitlines())


def matches(found: Any, expected: Any) -> bool:
    """In the table's words: a refusal, or the singular values of a matrix that is as good as orthogonal."""
    if expected == "refused":
        return "Muon cannot be used" in found
    return all(0.65 < each < 1.2 for each in found) if expected == ORTHOGONAL else found == expected


@pytest.mark.parametrize(("proof", "version"), SHOWN, ids=[f"{proof.experiment}-{version}" for proof, version in SHOWN])
def test_deepspeed_trains_wrongly_in_the_versions_of_a_row_only(proof: Proof, version: str) -> None:
    expected = {**proof.wrong, **proof.right}[version]
    found = results(version)[proof.experiment]
    assert matches(found, expected), (found, expected)
    rows = [row for row in WRONG_RESULTS if row.code == proof.code]
    numbers = numbers_of(version)
    assert numbers is not None
    assert rows
    if version in proof.wrong:
        assert any(row.in_version(numbers) for row in rows)
    elif proof.code != "muon-is-sgd":  # three rows that end at different versions
        assert not any(row.in_version(numbers) for row in rows)


def test_every_row_is_shown_or_known_not_to_be() -> None:
    assert {row.code for row in WRONG_RESULTS} == {proof.code for proof in PROOFS} | UNSHOWN
