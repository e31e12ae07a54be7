"""CRDs made from models."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any, ClassVar, cast

import pytest
from msgspec import Meta

from tenantry.api.crd import Column, Names, Rule, custom_resource_definition, list_map, rules
from tenantry.api.marks import RESERVED_NAMES, RESERVED_PREFIXES, is_protected, is_reserved
from tenantry.api.model import KubernetesObject, Model, Resource
from tenantry.api.tenant import Tenant

Json = dict[str, Any]


class Colour(StrEnum):
    """A colour."""

    RED = "Red"
    BLUE = "Blue"


class Shape(Model, frozen=True, kw_only=True):
    """A shape."""

    validations: ClassVar[tuple[Rule, ...]] = (Rule("self.sides > 2", "must have an area", field="sides"),)

    sides: Annotated[int, Meta(ge=0, le=12)]
    colour: Colour = Colour.RED
    filled: bool = False
    tags: Annotated[tuple[str, ...], Meta(max_length=3)] = ()
    note: str = ""


class PictureSpec(Model, frozen=True, kw_only=True):
    """What it shows."""

    title: Annotated[
        Annotated[str, Meta(max_length=20, extra_json_schema=rules(Rule("self != ''", "must not be empty")))],
        Meta(extra_json_schema=rules(Rule("self != 'x'", "must not be x"))),
    ]
    shape: Shape = Shape(sides=3)
    shapes: Annotated[tuple[Shape, ...], Meta(max_length=2, extra_json_schema=list_map("note"))] = ()
    weights: dict[str, int] = {}


class Picture(KubernetesObject, frozen=True, kw_only=True):
    """A picture."""

    resource: ClassVar[Resource] = Resource("example.com", "v1", "pictures", "Picture")
    names: ClassVar[Names] = Names(short=("pic",), categories=("art",))
    columns: ClassVar[tuple[Column, ...]] = (Column("Title", "string", ".spec.title", priority=1),)
    validations: ClassVar[tuple[Rule, ...]] = (
        Rule("self.metadata.name != 'a'", "must not be a", field="metadata.name"),
    )

    spec: PictureSpec


def _schema(kind: type[KubernetesObject]) -> Json:
    version = cast("list[Json]", custom_resource_definition(kind)["spec"]["versions"])[0]
    return cast("Json", version["schema"]["openAPIV3Schema"])


def test_names_scope_and_columns_come_from_the_class() -> None:
    spec = custom_resource_definition(Picture)["spec"]
    assert spec["group"] == "example.com"
    assert spec["scope"] == "Namespaced"
    assert spec["names"] == {
        "plural": "pictures",
        "singular": "picture",
        "kind": "Picture",
        "listKind": "PictureList",
        "shortNames": ["pic"],
        "categories": ["art"],
    }
    version = spec["versions"][0]
    assert (version["name"], version["served"], version["storage"]) == ("v1", True, True)
    assert version["subresources"] == {"status": {}}
    assert version["additionalPrinterColumns"] == [
        {"name": "Title", "type": "string", "jsonPath": ".spec.title", "priority": 1}
    ]


def test_bounds_enums_lists_and_maps_become_schema() -> None:
    spec = _schema(Picture)["properties"]["spec"]
    shape = spec["properties"]["shape"]
    assert shape["properties"]["sides"] == {"type": "integer", "format": "int64", "minimum": 0, "maximum": 12}
    assert shape["properties"]["colour"] == {"type": "string", "enum": ["Red", "Blue"], "default": "Red"}
    assert shape["properties"]["tags"] == {"type": "array", "items": {"type": "string"}, "maxItems": 3}
    assert spec["properties"]["weights"] == {
        "type": "object",
        "additionalProperties": {"type": "integer", "format": "int64"},
    }
    assert spec["properties"]["shapes"]["x-kubernetes-list-type"] == "map"
    assert shape["required"] == ["sides"]
    assert spec["required"] == ["title"]


def test_defaults_are_only_those_that_say_something() -> None:
    shape = _schema(Picture)["properties"]["spec"]["properties"]["shape"]
    assert shape["properties"]["filled"]["default"] is False
    assert "default" not in shape["properties"]["note"], "an empty string means not set"
    assert "default" not in shape["properties"]["tags"]
    assert shape["default"] == {}, "filled in, and its own fields' defaults do the rest"


def test_rules_of_several_levels_all_hold() -> None:
    title = _schema(Picture)["properties"]["spec"]["properties"]["title"]
    assert [rule["rule"] for rule in title["x-kubernetes-validations"]] == ["self != ''", "self != 'x'"]
    assert title["maxLength"] == 20


def test_a_rule_names_its_field_by_path_or_for_metadata_in_words() -> None:
    schema = _schema(Picture)
    shape = schema["properties"]["spec"]["properties"]["shape"]
    assert shape["x-kubernetes-validations"][0]["fieldPath"] == ".sides"
    root = schema["x-kubernetes-validations"][0]
    assert "fieldPath" not in root, "metadata's fields are not in the schema"
    assert root["message"] == "metadata.name must not be a"


def test_what_has_no_schema_is_refused_when_the_crd_is_made() -> None:
    class Odd(KubernetesObject, frozen=True, kw_only=True):
        """Odd."""

        resource: ClassVar[Resource] = Resource("example.com", "v1", "odds", "Odd")
        names: ClassVar[Names] = Names()
        columns: ClassVar[tuple[Column, ...]] = ()
        validations: ClassVar[tuple[Rule, ...]] = ()

        spec: float

    with pytest.raises(TypeError, match="no schema for"):
        custom_resource_definition(Odd)


# -- the Tenant's own -----------------------------------------------------------------------------


def _walk(schema: Json, path: str = "") -> Iterator[tuple[str, Json]]:
    yield path, schema
    for name, inner in cast("dict[str, Json]", schema.get("properties", {})).items():
        yield from _walk(inner, f"{path}.{name}")
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), dict):
            yield from _walk(schema[word], f"{path}[]")


def test_every_list_map_and_string_of_the_tenants_spec_is_bounded() -> None:
    """E01: what is not bounded makes CEL too costly, or an object too large."""
    spec = _schema(Tenant)["properties"]["spec"]
    for path, schema in _walk(spec, "spec"):
        match schema.get("type"):
            case "array":
                assert "maxItems" in schema, path
            case "object" if "additionalProperties" in schema:
                assert "maxProperties" in schema, path
            case "string":
                assert "enum" in schema or "maxLength" in schema, path
            case _:
                pass


def test_every_field_of_the_tenants_spec_is_described() -> None:
    for path, schema in _walk(_schema(Tenant)["properties"]["spec"], "spec"):
        if not path.endswith("[]"):
            assert schema.get("description"), path


@pytest.mark.parametrize("name", [*RESERVED_NAMES, "kube-system", "kube-x", "tenantry-system"])
def test_reserved_names_are_known_to_the_rules_too(name: str) -> None:
    assert is_reserved(name)
    text = str(_schema(Tenant)["x-kubernetes-validations"])
    assert all(word in text for word in (*RESERVED_NAMES, *RESERVED_PREFIXES))


@pytest.mark.parametrize("name", ["acme", "kube", "defaults", "my-default", "tenantry", "akube-b"])
def test_other_names_are_not_reserved(name: str) -> None:
    assert not is_reserved(name)


@pytest.mark.parametrize(
    ("key", "protected"),
    [
        ("tenantry.dev/tenant", True),
        ("policy.tenantry.dev/x", True),
        ("pod-security.kubernetes.io/enforce", True),
        ("tenantry.dev", False),
        ("nottenantry.dev/x", False),
        ("tenantry.dev.example.com/x", False),
        ("app.kubernetes.io/name", False),
        ("", False),
    ],
)
def test_protected_marks(key: str, protected: bool) -> None:  # noqa: FBT001 - a table
    assert is_protected(key) is protected
