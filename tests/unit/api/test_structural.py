"""Pydantic's JSON schema becomes a structural one, node by node."""

from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, TypeAdapter

from deepspeed_operator.api.base import ApiModel
from deepspeed_operator.api.crd import structural
from deepspeed_operator.api.markers import Atomic, Cel, FreeForm, IntOrString, ListMap


class Inner(ApiModel):
    """What all inner things are."""

    some_field: int = Field(default=1, description="A number.")


def schema_of(annotation: Any) -> dict[str, Any]:
    generated = TypeAdapter(annotation).json_schema(by_alias=True)
    return structural(generated, generated.get("$defs", {}))


TYPES: list[tuple[Any, dict[str, Any]]] = [
    (int, {"type": "integer", "format": "int64"}),
    (Annotated[int, Field(ge=1, le=3)], {"type": "integer", "format": "int64", "maximum": 3, "minimum": 1}),
    (str | None, {"type": "string"}),
    (Literal["a"], {"type": "string", "enum": ["a"]}),
    (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
    (Annotated[str, Field(pattern="^a$")], {"type": "string", "pattern": "^a$"}),
    (
        Annotated[list[str], Atomic()],
        {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "atomic"},
    ),
    (
        Annotated[dict[str, int], Field(max_length=2)],
        {"type": "object", "additionalProperties": {"type": "integer", "format": "int64"}, "maxProperties": 2},
    ),
    (
        Annotated[dict[str, Any], FreeForm()],
        {"type": "object", "maxProperties": 1000, "x-kubernetes-preserve-unknown-fields": True},
    ),
    (
        Annotated[int | str, IntOrString("^1$")],
        {"x-kubernetes-int-or-string": True, "pattern": "^1$"},
    ),
    (
        Annotated[Annotated[int | str, IntOrString("^1$")] | None, Field(default=None)],
        {"x-kubernetes-int-or-string": True, "pattern": "^1$"},
    ),
]


@pytest.mark.parametrize(("annotation", "expected"), TYPES)
def test_types(annotation: Any, expected: dict[str, Any]) -> None:
    assert schema_of(annotation) == expected


def test_references_are_inlined_and_the_fields_own_description_wins() -> None:
    class Outer(ApiModel):
        first: Inner = Field(description="The first.")
        second: Inner | None = Field(default=None, description="The second.")
        plain: Inner | None = None

    properties = schema_of(Outer)["properties"]
    assert [properties[name]["description"] for name in ("first", "second", "plain")] == [
        "The first.",
        "The second.",
        "What all inner things are.",
    ]
    assert all(node["properties"].keys() == {"someField"} for node in properties.values())


def test_defaults_stay_unless_they_say_nothing() -> None:
    class Defaults(ApiModel):
        one: int = 1
        text: str = ""
        none: str | None = None
        items: Annotated[list[str], Atomic()] = Field(default=[])

    properties = schema_of(Defaults)["properties"]
    assert {name: node["default"] for name, node in properties.items() if "default" in node} == {"one": 1, "text": ""}


def test_rules_gather_beside_the_field_and_not_in_the_shared_type() -> None:
    class Ruled(ApiModel):
        ruled: Annotated[Inner, Cel("self.a", "first"), Cel("self.b", "second")]
        free: Inner

    properties = schema_of(Ruled)["properties"]
    assert properties["ruled"]["x-kubernetes-validations"] == [
        {"rule": "self.a", "message": "first"},
        {"rule": "self.b", "message": "second"},
    ]
    assert "x-kubernetes-validations" not in properties["free"]


def test_list_maps_name_their_key() -> None:
    schema = schema_of(Annotated[list[Inner], ListMap("someField")])
    assert schema["x-kubernetes-list-type"] == "map"
    assert schema["x-kubernetes-list-map-keys"] == ["someField"]


def test_a_union_that_no_structural_schema_can_express_is_a_mistake_of_ours() -> None:
    with pytest.raises(ValueError, match="no unions"):
        schema_of(int | str)
