"""TenancyDefaults: what an administrator decides for all tenants. Only the object named `default` counts."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from tenantry.api.crd import Column, Names, Rule, list_map
from tenantry.api.marks import GROUP, VERSION
from tenantry.api.model import Condition, KubernetesObject, Model, Resource
from tenantry.api.requests import AutoApproval
from tenantry.api.rules import Rules
from tenantry.api.subnamespace import NEVER_INHERITED

NAME = "default"


class InheritableKind(Model, frozen=True, kw_only=True):
    """A namespaced kind that children may inherit."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"!(size(self.group) > 0 ? self.plural + '.' + self.group : self.plural).matches('^({NEVER_INHERITED})$')",
            "must not be a kind that is made by controllers, is Tenantry's own, or has a field of its own in"
            " spec.inheritance of a Subnamespace",
            field="plural",
        ),
    )

    group: Annotated[str, Meta(max_length=253, description='The API group; "" for the core group.')]
    version: Annotated[str, Meta(min_length=1, max_length=63, description="The version to use, as in v1.")]
    plural: Annotated[str, Meta(min_length=1, max_length=63, description="As in URLs: widgets.")]
    kind: Annotated[str, Meta(min_length=1, max_length=63, description="As in objects: Widget.")]


class TenancyDefaultsSpec(Model, frozen=True, kw_only=True):
    """What holds for all tenants."""

    inheritable_kinds: Annotated[
        tuple[InheritableKind, ...],
        Meta(
            max_length=32,
            description="Namespaced kinds beyond the seven that a Subnamespace may name in spec.inheritance.others. The"
            " operator needs the verbs get, list, watch, create, update and delete on each: give them in a ClusterRole"
            ' with the label tenantry.dev/aggregate-to-operator: "true".',
            extra_json_schema=list_map("group", "plural"),
        ),
    ] = ()
    rules: Annotated[
        Rules,
        Meta(description="What workloads may ask for, in every namespace of every tenant; tenants only tighten it."),
    ] = Rules()
    auto_approve: Annotated[
        tuple[AutoApproval, ...],
        Meta(
            max_length=16,
            description="Which TenantRequests the operator approves by itself: those that any of these fits.",
            extra_json_schema=list_map("name"),
        ),
    ] = ()


class TenancyDefaultsStatus(Model, frozen=True, kw_only=True):
    """Whether it is in force."""

    observed_generation: Annotated[
        int, Meta(description="The generation of the spec that the conditions are about.")
    ] = 0
    conditions: Annotated[tuple[Condition, ...], Meta(max_length=16, extra_json_schema=list_map("type"))] = ()


class TenancyDefaults(KubernetesObject, frozen=True, kw_only=True):
    """What an administrator decides for all tenants; only the object named default counts."""

    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "tenancydefaults", "TenancyDefaults", namespaced=False)
    names: ClassVar[Names] = Names(singular="tenancydefaults", short=("tdef",), categories=("tenantry",))
    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(f"self.metadata.name == '{NAME}'", f"must be {NAME}", field="metadata.name"),
    )
    columns: ClassVar[tuple[Column, ...]] = (
        Column("Ready", "string", '.status.conditions[?(@.type=="Ready")].status'),
        Column("Inheritable", "string", ".spec.inheritableKinds[*].plural"),
        Column("Message", "string", '.status.conditions[?(@.type=="Ready")].message', priority=1),
        Column("Age", "date", ".metadata.creationTimestamp"),
    )

    spec: TenancyDefaultsSpec
    status: TenancyDefaultsStatus = TenancyDefaultsStatus()
