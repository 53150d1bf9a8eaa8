"""A configuration's text is read as DeepSpeed reads it, or the user reads where it cannot be."""

import json
import time
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepspeed_operator.api.status import Finding, Level
from deepspeed_operator.dsconfig.source import format_findings, parse_config

hjson: Any = import_module("hjson")  # what DeepSpeed reads with; it has no types


def test_an_object_is_returned_key_for_key() -> None:
    text = '{"zero_optimization": {"stage": 2}, "fp16": {"loss_scale": 0}, "steps_per_print": 1e1, "x": "ü"}'
    expected = {"zero_optimization": {"stage": 2}, "fp16": {"loss_scale": 0}, "steps_per_print": 10, "x": "ü"}
    config = parse_config(text)
    assert config == expected
    assert list(config) == list(expected)


HJSON = """# braces around it all are optional
// and commas
zero_optimization: {
  stage: 3, /* a
  comment */ offload_param: {device: cpu
  }
  sub_group_size: 1e9
}
"quoted": 'single \\'"'
note: the rest of the line, # and all
text: '''
      two
        lines
      '''
lr: 1.50e-4
minus: -0.0
"""


def test_hjson_is_read_as_deepspeed_reads_it() -> None:
    assert (
        parse_config(HJSON)
        == {
            "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}, "sub_group_size": 1_000_000_000},
            "quoted": "single '\"",
            "note": "the rest of the line, # and all",
            "text": "two\n  lines",
            "lr": 0.00015,
            "minus": 0,
        }
        == hjson.loads(HJSON, object_pairs_hook=dict)
    )


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("Duplicate keys in DeepSpeed config")
    return dict(pairs)


def by_deepspeed(text: str) -> Any:
    """What DeepSpeed's parser makes of the text, None if it refuses it."""
    try:
        read = hjson.loads(text, object_pairs_hook=unique)
    except (ValueError, IndexError, OverflowError):
        return None
    return read if isinstance(read, dict) else None  # pyright: ignore[reportUnknownVariableType]


# Refused here although DeepSpeed's parser reads something: an empty file, and what is a number only at first sight.
def is_ours_to_refuse(findings: list[Finding]) -> bool:
    return any(word in findings[0].message for word in ("is empty", "not a number", "too large", "digits"))


FRAGMENTS = [
    "{", "}", "[", "]", ",", ":", "\n", " ", "a", "b", '"a"', "'b'", "1", "-2.5e3", "01", "1e400", "true", "null",
    "nul", "# c", "// c", "/* c */", "/*", "'''", "'''x\n y'''", "\\", '"\\u00e9\\n"', '"', "'", "text with, all",
    "NaN", "\r\n", "\t", ".", "-", "a b:", "{a: 1}", '{"a": [1, 2,],}', "a: x\n",
]  # fmt: skip


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=14).map("".join))
def test_whatever_the_text_deepspeeds_parser_reads_the_same(text: str) -> None:
    ours, theirs = parse_config(text), by_deepspeed(text)
    if isinstance(ours, list):
        assert theirs is None or is_ours_to_refuse(ours)
    else:
        assert json.dumps(ours) == json.dumps(theirs)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the configuration is empty"),
        ('{\n  "a": 1,\n', "the text ends where a key is expected, line 3, column 1"),
        ('{"a": 1 /* comment\n}', "a comment begins here and never ends, line 1, column 9"),
        ('{"a": "x\\\n"}', "a backslash before the end of a line or a control character is no escape of JSON"),
        ('{"a": "x\n"}', "the string that begins here may not run over the end of a line"),
        ("[1]", "must be an object, not a list"),
        ("null", "must be an object, not a single value"),
        ("3", "must be an object, not a single value"),
        ('{"lr": NaN}', "NaN is not a number that JSON or DeepSpeed knows, line 1, column 8"),
        ('{\n "fp16": {"enabled": True},\n "b": 1\n}', "True is Python, not JSON, line 2, column 22"),
        ('{\n "a": [None],\n "b": 1\n}', "None is Python, not JSON, line 2, column 8"),
        ('{\n "a": {device: cpu},\n "b": 1\n}', '"cpu" has no quotes'),
        ('{"lr": NaN\n}', "NaN is not a number that JSON or DeepSpeed knows (line 1, column 8)"),
        ('{\n"lr": -Infinity,\n}', "-Infinity is not a number that JSON or DeepSpeed knows (line 2, column 7)"),
        ('{"lr": 1e999}', "1e999 is too large for a number (line 1, column 8)"),
        ('{"lr": %s}' % ("1" * 5000), "more digits than anything could hold"),
        ('{"a": ' * 200 + "1" + "}" * 200, "nested too deeply"),
        ('{"a": ' * 100_000, "nested too deeply"),
        ("[" * 100_000 + "]" * 100_000, "nested too deeply"),
        (
            '{"a": 1,\n "a": 2}',
            '"a" is given more than once in one object. DeepSpeed refuses that (line 1, column 2 and',
        ),
        ('{"\\ud800": 1}', "half of a character (line 1, column 3)"),
    ],
)
def test_anything_else_is_refused_saying_where_and_what(text: str, message: str) -> None:
    findings = parse_config(text, "spec.dsConfigFrom")
    assert isinstance(findings, list)
    assert findings[0].path.startswith("spec.dsConfigFrom")
    assert message in findings[0].message
    assert findings[0].fix
    assert len(str(findings[0]).encode()) < 1000


def test_every_duplicate_is_named_with_its_path() -> None:
    findings = parse_config('{"z": {"b": 1, "b": 2, "b": 3}, "c": 1, "c": 1}', "where")
    assert isinstance(findings, list)
    assert [finding.path for finding in findings] == ["where.z.b", "where.c"]


def test_the_same_key_in_different_objects_is_no_duplicate() -> None:
    assert parse_config('{"a": {"enabled": true}, "b": {"enabled": true}}') == {
        "a": {"enabled": True},
        "b": {"enabled": True},
    }


def test_a_large_object_is_parsed_in_linear_time() -> None:
    text = "{" + ",".join(f'"{number}": 0' for number in range(50_000)) + ', "7": 1}'
    findings = parse_config(text)
    assert isinstance(findings, list)
    assert '"7"' in findings[0].message


@pytest.mark.parametrize(
    "text",
    [
        '{"a": "' + "x'" * 300_000 + '"}',
        "{a: t" + "," * 500_000,
        "{a: " + "1" * 200_000 + "x" + "," * 200_000,
        "{" + "/" * 500_000,
        "{" + "/* */" * 100_000,
        "{a: '''" + "'' " * 150_000,
    ],
    ids=lambda text: str(text)[:12],
)
def test_long_texts_are_read_in_linear_time(text: str) -> None:
    begun = time.process_time()
    parse_config(text)
    assert time.process_time() - begun < 20


@pytest.mark.parametrize(("framework", "level"), [(False, Level.ADVICE), (True, Level.WARNING)])
def test_what_only_deepspeed_reads_is_told(framework: bool, level: Level) -> None:
    assert format_findings('{"a": 1}', "where", framework=framework) == []
    (finding,) = format_findings('{"a": 1,}', "where", framework=framework)
    assert (finding.level, finding.path) == (level, "where")


@pytest.mark.parametrize(
    ("text", "path", "words", "fix"),
    [
        ('{\n "a": 1,\n}', "", "a trailing comma, line 2, column 8", "Remove the comma."),
        ('{"a": [1,\n]}', "a", "a trailing comma, line 1, column 9", "Remove the comma."),
        ('{\n "a": 1 // one\n}', "", "a comment, line 2, column 9", "Remove the comments."),
        ('{"a": {"b": True\n}}', "a.b", "Python's True, line 1, column 13", "Write true."),
        ('{"a": None\n}', "a", "Python's None, line 1, column 7", "Write null."),
        ("{'a': 1}", "a", "single quotes, line 1, column 2", "Write double quotes."),
        ("{a: 1}", "a", "line 1, column 2", "Put names and texts in double quotes, and commas between."),
    ],
)
def test_where_it_ceases_to_be_plain_json_is_told_with_what_to_write(
    text: str, path: str, words: str, fix: str
) -> None:
    (finding,) = format_findings(text, "")
    assert (finding.path, finding.fix) == (path, fix)
    assert words in finding.message
