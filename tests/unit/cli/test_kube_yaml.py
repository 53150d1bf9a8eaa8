"""YAML is read as kubectl reads it, each value with its place in the text."""

import math
import time
from itertools import pairwise
from typing import Any

import pytest

from deepspeed_operator.cli.kube_yaml import parse_yaml
from deepspeed_operator.dsconfig.tree import UnreadableError, located, plain


def read(text: str) -> Any:
    (document,) = parse_yaml(text)
    assert not document.problems
    return plain(document.root)


# What sigs.k8s.io/yaml makes of a plain scalar; what it keeps as text is text here.
SCALARS: list[tuple[str, Any]] = [
    ("1e-4", 0.0001), ("5e8", 500_000_000), ("1.0", 1), (".5", 0.5), ("-1.", -1), ("1_000", 1000), ("+7", 7),
    ("0x1F", 31), ("017", 15), ("0o17", 15), ("0b101", 5), ("-0b11", -3), ("08", 8), ("1e21", 1e21),
    ("18446744073709551615", 18446744073709552000), ("1e20", 10**20), ("-9223372036854775808", -(2**63)),
    ("yes", True), ("Off", False), ("y", True), ("True", True), ("tRue", "tRue"),
    ("null", None), ("~", None), ("", None), ("NULL", None), ("NaN", "NaN"), ("2001-01-01", "2001-01-01"),
    ("1:30", "1:30"), ("0.19.8", "0.19.8"), ("1e", "1e"), ("0x", "0x"), ("'1'", "1"), ('"true"', "true"),
    ("!!str 1", "1"), ("!!int 2", 2), ("!!float 2", 2), ("auto", "auto"), (". ", "."), ("-", [None]),
]  # fmt: skip


@pytest.mark.parametrize(("written", "value"), SCALARS)
def test_a_scalar_is_what_kubectl_makes_of_it(written: str, value: Any) -> None:
    found = read(f"a: {written}" if written != "-" else "a:\n- ")["a"]
    assert (found, type(found)) == (value, type(value))


def test_keys_that_are_not_words_become_words() -> None:
    assert read("1: a\ntrue: b\n1.5: c") == {"1": "a", "true": "b", "1.5": "c"}


def test_anchors_and_merges_are_followed() -> None:
    assert read("a: &a {x: 1, w: 2}\nb: {<<: *a, w: 3}\nc: *a\nd: {<<: [*a, {z: 4}]}") == {
        "a": {"x": 1, "w": 2},
        "b": {"x": 1, "w": 3},
        "c": {"x": 1, "w": 2},
        "d": {"x": 1, "w": 2, "z": 4},
    }


def test_documents_are_told_apart() -> None:
    assert [plain(document.root) for document in parse_yaml("a: 1\n---\n# nothing\n---\n- b\n...\n")] == [
        {"a": 1},
        None,
        ["b"],
    ]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a", "1"),
        ("b.c", "[x, {w: 2}]"),
        ("b.c[1].w", "2"),
        ("d.e/f.g", '"ü"'),
        ('d["e/f.g"]', '"ü"'),
        ("h[1]", "z"),
    ],
)
def test_a_value_is_found_by_its_path(path: str, text: str) -> None:
    content = 'a: 1\nb:\n  c: [x, {w: 2}]\nd: {e/f.g: "ü"} # comment\nh:\n- v\n- z\n'
    (document,) = parse_yaml(content)
    node, _, rest = located(document.root, path)
    assert (content[node.start : node.end], rest) == (text, "")


def test_a_path_is_followed_as_far_as_it_goes() -> None:
    (document,) = parse_yaml("a: {b: 1}")
    _, member, rest = located(document.root, "a.c.d")
    assert member is not None
    assert (member.key, rest) == ("a", ".c.d")


@pytest.mark.parametrize(
    ("text", "problem", "places"),
    [
        ("a: 1\nb: 2\na: 3", '"a" is given more than once', ["a", "a"]),
        ("x: {a: 1, 'a': 2, a: 3}", '"a" is given more than once', ["a", "'a'", "a"]),
        ("a: .nan", ".nan is not a number", [".nan"]),
        ("a: -.Inf", "-.Inf is not a number", ["-.Inf"]),
        ("a: 1e400", "1e400 is too large for a number; Kubernetes keeps it as text", ["1e400"]),
    ],
)
def test_what_kubectl_passes_over_in_silence_is_a_problem(text: str, problem: str, places: list[str]) -> None:
    (document,) = parse_yaml(text)
    (found,) = document.problems
    assert problem in found.message
    assert [text[start:end] for start, end in found.spans] == places


# Each list is nine times the one before it: 9 to the power of 9 in all.
BOMB = "a: &a [1]\n" + "".join(
    f"{key}: &{key} [{', '.join([f'*{before}'] * 9)}]\n" for before, key in pairwise("abcdefghij")
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1", "not valid YAML"),
        ("a: b: c", "not valid YAML: mapping values are not allowed"),
        ("\tb: 1", "not valid YAML: found character that cannot start any token"),
        ("a: \x00", "not valid YAML"),
        ("? [a]\n: b", "a key must be a word"),
        ("~: b", "a key is missing, or null"),
        ("a: *b", "the anchor b is not defined before"),
        ("a: &a [*a]", "the anchor a contains itself"),
        ("<<: 1", "<< merges mappings only"),
        ("a: !!int b", "is not of the type that its tag says"),
        ("[" * 100_000, "not valid YAML: exceeded maximum nesting depth"),
        ("- " * 900, "nested too deeply"),
        ("{a: " * 10_000, "nested too deeply"),
        (BOMB, "endless"),
    ],
    ids=lambda value: str(value)[:20],
)  # fmt: skip
def test_what_is_no_document_is_refused(text: str, message: str) -> None:
    with pytest.raises(UnreadableError, match=message.replace("*", r"\*")):
        list(parse_yaml(text))


@pytest.mark.parametrize(
    "text",
    [
        "a: " + "x" * 1_000_000,
        "a: '" + "''" * 300_000 + "'",
        "".join(f"k{number}: 1\n" for number in range(20_000)),
        "{" + "a: 1, " * 20_000 + "}",
    ],
    ids=["long", "quotes", "keys", "duplicates"],
)
def test_large_documents_are_read_in_linear_time(text: str) -> None:
    begun = time.process_time()
    list(parse_yaml(text))
    assert time.process_time() - begun < 20


def test_infinity_is_a_number_nobody_can_write_as_json() -> None:
    (document,) = parse_yaml("a: .inf")
    assert math.isinf(plain(document.root)["a"])
