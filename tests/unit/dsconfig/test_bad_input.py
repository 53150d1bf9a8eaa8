"""Whatever a document says, it is read and judged, quickly and without a crash."""

import copy
import json
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from deepspeed_operator.api.untyped import object_at
from deepspeed_operator.dsconfig.judgement import JudgementContext, judge, validate
from deepspeed_operator.dsconfig.schema import Schema, schema_of
from deepspeed_operator.dsconfig.source import parse_config
from deepspeed_operator.dsconfig.versions import SUPPORTED

DOCUMENTS = 2_000

ODD: list[Any] = [
    *(None, True, 0, -1, 1, 7.5, float("nan"), float("inf"), 1e308, 2**64, 10**400, -(10**30)),
    *("", "true", "1", "auto", "☃", "\x00", "a" * 5000, "9" * 5000),
    *([], [[]], [None], [1, "a"], {}, {"": 1}, {"enabled": "true"}, {"a": {"b": {"c": {}}}}),
]
TEXTS = [
    *(
        "",
        "{",
        "}",
        "[]",
        "null",
        "{]",
        "{'a': 1}",
        '{"a": NaN}',
        '{"a": 1e400}',
        '{"a": -Infinity}',
        "\x00",
        "\ufeff{}",
    ),
    *('{"a": 1, "a": 2}', '{"fp16": {"enabled": true, "enabled": false}}', '{"a": 01}', '{"a" 1}', "{a: 1, b: 2}"),
    *("[" * 10_000, '{"a":' * 10_000, '{"a":' * 10_000 + "1" + "}" * 10_000, "{" + "/*" * 10_000, "# comment\n{}"),
    *('{"train_batch_size": ' + "9" * 10_000 + "}", '{"a": "' + "x" * 2**20 + '"}', '{"' + "x" * 2**20 + '": 1}'),
]


def documents(count: int, draw: random.Random) -> Iterator[Any]:
    """Configurations with odd values at known and unknown places, and texts that are none."""
    schema = schema_of(SUPPORTED[-1])
    sections = [path.split(".") if path else [] for path in schema.sections]
    names = sorted({key for section in schema.sections.values() for key in section.keys} | {"x", "", "stage", "a.b"})
    for _ in range(count):
        config: dict[str, Any] = {}
        for _ in range(draw.randrange(6)):
            place = config
            for step in draw.choice(sections):
                place.setdefault(step, {})
                place = object_at(place, step)
            place[draw.choice(names)] = copy.deepcopy(draw.choice(ODD))
        yield config


def test_documents_with_odd_values_anywhere_are_judged() -> None:
    seed = random.SystemRandom().randrange(10**9)
    draw = random.Random(seed)
    print(f"seed {seed}")
    for index, config in enumerate(documents(DOCUMENTS, draw)):
        verdict = validate(config, JudgementContext(draw.choice((1, 2, 8)), draw.choice(SUPPORTED)))
        for note in verdict.notes:
            finding = note.finding("spec.dsConfig")
            json.dumps(finding.model_dump(), ensure_ascii=False).encode()
        if index % 10 == 0:
            parse_config(json.dumps(config)[: draw.randrange(200)])


@pytest.mark.parametrize("odd", ODD, ids=[repr(odd)[:20] for odd in ODD])
def test_each_key_takes_each_odd_value(odd: Any) -> None:
    for path in places(schema_of(SUPPORTED[-1])):
        config: Any = odd
        for key in reversed(path):
            config = {key: config}
        assert all(note.finding("spec.dsConfig").message for note in validate(config, JudgementContext(2)).notes)


def places(schema: Schema) -> Iterator[tuple[str, ...]]:
    """The path of each key that DeepSpeed knows."""
    for section, content in schema.sections.items():
        path = tuple(section.split(".")) if section else ()
        for name, key in content.keys.items():
            yield (*path, name)
            yield from fields(schema, key.model, (*path, name))


def fields(schema: Schema, model: str | None, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for name, field in schema.models[model]["fields"].items() if model else ():
        yield (*path, name)
        kind = object_at(field["type"])
        yield from fields(schema, (object_at(kind, "nullable") or kind).get("model"), (*path, name))


@pytest.mark.parametrize("text", TEXTS, ids=[repr(text[:20]) for text in TEXTS])
def test_a_text_is_a_configuration_or_its_errors_are_told(text: str) -> None:
    began = time.process_time()
    read = parse_config(text)
    if isinstance(read, dict):
        judge(read, JudgementContext(8, "0.19.8"))
    else:
        assert read
        assert all(finding.message for finding in read)
    assert time.process_time() - began < 20


@pytest.mark.parametrize(
    "config",
    [
        {f"unknown_{index}": index for index in range(20_000)},
        {"zero_optimization": {f"unknown_{index}": index for index in range(20_000)}},
        {"optimizer": {"type": "x" * 2**20}},
        {"x" * 2**20: 1},
        {"zero_optimization": {"offload_param": {"nvme_path": "x" * 2**20, "x" * 2**20: 1}}},
        {"tensorboard": {"job_name": ["x"] * 100_000}},
    ],
    ids=["unknown keys", "refused keys", "long name", "long key", "long values", "long list"],
)
def test_time_grows_with_size_only(config: dict[str, Any]) -> None:
    began = time.process_time()
    judgement = judge({"train_batch_size": 8, **config}, JudgementContext(8, "0.19.8"))
    assert judgement.findings
    assert time.process_time() - began < 20
