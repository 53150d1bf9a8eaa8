"""Whether a live object is what we want."""

import pytest

from deepspeed_operator.controller.contents import contains, merged
from deepspeed_operator.controller.resources import Json


@pytest.mark.parametrize(
    ("live", "desired"),
    [
        ({"a": 1, "defaulted": True}, {"a": 1}),
        ({"a": {"b": [1, 2], "c": 3}}, {"a": {"b": [1, 2]}}),
        ({"ports": [{"port": 1, "protocol": "TCP"}]}, {"ports": [{"port": 1}]}),
        ({"ports": None}, {"ports": []}),
        ({}, {"labels": {}}),
        ({}, {}),
    ],
)
def test_what_the_server_adds_is_no_difference(live: Json, desired: Json) -> None:
    assert contains(live, desired)


@pytest.mark.parametrize(
    ("live", "desired"),
    [
        ({"a": 1}, {"a": 2}),
        ({}, {"a": 1}),
        ({"a": None}, {"a": {"b": 1}}),
        ({"endpoints": [1, 2]}, {"endpoints": [1]}),
        ({"endpoints": [1]}, {"endpoints": [1, 2]}),
        ({"endpoints": [1, 2]}, {"endpoints": []}),
        ({"endpoints": {"a": 1}}, {"endpoints": [1]}),
        ({"selector": {"a": "b"}}, {"selector": {}}),
    ],
)
def test_a_difference_is_seen(live: Json, desired: Json) -> None:
    assert not contains(live, desired)


def test_a_merge_keeps_what_others_added_and_takes_lists_whole() -> None:
    live: Json = {"metadata": {"uid": "x", "labels": {"theirs": "1", "ours": "old"}}, "endpoints": [1, 2]}
    desired: Json = {"metadata": {"labels": {"ours": "new"}}, "endpoints": [3]}
    result = merged(live, desired)
    assert result == {"metadata": {"uid": "x", "labels": {"theirs": "1", "ours": "new"}}, "endpoints": [3]}
    assert contains(result, desired)
    assert live["metadata"]["labels"]["ours"] == "old"
