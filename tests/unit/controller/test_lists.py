"""Lists are decoded an object at a time, and say the same as if they were decoded whole."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepspeed_operator.controller.lists import decode_list, slim

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@settings(max_examples=25)  # what is drawn is large
@given(
    st.dictionaries(st.text(), VALUES),
    st.lists(st.dictionaries(st.text(), VALUES)),
    st.sampled_from([None, 1]),
    st.booleans(),
)
def test_a_list_is_what_it_is_as_a_whole(
    rest: dict[str, Any], items: list[Any], indent: int | None, escaped: bool
) -> None:
    whole = {**rest, "items": items, "metadata": {"resourceVersion": "5"}}
    content = json.dumps(whole, indent=indent, ensure_ascii=escaped).encode("utf-8", "surrogatepass")
    if b"\xed" not in content:
        assert decode_list(content, lambda item: item) == whole


def test_an_empty_list_of_metadata_is_empty() -> None:
    assert decode_list(b'{"kind":"List","metadata":{"resourceVersion":"1"},"items":null}\n', slim)["items"] == []


def test_what_is_no_list_stays_as_it_is() -> None:
    assert decode_list(b'{"resources": [{"name": "deepspeedjobs"}]}', slim) == {
        "resources": [{"name": "deepspeedjobs"}]
    }


@pytest.mark.parametrize("text", ["", "[]", "no", "{", '{"items": [', '{"items": [{} {}]}', '{"a"}', '{"items": [{}]'])
def test_what_is_broken_is_refused(text: str) -> None:
    with pytest.raises(json.JSONDecodeError):
        decode_list(text.encode(), lambda item: item)


def test_of_metadata_its_identity_is_kept() -> None:
    identity = {"namespace": "ml", "name": "a", "uid": "u", "resourceVersion": "5", "generation": 2}
    users: dict[str, Any] = {
        "annotations": {"a": "x" * 1000},
        "managedFields": [{"fieldsV1": {"f:spec": {}}}],
        "labels": {"a": "b"},
    }
    assert slim({"metadata": {**identity, **users}, "spec": {"nodes": 1}}) == {"metadata": identity}
