"""CustomResourceDefinitions, generated from the models.

    a model's types ─► msgspec.inspect ─► structural schema ─► CRD
       Meta(...)     ─► bounds, descriptions
       validations   ─► x-kubernetes-validations

Source: Kubernetes, "Extend the Kubernetes API with CustomResourceDefinitions" (structural schemas, defaulting,
validation rules, additional printer columns).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, cast

import msgspec
from msgspec import Meta, inspect

from tenantry.api.model import Condition, KubernetesObject, Model

Schema = dict[str, Any]

_RULES = "x-kubernetes-validations"


class Rule(msgspec.Struct, frozen=True):
    """A validation rule in CEL.

    Args:
        rule: The expression; `self` is the value that has the rule.
        message: What the value must or must not be; the API server puts the field's path before it.
        field: The path that the server names, relative to the value; "" for the value itself.
        knows_old: `oldSelf` is the optional value of before.
        told: An expression for the message, with values that the field's own does not show; "" for none.
    """

    rule: str
    message: str
    field: str = ""
    knows_old: bool = False
    told: str = ""


class Scale(msgspec.Struct, frozen=True):
    """The subresource `scale` of a kind: the JSON paths of the wanted and the present number; no path has an index."""

    wanted: str
    present: str


class Names(msgspec.Struct, frozen=True, kw_only=True):
    """The names of a kind in kubectl besides its plural and its kind in lower case."""

    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ("tenantry",)


class Column(msgspec.Struct, frozen=True):
    """A printer column; priority 1 is shown with `-o wide` only."""

    name: str
    type: Literal["string", "boolean", "integer", "date"]
    json_path: str
    priority: int = 0


READY = Column("Ready", "string", '.status.conditions[?(@.type=="Ready")].status')
REASON = Column("Reason", "string", '.status.conditions[?(@.type=="Ready")].reason')
MESSAGE = Column("Message", "string", '.status.conditions[?(@.type=="Ready")].message', priority=1)
AGE = Column("Age", "date", ".metadata.creationTimestamp")


def rules(*given: Rule) -> Schema:
    """Return the schema keywords of validation rules."""
    return {_RULES: [_rule(rule) for rule in given]}


def list_map(*keys: str) -> Schema:
    """Return the schema keywords of a list whose items are identified by these fields."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


ATOMIC_MAP: Schema = {"x-kubernetes-map-type": "atomic"}
"""The schema keywords of a map that one client writes: managedFields record it whole, instead of each of its fields.

Structured merge diff compares each recorded field at each write, merge patches included.
"""

ObservedGeneration = Annotated[int, Meta(description="The generation of the spec that the conditions are about.")]
Conditions = Annotated[tuple[Condition, ...], Meta(max_length=16, extra_json_schema=list_map("type"))]


def _rule(rule: Rule) -> Schema:
    out: Schema = {"rule": rule.rule, "message": rule.message}
    if rule.field.startswith("metadata."):
        # fieldPath may only name fields of the schema, which does not have those of metadata.
        out["message"] = f"{rule.field} {rule.message}"
    elif rule.field:
        out["fieldPath"] = f".{rule.field}"
    if rule.told:
        out["messageExpression"] = rule.told
    return {**out, "optionalOldSelf": True} if rule.knows_old else out


def custom_resource_definition(kind: type[KubernetesObject]) -> Schema:
    """Return the CRD of a kind.

    The class of the kind has `resource`, `names: Names`, `columns: tuple[Column, ...]`, if it has rules,
    `validations: tuple[Rule, ...]`, and if it has the subresource, `scale: Scale`.
    """
    resource = kind.resource
    names = cast("Names", vars(kind)["names"])
    columns = cast("tuple[Column, ...]", vars(kind)["columns"])
    root = _struct(_struct_info(kind), skip=("metadata",))
    root["properties"] = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        **root["properties"],
    }
    root["required"] = ["spec"]
    version: Schema = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": root},
        # As a subresource, the status needs a right of its own: users who may write the spec cannot write it.
        "subresources": {"status": {}, **_scale(kind)},
        "additionalPrinterColumns": [_column(column) for column in columns],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": resource.full_name},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "names": {
                "plural": resource.plural,
                "singular": resource.kind.lower(),
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
                "shortNames": list(names.short),
                "categories": list(names.categories),
            },
            "versions": [version],
        },
    }


def _scale(kind: type[KubernetesObject]) -> Schema:
    scale = cast("Scale | None", vars(kind).get("scale"))
    if scale is None:
        return {}
    return {"scale": {"specReplicasPath": scale.wanted, "statusReplicasPath": scale.present}}


def _column(column: Column) -> Schema:
    out: Schema = {"name": column.name, "type": column.type, "jsonPath": column.json_path}
    return {**out, "priority": column.priority} if column.priority else out


def _struct(info: inspect.StructType, skip: tuple[str, ...] = ()) -> Schema:
    properties: Schema = {}
    required: list[str] = []
    for field in info.fields:
        if field.name in skip:
            continue
        schema = _schema(field.type)
        default = _default(field)
        if default is not None:
            schema["default"] = default
        properties[field.encode_name] = schema
        if field.required:
            required.append(field.encode_name)
    out: Schema = {"type": "object", "properties": properties}
    if info.cls.__doc__:
        out["description"] = " ".join(info.cls.__doc__.split())
    if required:
        out["required"] = required
    validations = cast("tuple[Rule, ...]", vars(info.cls).get("validations", ()))
    return {**out, **rules(*validations)} if validations else out


def _default(field: inspect.Field) -> object:
    """Return the default in the schema; None for none.

    Empty strings, zeros and empty collections mean "not set" in the models and need no default. A struct whose fields
    have defaults gets {}, and the API server then applies the defaults of the fields.
    """
    default = field.default
    if isinstance(default, bool):
        return default
    if isinstance(default, Model):
        has_defaults = any(_default(inner) is not None for inner in _struct_info(type(default)).fields)
        return {} if has_defaults else None
    if isinstance(default, str) and default:
        return str(default)
    return None


def _struct_info(model: type[Model]) -> inspect.StructType:
    info = inspect.type_info(model)
    if not isinstance(info, inspect.StructType):
        raise TypeError(f"{model} is not a struct")
    return info


def _schema(info: inspect.Type) -> Schema:
    match info:
        case inspect.Metadata():
            return _described(info)
        case inspect.StructType():
            return _struct(info)
        case inspect.VarTupleType() | inspect.ListType():
            items = _schema(info.item_type)
            return _bounds({"type": "array", "items": items}, minItems=info.min_length, maxItems=info.max_length)
        case inspect.DictType():
            values = _schema(info.value_type)
            return _bounds({"type": "object", "additionalProperties": values}, maxProperties=info.max_length)
        case _:
            return _scalar(info)


def _scalar(info: inspect.Type) -> Schema:
    match info:
        case inspect.EnumType():
            return {"type": "string", "enum": [str(member.value) for member in info.cls]}
        case inspect.StrType():
            bounds = {"minLength": info.min_length, "maxLength": info.max_length, "pattern": info.pattern}
            return _bounds({"type": "string"}, **bounds)
        case inspect.IntType():
            return _bounds({"type": "integer", "format": "int64"}, minimum=info.ge, maximum=info.le)
        case inspect.BoolType():
            return {"type": "boolean"}
        case inspect.UnionType():
            return {}  # only int | str, whose Metadata says x-kubernetes-int-or-string
        case _:
            raise TypeError(f"no schema for {info}")


def _described(info: inspect.Metadata) -> Schema:
    """Return the schema of an annotated type: rules given at several levels all hold."""
    schema = _schema(info.type)
    extra: Schema = dict(cast("Schema", info.extra_json_schema or {}))
    inherited = cast("list[Schema]", schema.get(_RULES, []))
    own = cast("list[Schema]", extra.pop(_RULES, []))
    return {**schema, **extra, **({_RULES: [*inherited, *own]} if inherited or own else {})}


def _bounds(schema: Schema, **bounds: float | str | None) -> Schema:
    return schema | {name: bound for name, bound in bounds.items() if bound is not None}
