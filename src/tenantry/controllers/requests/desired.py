"""The objects that approved requests become, and automatic approval: pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tenantry.api import marks, reasons
from tenantry.api.errors import AlreadyExists, InputError
from tenantry.api.kubernetes import RBAC_GROUP, ClusterRoleBinding, RoleBinding, RoleRef, Subject
from tenantry.api.model import ObjectMeta, OwnerReference
from tenantry.api.owner import Owner, OwnerKind
from tenantry.api.policyparameters import parameters
from tenantry.api.requests import (
    APPROVALS,
    APPROVALS_MARK,
    REASONS,
    REQUEST,
    REQUEST_UID,
    AutoApproval,
    ClusterRoleRequest,
    Decision,
    Request,
    RoleRequest,
    SubjectKind,
    TenantRequest,
)
from tenantry.api.tenant import Tenant, TenantQuota, TenantSpec
from tenantry.controllers.requests.gather import GrantInputs, TenantRequestInputs, binding_kind, binding_name
from tenantry.engine.observed import Observed
from tenantry.engine.plan import Blocked, Child, DirectWrite, Equivalent, Lookup, Plan, compare, same
from tenantry.engine.request import create as creation_of
from tenantry.world import quantity, quota

MOST_PENDING = 20
"""How many undecided requests of one kind a requester may have."""

ACCOUNTS = "system:serviceaccount:"
"""Before the namespace and the name of a ServiceAccount in its user name; all of a namespace are a group."""


def counted_as(request: Request) -> str:
    """Return the requester that a request is counted for: a user, or all ServiceAccounts of a namespace together.

    A user who may create one ServiceAccount there may create a hundred.
    """
    name = request.spec.requester.name
    if not name.startswith(ACCOUNTS):
        return name
    namespace, _, _ = name.removeprefix(ACCOUNTS).partition(":")
    return f"system:serviceaccounts:{namespace}"


def requester_of(request: Request) -> list[str]:
    """Return the requester of an undecided request, for an index."""
    return [counted_as(request)] if request.status.decision is Decision.PENDING else []


def surplus(pending: Iterable[Request]) -> list[Request]:
    """Return the newest of too many pending requests; within one second, the names decide.

    Args:
        pending: All undecided requests of one kind and one requester.
    """
    # Every reconcile, also of the next leader, must withdraw the same ones.
    return sorted(pending, key=lambda each: (each.metadata.creation_timestamp, each.key))[MOST_PENDING:]


def plan(inputs: GrantInputs, equivalent: Equivalent = same) -> Plan:
    """Return the writes for a RoleRequest or ClusterRoleRequest."""
    request, found = inputs.request, inputs.binding
    if inputs.is_given:
        return compare([binding(request, inputs.tenant)], inputs.lookup, equivalent=equivalent)
    return taken_back(found, namespaced=request.resource.namespaced) if found is not None else Plan()


def taken_back(found: Observed, *, namespaced: bool) -> Plan:
    """Return the plan that deletes the binding of a request."""
    return compare((), lambda _, __: None, stale=[(binding_kind(namespaced=namespaced).resource, found)])


def binding(request: RoleRequest | ClusterRoleRequest, tenant: str = "") -> Child:
    """Return the binding that an approved request is.

    Args:
        request: Approved, and not ended.
        tenant: The tenant of a RoleRequest's namespace.
    """
    # With the API group, which the API server would fill in: a difference in roleRef deletes and creates the binding.
    spec = request.spec
    ref = RoleRef(kind=spec.role_ref.kind, name=spec.role_ref.name, api_group=RBAC_GROUP)
    asked = [(subject.kind.value, subject.name) for subject in spec.subjects]
    subjects = tuple(
        Subject(kind=kind, name=name, api_group=RBAC_GROUP)
        for kind, name in asked or [(SubjectKind.USER.value, spec.requester.name)]
    )
    meta = _meta(request, tenant)
    made = (
        RoleBinding(metadata=meta, role_ref=ref, subjects=subjects)
        if isinstance(request, RoleRequest)
        else ClusterRoleBinding(metadata=meta, role_ref=ref, subjects=subjects)
    )
    return Child(object=made, wave=0, owner_uid=request.metadata.uid)


def labels_of(request: Request) -> dict[str, str]:
    """Return the labels of the object that a request has become."""
    return {REQUEST: request.metadata.name, REQUEST_UID: request.metadata.uid}


def _meta(request: RoleRequest | ClusterRoleRequest, tenant: str) -> ObjectMeta:
    resource, meta = request.resource, request.metadata
    owner = OwnerReference(
        api_version=resource.api_version,
        kind=resource.kind,
        name=meta.name,
        uid=meta.uid,
        controller=True,
        block_owner_deletion=True,
    )
    whose = {marks.TENANT: tenant} if tenant else {}
    return ObjectMeta(
        name=binding_name(meta.name, namespaced=resource.namespaced),
        namespace=meta.namespace,
        labels={marks.MANAGED_BY: marks.MANAGER, **whose, **labels_of(request)},
        owner_references=(owner,),
    )


def plan_tenant(inputs: TenantRequestInputs) -> Plan:
    """Return the creation of a requested tenant, once: if it is deleted later, it is not created again."""
    request = inputs.request
    if request.status.granted or request.status.decision is Decision.DENIED or inputs.is_made:
        return Plan()
    if inputs.tenant is not None:
        message = f"tenant {request.spec.tenant!r} exists already: request another name"
        return Plan(blocked=(Blocked(reason=reasons.TENANT_EXISTS, message=message),))
    if request.status.decision is not Decision.APPROVED:
        return Plan()
    # A cache may lag behind a creation of the same name: the API server's 409 decides.
    creation = creation_of(tenant(request, request.status.expires_at))
    return Plan(writes=(DirectWrite(request=creation, ignores=(AlreadyExists,)),))


def tenant(request: TenantRequest, expires_at: str) -> Tenant:
    """Return the tenant that an approved request becomes; from then on it is its administrators' to change.

    Args:
        request: Approved.
        expires_at: The time at which it is suspended automatically; "" for never.
    """
    spec = request.spec
    # No owner reference: to delete a request must not delete the tenant.
    return Tenant(
        metadata=ObjectMeta(name=spec.tenant, labels=labels_of(request)),
        spec=TenantSpec(
            owners=spec.owners or (Owner(kind=OwnerKind.USER, name=spec.requester.name),),
            quota=TenantQuota(hard=spec.quota.hard),
            expires_at=expires_at,
        ),
    )


def plan_approvals(rules: Sequence[AutoApproval], lookup: Lookup, equivalent: Equivalent = same) -> Plan:
    """Return the writes that publish the rules by which requests are approved without a person."""
    return compare([approvals(rules)], lookup, equivalent=equivalent)


def approvals(rules: Sequence[AutoApproval]) -> Child:
    """Return the parameters with the rules; without them, a policy refuses automatic approvals."""
    lines = "\n".join(sorted(map(_reason, rules)))
    return Child(object=parameters(APPROVALS, marks.SYSTEM_NAMESPACE, APPROVALS_MARK, {REASONS: lines}), wave=0)


def fitting(request: TenantRequest, rules: Sequence[AutoApproval]) -> str:
    """Return the reason of the first rule that approves a request without a person; "" if none does."""
    spec = request.spec
    own = Owner(kind=OwnerKind.USER, name=spec.requester.name)
    # A rule must not make a user the owner of a tenant whom the requester has only named.
    if any(owner != own for owner in spec.owners):
        return ""  # a person must approve that another user becomes an owner
    return next((_reason(rule) for rule in rules if _fits(request, rule)), "")


def _reason(rule: AutoApproval) -> str:
    """Return the reason in the status of a request that a rule approved: one line, also for a name with line breaks."""
    return f"TenancyDefaults spec.autoApprove {rule.name!r}"


def _fits(request: TenantRequest, rule: AutoApproval) -> bool:
    spec = request.spec
    _, at, domain = spec.requester.name.rpartition("@")
    # Only ASCII is lowered: some other letters have an ASCII lower case, such as the Kelvin sign, whose is "k".
    domains = {each.encode().lower() for each in rule.domains}
    if rule.groups and not set(rule.groups) & set(spec.requester.groups):
        return False
    if domains and not (at and domain.encode().lower() in domains):
        return False
    # A rule without a condition on the requester would approve every user.
    if not rule.groups and not rule.domains:
        return False
    # 0 means forever, which is longer than any limit.
    if rule.max_duration_seconds and not 0 < spec.duration_seconds <= rule.max_duration_seconds:
        return False
    try:
        asked, most = quota.normal(spec.quota.hard), quota.normal(rule.max_quota)
    except InputError:
        return False
    # A key that the request does not limit is unlimited in the tenant, so each key of the rule must be in the request.
    return all(key in asked and quantity.parse(asked[key]) <= quantity.parse(limit) for key, limit in most.items())
