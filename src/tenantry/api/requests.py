"""Requests that approvers decide: TenantRequest, RoleRequest, ClusterRoleRequest (E16)."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import Meta

from tenantry.api.crd import AGE, MESSAGE, READY, Column, Conditions, Names, ObservedGeneration, Rule
from tenantry.api.marks import GROUP, VERSION
from tenantry.api.model import READ, KindAccess, KubernetesObject, Model, Resource
from tenantry.api.names import DNS_LABEL
from tenantry.api.owner import Owner
from tenantry.api.quota import Quantities, Quota
from tenantry.api.times import Instant

SHORTEST_SECONDS = 60
LONGEST_SECONDS = 10 * 365 * 86_400
MAX_GROUPS = 1024
"""Of the requester. A Windows domain allows as many; with one more, the API server rejects the request."""
MAX_SUBJECTS = 32
LONGEST_NAME = 63
"""Of a request: what it becomes has it as a label."""

REQUEST = "tenantry.dev/request"
REQUEST_UID = "tenantry.dev/request-uid"
"""On what an approved request has become."""

ROLE_BINDING_PREFIX = "request-"
CLUSTER_ROLE_BINDING_PREFIX = "tenantry-request-"
"""With the request's name, the name of the binding that it becomes."""

FINALIZER = "tenantry.dev/request"
"""On a TenantRequest that its requester may read: the right ends before another user can take the name."""

REQUESTER_ROLE_PREFIX = "tenantry-requester-"
"""With a digest of a user name, the name of the ClusterRole and ClusterRoleBinding by which that user reads the own
TenantRequests."""

APPROVALS = "tenantry-automatic-approval"
"""The `PolicyParameters` with the TenantRequests that the operator may approve, for the policy of the same name.

Each line of their text `REASONS` is a permitted status.reason.
"""

APPROVALS_MARK = "approvals"
"""The value of their label `tenancyrules.OWN_MARK`."""

REASONS = "reasons"


class Decision(StrEnum):
    """The decision on a request."""

    PENDING = "Pending"
    APPROVED = "Approved"
    DENIED = "Denied"


class Requester(Model, frozen=True, kw_only=True):
    """The user that created the request; the API server overwrites what a client sends."""

    name: Annotated[str, Meta(max_length=1024, description="The user name.")] = ""
    groups: Annotated[
        tuple[Annotated[str, Meta(max_length=1024)], ...], Meta(max_length=MAX_GROUPS, description="Its groups.")
    ] = ()


class SubjectKind(StrEnum):
    """What a subject is, in RBAC's words."""

    USER = "User"
    GROUP = "Group"


class RequestedSubject(Model, frozen=True, kw_only=True):
    """The user or group that is to get the role."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!(self.name.startsWith('system:') || self.name.startsWith('tenantry:'))",
            "must not begin with system: or tenantry:, which name users and groups of Kubernetes and of Tenantry",
            field="name",
        ),
    )

    kind: Annotated[SubjectKind, Meta(description="User or Group.")]
    name: Annotated[str, Meta(min_length=1, max_length=253, description="The name that the API server authenticates.")]


class RoleKind(StrEnum):
    """The kinds of roles that can be requested in a namespace."""

    ROLE = "Role"
    CLUSTER_ROLE = "ClusterRole"


class ClusterRoleKind(StrEnum):
    """The kinds of roles that can be requested in the whole cluster."""

    CLUSTER_ROLE = "ClusterRole"


_RoleName = Annotated[str, Meta(min_length=1, max_length=253, description="The role's name.")]
_Justification = Annotated[str, Meta(max_length=4096, description="The reason for the request, for the approvers.")]
_Requester = Annotated[
    Requester,
    Meta(description="The user that created the request. The API server writes it and drops what a client sends."),
]
_Duration = Annotated[
    int,
    Meta(ge=0, le=LONGEST_SECONDS, description="How long the grant lasts, in seconds from the approval; 0 for no end."),
]
_Subjects = Annotated[
    tuple[RequestedSubject, ...],
    Meta(max_length=MAX_SUBJECTS, description="The users and groups that are to get the role. Default: the requester."),
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


def _some_subject(field: str) -> Rule:
    """Return the rule that identities of Kubernetes and Tenantry must name whom they request something for."""
    return Rule(
        f"has(self.{field}) && size(self.{field}) > 0 || !has(self.requester) || !has(self.requester.name)"
        " || !(self.requester.name.startsWith('system:') || self.requester.name.startsWith('tenantry:'))",
        "must not be empty, because the requester is a ServiceAccount or a part of Kubernetes",
        field=field,
    )


class TenantRequestSpec(Model, frozen=True, kw_only=True):
    """The requested tenant."""

    validations: ClassVar[tuple[Rule, ...]] = (
        _NEVER_CHANGES,
        _LONG_ENOUGH,
        _some_subject("owners"),
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
            description="The name of the tenant and of its core namespace.",
        ),
    ]
    owners: Annotated[
        tuple[Owner, ...], Meta(max_length=64, description="The owners of the tenant. Default: the requester.")
    ] = ()
    quota: Annotated[
        Quota, Meta(description="What the whole tenant may use; a key that is not listed is not limited.")
    ] = Quota()
    justification: _Justification = ""
    duration_seconds: _Duration = 0


class RequestedRole(Model, frozen=True, kw_only=True):
    """A Role of the namespace, or a ClusterRole to be bound in it."""

    kind: Annotated[RoleKind, Meta(description="Role or ClusterRole.")]
    name: _RoleName


class RequestedClusterRole(Model, frozen=True, kw_only=True):
    """A ClusterRole to be bound in the whole cluster."""

    kind: Annotated[ClusterRoleKind, Meta(description="ClusterRole.")] = ClusterRoleKind.CLUSTER_ROLE
    name: _RoleName


class RoleRequestSpec(Model, frozen=True, kw_only=True):
    """The requested role, its subjects and its duration."""

    validations: ClassVar[tuple[Rule, ...]] = (_NEVER_CHANGES, _LONG_ENOUGH, _some_subject("subjects"))

    requester: _Requester = Requester()
    role_ref: Annotated[RequestedRole, Meta(description="The role.")]
    subjects: _Subjects = ()
    justification: _Justification = ""
    duration_seconds: _Duration = 0


class ClusterRoleRequestSpec(Model, frozen=True, kw_only=True):
    """The requested cluster-wide role, its subjects and its duration."""

    validations: ClassVar[tuple[Rule, ...]] = (_NEVER_CHANGES, _LONG_ENOUGH, _some_subject("subjects"))

    requester: _Requester = Requester()
    role_ref: Annotated[RequestedClusterRole, Meta(description="The role.")]
    subjects: _Subjects = ()
    justification: _Justification = ""
    duration_seconds: _Duration = 0


class RequestStatus(Model, frozen=True, kw_only=True):
    """What was decided, and what came of it."""

    observed_generation: ObservedGeneration = 0
    decision: Annotated[
        Decision, Meta(description="Pending, Approved or Denied. Only approvers decide, and a decision is final.")
    ] = Decision.PENDING
    reason: Annotated[str, Meta(max_length=4096, description="The reason that the approver gave.")] = ""
    decided_by: Annotated[
        str,
        Meta(
            max_length=1024,
            description="The user that decided. The API server writes it and drops what a client sends.",
        ),
    ] = ""
    granted: Annotated[str, Meta(description="The name of the Tenant or of the binding that the operator created.")] = (
        ""
    )
    expires_at: Annotated[Instant, Meta(description="When the grant expires. Empty: never.")] = ""
    conditions: Conditions = ()


def _columns(what: Column) -> tuple[Column, ...]:
    return (
        what,
        Column("Requester", "string", ".spec.requester.name"),
        Column("Decision", "string", ".status.decision"),
        Column("By", "string", ".status.decidedBy"),
        READY,
        Column("Until", "string", ".status.expiresAt", priority=1),
        MESSAGE,
        AGE,
    )


_ACCESS = KindAccess(operator=(*READ, "delete"), updates=("status", "finalizers"))
"""The operator deletes the newest of too many undecided requests."""

_TENANT_ACCESS = KindAccess(operator=(*READ, "patch", "delete"), updates=("status", "finalizers"))
"""The operator also writes the finalizer."""


class TenantRequest(KubernetesObject, frozen=True, kw_only=True):
    """A request for a tenant. When it is approved, the operator creates the tenant, which outlives the request."""

    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "tenantrequests", "TenantRequest", namespaced=False)
    names: ClassVar[Names] = Names(short=("treq",))
    access: ClassVar[KindAccess] = _TENANT_ACCESS
    validations: ClassVar[tuple[Rule, ...]] = (_NAME,)
    columns: ClassVar[tuple[Column, ...]] = _columns(Column("Tenant", "string", ".spec.tenant"))

    spec: TenantRequestSpec
    status: RequestStatus = RequestStatus()


class RoleRequest(KubernetesObject, frozen=True, kw_only=True):
    """A request for a role in a namespace of a tenant. The binding exists as long as the approved request does."""

    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "rolerequests", "RoleRequest")
    names: ClassVar[Names] = Names(short=("rreq",))
    access: ClassVar[KindAccess] = _ACCESS
    validations: ClassVar[tuple[Rule, ...]] = (_NAME,)
    columns: ClassVar[tuple[Column, ...]] = _columns(Column("Role", "string", ".spec.roleRef.name"))

    spec: RoleRequestSpec
    status: RequestStatus = RequestStatus()


class ClusterRoleRequest(KubernetesObject, frozen=True, kw_only=True):
    """A request for a role in the whole cluster. The binding exists as long as the approved request does."""

    resource: ClassVar[Resource] = Resource(
        GROUP, VERSION, "clusterrolerequests", "ClusterRoleRequest", namespaced=False
    )
    names: ClassVar[Names] = Names(short=("crreq",))
    access: ClassVar[KindAccess] = _ACCESS
    validations: ClassVar[tuple[Rule, ...]] = (_NAME,)
    columns: ClassVar[tuple[Column, ...]] = _columns(Column("Role", "string", ".spec.roleRef.name"))

    spec: ClusterRoleRequestSpec
    status: RequestStatus = RequestStatus()


Request = TenantRequest | RoleRequest | ClusterRoleRequest
RoleGrant = RoleRequest | ClusterRoleRequest
"""Any of them."""

REQUESTS = (TenantRequest, RoleRequest, ClusterRoleRequest)


class AutoApproval(Model, frozen=True, kw_only=True):
    """A rule by which the operator approves TenantRequests. A request must meet every condition of the rule."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.groups) && size(self.groups) > 0 || has(self.domains) && size(self.domains) > 0",
            "must name groups or domains; the group system:authenticated has every user",
        ),
        Rule(
            "!has(self.domains) || self.domains.all(d, size(d) > 0 && !d.contains('@'))",
            "must be mail domains without the @, for example example.com",
            field="domains",
        ),
    )

    name: Annotated[
        str, Meta(min_length=1, max_length=63, description="The name of the rule, which status.reason mentions.")
    ]
    groups: Annotated[
        tuple[Annotated[str, Meta(max_length=253)], ...],
        Meta(max_length=32, description="The requester must be in one of these groups."),
    ] = ()
    domains: Annotated[
        tuple[Annotated[str, Meta(max_length=253)], ...],
        Meta(max_length=32, description="The name of the requester must be an address in one of these mail domains."),
    ] = ()
    max_quota: Annotated[
        Quantities,
        Meta(description="The quota of the request must limit each of these keys to at most this quantity."),
    ] = {}
    max_duration_seconds: Annotated[
        int,
        Meta(
            ge=0,
            le=LONGEST_SECONDS,
            description="The longest duration that a request may ask for, in seconds; 0 for any duration.",
        ),
    ] = 0
