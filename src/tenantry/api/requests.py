"""Requests: what people ask for, and others approve. TenantRequest, RoleRequest, ClusterRoleRequest (E16)."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import Meta

from tenantry.api.crd import Column, Names, Rule, list_map
from tenantry.api.marks import GROUP, VERSION
from tenantry.api.model import Condition, KubernetesObject, Model, Resource
from tenantry.api.names import DNS_LABEL
from tenantry.api.owner import Owner
from tenantry.api.quota import Quantities, Quota
from tenantry.api.times import Instant

SHORTEST_SECONDS = 60
LONGEST_SECONDS = 10 * 365 * 86_400
MAX_GROUPS = 1024
"""Of whoever asks: as many as a Windows domain lets somebody have, since one more refuses the request."""
MAX_SUBJECTS = 32
LONGEST_NAME = 63
"""Of a request: what it becomes has it as a label."""

REQUEST = "tenantry.dev/request"
REQUEST_UID = "tenantry.dev/request-uid"
"""On what an approved request has become."""

ROLE_BINDING_PREFIX = "request-"
CLUSTER_ROLE_BINDING_PREFIX = "tenantry-request-"
"""With the request's name, the name of the binding that it becomes."""

APPROVALS = "tenantry-automatic-approval"
"""The ConfigMap that says which TenantRequests the operator may approve, for the policy of the same name.

No custom kind: see `tenancyrules.RulesMap`. Each line of `REASONS` in it is what status.reason says then.
"""

APPROVALS_MARK = "approvals"
"""The value of its label `tenancyrules.OWN_MARK`."""

REASONS = "reasons"


class Decision(StrEnum):
    """What was said of a request."""

    PENDING = "Pending"
    APPROVED = "Approved"
    DENIED = "Denied"


class Requester(Model, frozen=True, kw_only=True):
    """Who asked, as the API server saw them; what a client says here is overwritten."""

    name: Annotated[str, Meta(max_length=1024, description="The user name.")] = ""
    groups: Annotated[
        tuple[Annotated[str, Meta(max_length=1024)], ...], Meta(max_length=MAX_GROUPS, description="Its groups.")
    ] = ()


class SubjectKind(StrEnum):
    """What a subject is, in RBAC's words."""

    USER = "User"
    GROUP = "Group"


class RequestedSubject(Model, frozen=True, kw_only=True):
    """Who is to have the role."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!(self.name.startsWith('system:') || self.name.startsWith('tenantry:'))",
            "must not begin with system: or tenantry:, which name users and groups of Kubernetes and of Tenantry",
            field="name",
        ),
    )

    kind: Annotated[SubjectKind, Meta(description="User or Group.")]
    name: Annotated[str, Meta(min_length=1, max_length=253, description="As the API server knows it.")]


class RoleKind(StrEnum):
    """Which roles can be asked for in a namespace."""

    ROLE = "Role"
    CLUSTER_ROLE = "ClusterRole"


class ClusterRoleKind(StrEnum):
    """Which roles can be asked for in the whole cluster."""

    CLUSTER_ROLE = "ClusterRole"


_RoleName = Annotated[str, Meta(min_length=1, max_length=253, description="The role's name.")]
_Justification = Annotated[str, Meta(max_length=4096, description="Why, for whoever decides.")]
_Requester = Annotated[
    Requester,
    Meta(description="Who asked: written by the API server when the request is made; what a client says is dropped."),
]
_Duration = Annotated[
    int,
    Meta(ge=0, le=LONGEST_SECONDS, description="How long it is wanted, counted from the grant; 0 for without end."),
]
_Subjects = Annotated[
    tuple[RequestedSubject, ...],
    Meta(max_length=MAX_SUBJECTS, description="Who is to have the role; whoever asks, where nobody is named."),
]

_NEVER_CHANGES = Rule("self == oldSelf", "must not change: make a new request")
_LONG_ENOUGH = Rule(
    f"!has(self.durationSeconds) || self.durationSeconds == 0 || self.durationSeconds >= {SHORTEST_SECONDS}",
    f"must be 0, for without end, or at least {SHORTEST_SECONDS}",
    field="durationSeconds",
)
_NAME = Rule(
    f"size(self.metadata.name) <= {LONGEST_NAME}",
    f"must be at most {LONGEST_NAME} characters long",
    field="metadata.name",
)


def _somebody(field: str) -> Rule:
    """Return the rule that Kubernetes' and Tenantry's own identities say for whom they ask."""
    return Rule(
        f"has(self.{field}) && size(self.{field}) > 0 || !has(self.requester) || !has(self.requester.name)"
        " || !(self.requester.name.startsWith('system:') || self.requester.name.startsWith('tenantry:'))",
        "must name somebody, because who asks is a ServiceAccount or a part of Kubernetes",
        field=field,
    )


class TenantRequestSpec(Model, frozen=True, kw_only=True):
    """Which tenant is asked for."""

    validations: ClassVar[tuple[Rule, ...]] = (
        _NEVER_CHANGES,
        _LONG_ENOUGH,
        _somebody("owners"),
        Rule(
            "self.tenant != 'default' && !self.tenant.startsWith('kube-') && !self.tenant.startsWith('tenantry-')",
            "must not be default nor begin with kube- or tenantry-, which are reserved; choose another name",
            field="tenant",
        ),
    )

    requester: _Requester = Requester()
    tenant: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=63,
            pattern=DNS_LABEL,
            description="The name of the tenant, and of its namespace.",
        ),
    ]
    owners: Annotated[
        tuple[Owner, ...], Meta(max_length=64, description="Its owners; whoever asks, where nobody is named.")
    ] = ()
    quota: Annotated[Quota, Meta(description="What the whole tenant may use; no key, no limit.")] = Quota()
    justification: _Justification = ""
    duration_seconds: _Duration = 0


class RequestedRole(Model, frozen=True, kw_only=True):
    """A role in the namespace, or one of the cluster's that is to count there."""

    kind: Annotated[RoleKind, Meta(description="Role or ClusterRole.")]
    name: _RoleName


class RequestedClusterRole(Model, frozen=True, kw_only=True):
    """A role that is to count in the whole cluster."""

    kind: Annotated[ClusterRoleKind, Meta(description="ClusterRole.")] = ClusterRoleKind.CLUSTER_ROLE
    name: _RoleName


class RoleRequestSpec(Model, frozen=True, kw_only=True):
    """Which role is asked for, for whom, and how long."""

    validations: ClassVar[tuple[Rule, ...]] = (_NEVER_CHANGES, _LONG_ENOUGH, _somebody("subjects"))

    requester: _Requester = Requester()
    role_ref: Annotated[RequestedRole, Meta(description="The role.")]
    subjects: _Subjects = ()
    justification: _Justification = ""
    duration_seconds: _Duration = 0


class ClusterRoleRequestSpec(Model, frozen=True, kw_only=True):
    """Which role is asked for in the whole cluster, for whom, and how long."""

    validations: ClassVar[tuple[Rule, ...]] = (_NEVER_CHANGES, _LONG_ENOUGH, _somebody("subjects"))

    requester: _Requester = Requester()
    role_ref: Annotated[RequestedClusterRole, Meta(description="The role.")]
    subjects: _Subjects = ()
    justification: _Justification = ""
    duration_seconds: _Duration = 0


class RequestStatus(Model, frozen=True, kw_only=True):
    """What was decided, and what came of it."""

    observed_generation: Annotated[
        int, Meta(description="The generation of the spec that the conditions are about.")
    ] = 0
    decision: Annotated[
        Decision, Meta(description="Approved or Denied, once and for ever, by somebody who may; Pending until then.")
    ] = Decision.PENDING
    reason: Annotated[str, Meta(max_length=4096, description="What whoever decided said of it.")] = ""
    decided_by: Annotated[
        str,
        Meta(max_length=1024, description="Who decided: written by the API server; what a client says is dropped."),
    ] = ""
    granted: Annotated[str, Meta(description="What was made of it: the name of the Tenant or of the binding.")] = ""
    expires_at: Annotated[Instant, Meta(description="When the grant ends by itself; empty for never.")] = ""
    conditions: Annotated[tuple[Condition, ...], Meta(max_length=16, extra_json_schema=list_map("type"))] = ()


def _columns(what: Column) -> tuple[Column, ...]:
    return (
        what,
        Column("Requester", "string", ".spec.requester.name"),
        Column("Decision", "string", ".status.decision"),
        Column("By", "string", ".status.decidedBy"),
        Column("Ready", "string", '.status.conditions[?(@.type=="Ready")].status'),
        Column("Until", "string", ".status.expiresAt", priority=1),
        Column("Message", "string", '.status.conditions[?(@.type=="Ready")].message', priority=1),
        Column("Age", "date", ".metadata.creationTimestamp"),
    )


class TenantRequest(KubernetesObject, frozen=True, kw_only=True):
    """Somebody asks for a tenant; approved, it is made, and stays when the request goes."""

    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "tenantrequests", "TenantRequest", namespaced=False)
    names: ClassVar[Names] = Names(singular="tenantrequest", short=("treq",), categories=("tenantry",))
    validations: ClassVar[tuple[Rule, ...]] = (_NAME,)
    columns: ClassVar[tuple[Column, ...]] = _columns(Column("Tenant", "string", ".spec.tenant"))

    spec: TenantRequestSpec
    status: RequestStatus = RequestStatus()


class RoleRequest(KubernetesObject, frozen=True, kw_only=True):
    """Somebody asks for a role in a namespace of a tenant; theirs as long as the approved request is there."""

    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "rolerequests", "RoleRequest")
    names: ClassVar[Names] = Names(singular="rolerequest", short=("rreq",), categories=("tenantry",))
    validations: ClassVar[tuple[Rule, ...]] = (_NAME,)
    columns: ClassVar[tuple[Column, ...]] = _columns(Column("Role", "string", ".spec.roleRef.name"))

    spec: RoleRequestSpec
    status: RequestStatus = RequestStatus()


class ClusterRoleRequest(KubernetesObject, frozen=True, kw_only=True):
    """Somebody asks for a role in the whole cluster; theirs as long as the approved request is there."""

    resource: ClassVar[Resource] = Resource(
        GROUP, VERSION, "clusterrolerequests", "ClusterRoleRequest", namespaced=False
    )
    names: ClassVar[Names] = Names(singular="clusterrolerequest", short=("crreq",), categories=("tenantry",))
    validations: ClassVar[tuple[Rule, ...]] = (_NAME,)
    columns: ClassVar[tuple[Column, ...]] = _columns(Column("Role", "string", ".spec.roleRef.name"))

    spec: ClusterRoleRequestSpec
    status: RequestStatus = RequestStatus()


Request = TenantRequest | RoleRequest | ClusterRoleRequest
RoleGrant = RoleRequest | ClusterRoleRequest
"""Any of them."""

REQUESTS = (TenantRequest, RoleRequest, ClusterRoleRequest)


class AutoApproval(Model, frozen=True, kw_only=True):
    """Whose TenantRequests are approved by themselves: all that is said here must be so."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.groups) && size(self.groups) > 0 || has(self.domains) && size(self.domains) > 0",
            "must name groups or domains; the group system:authenticated is everybody",
        ),
        Rule(
            "!has(self.domains) || self.domains.all(d, size(d) > 0 && !d.contains('@'))",
            "must be what stands behind the @ of addresses, as in example.com",
            field="domains",
        ),
    )

    name: Annotated[str, Meta(min_length=1, max_length=63, description="What it is known by, in status.reason.")]
    groups: Annotated[
        tuple[Annotated[str, Meta(max_length=253)], ...],
        Meta(max_length=32, description="Who asks must be in one of these groups."),
    ] = ()
    domains: Annotated[
        tuple[Annotated[str, Meta(max_length=253)], ...],
        Meta(max_length=32, description="The name of who asks must be an address in one of these mail domains."),
    ] = ()
    max_quota: Annotated[
        Quantities,
        Meta(description="The request's quota must limit each of these keys, and to no more than this."),
    ] = {}
    max_duration_seconds: Annotated[
        int,
        Meta(ge=0, le=LONGEST_SECONDS, description="It must be asked for no longer than this; 0 for any time."),
    ] = 0
