"""A configuration's text is a JSON object, or the user reads where it is not."""

import pytest

from deepspeed_operator.dsconfig.source import parse_config


def test_an_object_is_returned_key_for_key() -> None:
    text = '{"zero_optimization": {"stage": 2}, "fp16": {"loss_scale": 0}, "steps_per_print": 1e1, "x": "ü"}'
    expected = {"zero_optimization": {"stage": 2}, "fp16": {"loss_scale": 0}, "steps_per_print": 10.0, "x": "ü"}
    config = parse_config(text)
    assert config == expected
    assert list(config) == list(expected)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not valid JSON: Expecting value at line 1, column 1"),
        ('{\n  "a": 1,\n}', "line 3, column 1"),
        ('{"a": 1 // comment\n}', "line 1, column 9"),
        ("\ufeff{}", "BOM"),
        ("[1]", "must be a JSON object, not a list"),
        ("null", "must be a JSON object, not null"),
        ("true", "must be a JSON object, not true or false"),
        ("3", "must be a JSON object, not a number"),
        ('"{}"', "must be a JSON object, not a string"),
        ('{"lr": NaN}', "NaN is not a number"),
        ('{"lr": -Infinity}', "-Infinity is not a number"),
        ('{"lr": 1e999}', "1e999 is not a number"),
        ('{"lr": %s}' % ("1" * 5000), "not valid JSON"),
        ('{"a": ' * 200 + "1" + "}" * 200, "nested too deeply"),
        ('{"a": ' * 100_000, "nested too deeply"),
        ("[" * 100_000 + "]" * 100_000, "nested too deeply"),
        ('{"a": 1, "a": 2}', 'given more than once in one object: "a".'),
        ('{"z": {"b": 1, "b": 2, "b": 3}, "c": 1, "c": 1}', ': "b", "c".'),
        ('{"\\ud800": 1, "\\ud800": 2}', '"\\ud800"'),
    ],
)
def test_anything_else_is_refused_saying_where_and_what(text: str, message: str) -> None:
    findings = parse_config(text, "spec.dsConfigFrom")
    assert isinstance(findings, list)
    assert [finding.path for finding in findings] == ["spec.dsConfigFrom"]
    assert message in findings[0].message
    assert findings[0].fix
    assert len(str(findings[0]).encode()) < 1000


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
