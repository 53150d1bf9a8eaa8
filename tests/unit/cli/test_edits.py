"""An edit changes what it is about, and leaves every other character of the text."""

import json
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepspeed_operator.cli.edits import CannotEditError, edited_text
from deepspeed_operator.cli.kube_yaml import parse_yaml
from deepspeed_operator.cli.sources import Format
from deepspeed_operator.dsconfig.hjson import parse_hjson
from deepspeed_operator.dsconfig.migration import Edit, Put, Remove, Rename, edited
from deepspeed_operator.dsconfig.tree import Node, plain

JSON, YAML = Format.JSON, Format.YAML


def root_of(text: str, form: Format) -> Node:
    return (parse_hjson(text) if form is JSON else next(parse_yaml(text))).root


def done(text: str, form: Format, edit: Edit) -> str:
    return edited_text(text, root_of(text, form), form, edit)


CASES: list[tuple[Format, Edit, str, str]] = [
    # Whole lines go with their comment; the comma of what is now last goes, too.
    (JSON, Remove(("b",)), '{\n  "a": 1,\n  "b": 2, // two\n  "c": 3\n}', '{\n  "a": 1,\n  "c": 3\n}'),
    (JSON, Remove(("c",)), '{\n  "a": 1, // one\n  "c": 3\n}\n', '{\n  "a": 1 // one\n}\n'),
    (JSON, Remove(("c",)), '{\n  "a": 1,\n  // c:\n  "c": 3,\n}\n', '{\n  "a": 1\n  // c:\n}\n'),
    (JSON, Remove(("a",)), '{"a": 1, "b": {"c": 2}}', '{"b": {"c": 2}}'),
    (JSON, Remove(("b",)), '{"a": 1, "b": {"c": 2}}', '{"a": 1}'),
    (JSON, Remove(("b", "c")), '{"a": 1, "b": {"c": 2}}', '{"a": 1, "b": {}}'),
    (JSON, Remove(("b",)), "{\n a: 1\n b: {\n  c: 2 }\n}", "{\n a: 1\n}"),
    (JSON, Remove(("a",)), "a: text, and more\nb: 2\n", "b: 2\n"),
    (JSON, Remove(("b",)), '{\r\n  "a": 1,\r\n  "b": 2\r\n}', '{\r\n  "a": 1\r\n}'),
    (JSON, Rename(("b", "c"), "d"), "{\"b\": {'c': 2 /* c */}}", "{\"b\": {'d': 2 /* c */}}"),
    (JSON, Rename(("c",), "d"), "{c: 2}", "{d: 2}"),
    (JSON, Put(("a",), {"b": "c"}), '{"a" :  true , "z": 1}', '{"a" :  {"b": "c"} , "z": 1}'),
    (JSON, Put(("c",), False), '{"a": 1, "b": 2}', '{"a": 1, "b": 2, "c": false}'),
    (JSON, Put(("c",), 0.0), '{\n  "a": 1\n}\n', '{\n  "a": 1,\n  "c": 0.0\n}\n'),
    (JSON, Put(("c",), 1), '{\n  "a": 1, // one\n}\n', '{\n  "a": 1, // one\n  "c": 1,\n}\n'),
    (JSON, Put(("c",), 1), '{\n  "a": 1 // one\n}\n', '{\n  "a": 1, // one\n  "c": 1\n}\n'),
    (JSON, Put(("c",), 1), "{\n  a: text, and more\n}", "{\n  a: text, and more\n  c: 1\n}"),
    (JSON, Put(("a", "b"), 1), '{"a": {}}', '{"a": {"b": 1}}'),
    (YAML, Remove(("b",)), "a: 1\nb:  # two\n  c: 2\n  # in b\n  d: 3\n\n# of e\ne: 4\n", "a: 1\n\n# of e\ne: 4\n"),
    (YAML, Remove(("b", "c")), "b:\n  c: 2\ne: 4\n", "b:\n  {}\ne: 4\n"),
    (YAML, Remove(("a",)), "{a: 1, b: 2}  # both\n", "{b: 2}  # both\n"),
    (YAML, Remove(("a",)), "a: |\n  x\n\nb: 1\n", "\nb: 1\n"),
    (YAML, Rename(("b", "c"), "d"), "b:\n  c: 2\n", "b:\n  d: 2\n"),
    (YAML, Put(("a",), {"b": "cpu", "d": "true"}), "a: 1 # one\n", 'a: {b: cpu, d: "true"} # one\n'),
    (YAML, Put(("a",), 1), "a:\nb: 2\n", "a: 1\nb: 2\n"),
    (YAML, Put(("b", "d"), 1), "b:\n  c: 2 # two\n\ne: 4\n", "b:\n  c: 2 # two\n  d: 1\n\ne: 4\n"),
    (YAML, Put(("d",), 1), "b:\n  c: [2,\n   3]", "b:\n  c: [2,\n   3]\nd: 1"),
    (YAML, Put(("b", "d"), 1), "b: {c: 2}\n", "b: {c: 2, d: 1}\n"),
]


@pytest.mark.parametrize(("form", "edit", "before", "after"), CASES)
def test_an_edit(form: Format, edit: Edit, before: str, after: str) -> None:
    assert done(before, form, edit) == after


def test_what_stands_elsewhere_is_not_edited() -> None:
    text = "x: &x {a: 1}\nb:\n  <<: *x\n  c: 1\n"
    with pytest.raises(CannotEditError, match=r"b\.a stands elsewhere"):
        done(text, YAML, Remove(("b", "a")))


KEYS = st.sampled_from(["a", "b", "c", "stage", "fp16", "x1"])
VALUES = st.recursive(
    st.sampled_from([1, -2, 0.5, True, False, None, "auto", "a b", "true", "", [], [1, "x"]]),
    lambda inner: st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)
CONFIGS = st.dictionaries(KEYS, VALUES, min_size=1, max_size=5)
COMMENTS = st.sampled_from(["", "", " # comment", " // x, y", " /* } */"])


@st.composite
def written_json(draw: st.DrawFn, value: Any, depth: int = 1) -> str:
    """A way to write a configuration: on lines or not, with or without commas, quotes and comments."""
    if not isinstance(value, dict) or not value:
        return json.dumps(value)
    lines = draw(st.booleans())
    between = "\n" + "  " * depth if lines else " "
    text = "{"
    items = list(cast(dict[str, Any], value).items())
    for position, (key, item) in enumerate(items):
        name = f'"{key}"' if draw(st.booleans()) else key
        comma = "," if position < len(items) - 1 or draw(st.booleans()) else ""
        comment = draw(COMMENTS) if lines else ""
        text += f"{between}{name}: {draw(written_json(item, depth + 1))}{comma}{comment}"
    return text + ("\n" + "  " * (depth - 1) if lines else "") + "}"


@st.composite
def written_yaml(draw: st.DrawFn, value: Any, depth: int = 0) -> str:
    if not isinstance(value, dict) or not value or draw(st.integers(0, 4)) == 0:
        return f" {json.dumps(value)}\n"
    text = "\n" if depth else ""
    for key, item in cast(dict[str, Any], value).items():
        text += "  " * depth + f"{key}:{draw(written_yaml(item, depth + 1))}"
        text += draw(st.sampled_from(["", "", "\n", "  " * depth + "# comment\n"]))
    return text


def paths(config: dict[str, Any], prefix: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = [prefix]
    for key, value in config.items():
        if isinstance(value, dict):
            found += paths(cast(dict[str, Any], value), (*prefix, key))
    return found


@st.composite
def edits(draw: st.DrawFn, config: dict[str, Any]) -> Edit:
    place = draw(st.sampled_from(paths(config)))
    section = config
    for key in place:
        section = section[key]
    fresh = draw(st.sampled_from(["new", "offload_optimizer"]))
    if not section or draw(st.booleans()):
        return Put((*place, fresh), draw(st.sampled_from([0, False, {"device": "cpu"}])))
    key = draw(st.sampled_from(sorted(section)))
    possible: list[Edit] = [Remove((*place, key)), Put((*place, key), {"stage": 1})]
    if fresh not in section:
        possible.append(Rename((*place, key), fresh))
    return draw(st.sampled_from(possible))


@settings(max_examples=150)
@given(data=st.data(), config=CONFIGS, form=st.sampled_from(Format))
def test_whatever_the_text_an_edit_means_what_it_says(
    data: st.DataObject, config: dict[str, Any], form: Format
) -> None:
    text = data.draw(written_json(config) if form is JSON else written_yaml(config))
    assert plain(root_of(text, form)) == config
    for _ in range(data.draw(st.integers(1, 4))):
        edit = data.draw(edits(config))
        before, text, config = text, done(text, form, edit), edited(config, (edit,))
        assert plain(root_of(text, form)) == config, (before, edit, text)
