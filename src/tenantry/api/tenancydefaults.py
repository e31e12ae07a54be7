"""TenancyDefaults: what an administrator decides for all tenants. Only the object named `default` counts."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import Meta

from tenantry.api.crd import Column, Names, Rule, list_map
from tenantry.api.fairness import Fairness
from tenantry.api.marks import GROUP, VERSION
from tenantry.api.model import Condition, KubernetesObject, Model, Resource
from tenantry.api.requests import AutoApproval
from tenantry.api.rules import Rules
from tenantry.api.slice import MAX_GRACE_SECONDS
from tenantry.api.subnamespace import NEVER_INHERITED

NAME = "default"

NODE_LOCAL_DNS = "169.254.20.10"
"""Where NodeLocal DNS answers if nobody has said otherwise. Source: Kubernetes, "Using NodeLocal DNSCache"."""


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


class NetworkDefaults(Model, frozen=True, kw_only=True):
    """What is around the tenants of a cluster, as far as their network policies go."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule("!has(self.dnsAddresses) || self.dnsAddresses.all(a, isIP(a))", "must be IP addresses", "dnsAddresses"),
        Rule("!has(self.keptCidrs) || self.keptCidrs.all(c, isCIDR(c))", "must be CIDRs", "keptCidrs"),
    )

    dns_addresses: Annotated[
        tuple[Annotated[str, Meta(max_length=45)], ...],
        Meta(
            max_length=8,
            description="Where the cluster's DNS answers beside its pods in kube-system: NodeLocal DNS. Pods may"
            " connect there at port 53.",
        ),
    ] = (NODE_LOCAL_DNS,)
    kept_cidrs: Annotated[
        tuple[Annotated[str, Meta(max_length=49)], ...],
        Meta(
            max_length=32,
            description="What no pod of a Baseline tenant connects to, beside the addresses of nodes, link-local and"
            " metadata addresses. Name the nodes' subnets here: then no policy has to follow the nodes.",
        ),
    ] = ()


class SandboxDefaults(Model, frozen=True, kw_only=True):
    """In which runtime sandboxed pods run."""

    runtime_class_name: Annotated[
        str,
        Meta(
            max_length=253,
            description="The RuntimeClass; if it is not there, no other is taken. Left out: the first by name of those"
            ' with the label tenantry.dev/sandbox: "true", else of those whose handler is gvisor, runsc or kata, or'
            " begins so with a hyphen behind.",
        ),
    ] = ""


class CleaningPolicy(StrEnum):
    """Which nodes go back only when they are clean."""

    WHERE_AGENTS = "WhereAgents"
    REQUIRED = "Required"


class SliceDefaults(Model, frozen=True, kw_only=True):
    """What tenants may ask of nodes of their own."""

    max_grace_period_seconds: Annotated[
        int,
        Meta(
            ge=0,
            le=MAX_GRACE_SECONDS,
            description="The longest spec.gracePeriodSeconds of a SliceClaim. Left out: 3600.",
        ),
    ] = 3600
    shared_nodes: Annotated[
        int,
        Meta(
            ge=0,
            le=10_000,
            description="How many nodes stay everybody's when nodes are taken for a claim: of those that any pod can"
            " run on, and that nobody contributed. 0: a tenant whose quota allows it can have them all, and pods of the"
            " cluster itself, as those of its DNS, have nowhere to run. Left out: 1.",
        ),
    ] = 1
    cleaning: Annotated[
        CleaningPolicy,
        Meta(
            description="Which nodes a slice gives back only when what its tenant left there is removed. WhereAgents:"
            " those whose agent does it; others go back as they are. Required: all; one without an agent stays set"
            " aside until an administrator says with `tenantry node cleaned` that it is clean."
        ),
    ] = CleaningPolicy.WHERE_AGENTS


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
    network: Annotated[NetworkDefaults, Meta(description="What is around the tenants.")] = NetworkDefaults()
    sandbox: Annotated[SandboxDefaults, Meta(description="In which runtime sandboxed pods run.")] = SandboxDefaults()
    slices: Annotated[SliceDefaults, Meta(description="What tenants may ask of nodes of their own.")] = SliceDefaults()
    fairness: Annotated[Fairness, Meta(description="How the API server's work is shared out between tenants.")] = (
        Fairness()
    )
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
