"""Check whether a Subnamespace may have its namespace: named checks of one input, of which the first failure counts.

Admission refuses most of these cases. The reconciler checks them again, because an object can be created while a policy
is not in force yet, and can become invalid later. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import UNSET

from tenantry.api import marks, reasons
from tenantry.api.conversion import CHILD_BRINGER
from tenantry.api.errors import InputError
from tenantry.api.kubernetes import Namespace, RoleBinding
from tenantry.api.model import object_key
from tenantry.api.peercluster import HOME_ID, HOME_NAMESPACE, HOME_PATH
from tenantry.api.subnamespace import Mode, Subnamespace
from tenantry.api.tenant import MarkRules, Tenant
from tenantry.controllers import controlplane
from tenantry.controllers.lineage import DEEPEST
from tenantry.controllers.subnamespace.gather import SubnamespaceInputs
from tenantry.controllers.tenancyrules import rules_of
from tenantry.controllers.watched import tenant_of
from tenantry.engine.observed import Observed
from tenantry.engine.plan import Blocked
from tenantry.policy.catalog import violations
from tenantry.policy.check import matches
from tenantry.policy.request import Request
from tenantry.world.naming import is_name_of
from tenantry.world.rulechecks import is_pattern

Check = Callable[[SubnamespaceInputs, Tenant], Blocked | None]


def blocked(inputs: SubnamespaceInputs) -> Blocked | None:
    """Return the first obstacle; None if there is none."""
    if inputs.lease_problem:
        return Blocked(reason=reasons.INVALID_SPEC, message=f"spec.expiresAt: {inputs.lease_problem}")
    where = inputs.subnamespace.metadata.namespace
    # The API server creates nothing in a terminating namespace, and deletes the Subnamespace with it.
    if inputs.parent is not None and inputs.parent.deleting:
        return Blocked(
            reason=reasons.NAMESPACE_TERMINATING, message=f"namespace {where!r} is being deleted", passing=True
        )
    tenant = inputs.tenant
    if tenant is None or not inputs.ancestors:
        return Blocked(reason=reasons.NOT_A_TENANTS_NAMESPACE, message=_tenantless(where, inputs.parent))
    checks: Iterable[Check] = (
        *(_owned, _blind, _not_taken, _not_restored, _adoptable, _kept),
        *(_marked, _ruled, _named, _exact, _limited, _given),
    )
    return next((found for check in checks if (found := check(inputs, tenant)) is not None), None)


def _tenantless(where: str, parent: Observed | None) -> str:
    if parent is not None and tenant_of(parent) and marks.KIND in parent.labels:
        return (
            f"namespace {where!r} has the labels of tenant {tenant_of(parent)[0]!r} and the uid of another one, as"
            " after a restore: an administrator binds it with `tenantry adopt`"
        )
    return f"namespace {where!r} does not belong to a tenant; create the Subnamespace in a tenant's namespace"


def _owned(inputs: SubnamespaceInputs, _: Tenant) -> Blocked | None:
    # Without an owner, only administrators could use the namespace.
    if inputs.owners:
        return None
    return Blocked(
        reason=reasons.INVALID_SPEC,
        message="spec.owners must have at least one owner, unless a Workspace inherits roleBindings",
    )


def _blind(inputs: SubnamespaceInputs, _: Tenant) -> Blocked | None:
    """Check that no owner of a namespace above becomes the owner of a Subtenant (DESIGN section 4, Blindness).

    Admission reads only the owner binding of the parent, which may be missing for a moment.
    """
    spec = inputs.subnamespace.spec
    if inputs.bound is not None or spec.mode is not Mode.SUBTENANT:
        return None
    both = [owner.name for owner in spec.owners if owner in inputs.owners_above]
    if not both:
        return None
    return Blocked(
        reason=reasons.NOT_ALLOWED,
        message=f"spec.owners of a Subtenant must not have {both[0]!r}, an owner of a namespace above:"
        " delete the Subnamespace and name another owner",
    )


def _not_taken(inputs: SubnamespaceInputs, _: Tenant) -> Blocked | None:
    """Check that the namespace has not moved away: creating another one of its name would undo the move."""
    other = inputs.adopted_by
    if inputs.bound is not None or other is None or not other.status.namespace:
        return None
    if not _is_older(inputs.subnamespace, other):
        return None  # this one was created after the move of another Subnamespace's namespace
    return Blocked(
        reason=reasons.CANNOT_ADOPT,
        message=f"its namespace has moved to {other.key!r}; this Subnamespace is being deleted",
        passing=True,
    )


def _not_restored(inputs: SubnamespaceInputs, _: Tenant) -> Blocked | None:
    """Check that no namespace waits to be adopted: a second one would take its place, without what runs there."""
    found = inputs.restored
    if found is None:
        return None
    return Blocked(
        reason=reasons.NAME_TAKEN,
        message=f"namespace {found.name!r} belonged to a Subnamespace of this name with another uid, as after a"
        " restore: an administrator binds it to this one with `tenantry adopt`, or deletes it",
    )


def _adoptable(inputs: SubnamespaceInputs, tenant: Tenant) -> Blocked | None:
    """Check that a namespace may be adopted: an administrator has labelled it, or it moves within its tenant."""
    adopt = inputs.subnamespace.spec.adopt
    if not adopt.namespace or inputs.bound is not None:
        return None
    found = inputs.adoptee
    if not adopt.parent:
        # Only administrators learn whether it exists: its name may belong to another tenant.
        return _cannot(
            f"namespace {adopt.namespace!r}, if it exists, needs an administrator's label"
            f" {marks.SUBNAMESPACE_UID}={inputs.subnamespace.metadata.uid}"
        )
    old = inputs.adopted_from
    if found is None or old is None or found.labels.get(marks.SUBNAMESPACE_UID) != old.metadata.uid:
        key = object_key(adopt.parent, inputs.subnamespace.metadata.name)
        return _cannot(f"namespace {adopt.namespace!r} is not the child of Subnamespace {key!r}")
    if not _is_older(old, inputs.subnamespace):
        # Admission checked the mover's right to an object of this name: a younger object was not checked.
        return _cannot(f"Subnamespace {old.key!r} was created after this one: delete this one and move it again")
    why = _immovable(inputs, tenant, found)
    return _cannot(why) if why else None


def _immovable(inputs: SubnamespaceInputs, tenant: Tenant, found: Observed) -> str:
    """Return why a namespace cannot be moved here; "" if it can."""
    subnamespace = inputs.subnamespace
    converts = _converts(inputs, found)
    if converts:
        return converts
    if found.labels.get(marks.TENANT_UID) != tenant.metadata.uid:
        return (
            f"namespace {found.name!r} belongs to another tenant; an administrator can move it: omit spec.adopt.parent"
            f" and label the namespace {marks.SUBNAMESPACE_UID}={subnamespace.metadata.uid}"
        )
    if found.labels.get(marks.KIND) != marks.KIND_WORKSPACE or subnamespace.spec.mode is not Mode.WORKSPACE:
        return f"namespace {found.name!r} or this Subnamespace is a Subtenant; only a Workspace can be moved"
    if _subtenants(inputs, found.labels.get(marks.PARENT, "")) != _subtenants(inputs, subnamespace.metadata.namespace):
        return (
            f"namespace {found.name!r} is not in the same Subtenant as {subnamespace.metadata.namespace!r}; a move"
            " cannot cross the boundary of a Subtenant, except by an administrator: omit spec.adopt.parent and label"
            f" the namespace {marks.SUBNAMESPACE_UID}={subnamespace.metadata.uid}"
        )
    if found.name in inputs.ancestors:
        return f"namespace {found.name!r} is above {inputs.ancestors[-1]!r}: a tree has no cycles"
    return ""


def _converts(inputs: SubnamespaceInputs, found: Observed) -> str:
    """Return which conversion a move would cut short; "" for none."""
    old = inputs.adopted_from
    if old is not None and controlplane.is_under_way(old):
        # The new Subnamespace would not have its journal.
        return (
            f"Subnamespace {old.key!r} is being converted: wait until its status.conversion reports Converted, or set"
            " its spec.isolation.controlPlane back, and move it again"
        )
    if inputs.lookup(RoleBinding.resource, object_key(found.name, CHILD_BRINGER)) is not None:
        return f"objects of a control plane move to namespace {found.name!r}: wait until they are there"
    return ""


def _kept(inputs: SubnamespaceInputs, _: Tenant) -> Blocked | None:
    """Check that an existing namespace keeps the API server that its owners work with (H01)."""
    found = inputs.bound or inputs.adoptee
    wanted = controlplane.name_of(inputs.subnamespace)
    # A namespace that was ours once gets back what it has lost.
    if found is None or inputs.subnamespace.status.namespace or found.labels.get(marks.CONTROL_PLANE, "") == wanted:
        return None
    is_virtual = marks.CONTROL_PLANE in found.labels
    return _cannot(
        f"namespace {found.name!r} has {'a control plane of its own' if is_virtual else 'none of its own'}, so"
        f" spec.isolation.controlPlane must be {'Virtual' if is_virtual else 'Shared'}: an existing namespace keeps its"
        " control plane"
    )


def _is_older(one: Subnamespace, other: Subnamespace) -> bool:
    """Return whether one was created before the other, or in the same second."""
    return one.metadata.creation_timestamp <= other.metadata.creation_timestamp


def _subtenants(inputs: SubnamespaceInputs, namespace: str) -> list[str]:
    """Return the Subtenants' namespaces that a namespace is in, the lowest first."""
    found: list[str] = []
    for _ in range(DEEPEST):
        at = inputs.lookup(Namespace.resource, namespace)
        if at is None:
            break
        if at.labels.get(marks.KIND) == marks.KIND_SUBTENANT:
            found.append(at.name)
        namespace = at.labels.get(marks.PARENT, "")
    return found


def _cannot(message: str) -> Blocked:
    return Blocked(reason=reasons.CANNOT_ADOPT, message=message)


def _marked(inputs: SubnamespaceInputs, tenant: Tenant) -> Blocked | None:
    spec, rules = inputs.subnamespace.spec, tenant.spec.namespaces
    return _marks("spec.labels", spec.labels, rules.labels, tenant) or _marks(
        "spec.annotations", spec.annotations, rules.annotations, tenant
    )


def _marks(path: str, given: dict[str, str], rules: MarkRules, tenant: Tenant) -> Blocked | None:
    name = tenant.metadata.name
    own = f"{name}.{marks.GROUP}/"
    for key in sorted(given):
        # The tenant's own prefix: no other controller gives these keys a meaning.
        if key.startswith(own):
            continue
        if marks.is_protected(key) or not any(_allows(rule, key) for rule in rules.allowed):
            return Blocked(
                reason=reasons.NOT_ALLOWED,
                message=f"{path} must not have {key!r}: keys begin with {own!r}, or are allowed in"
                f" spec.namespaces of tenant {name!r}",
            )
    missing = sorted(set(rules.required) - set(given))
    if missing:
        return Blocked(
            reason=reasons.NOT_ALLOWED, message=f"{path} must have {missing[0]!r}, which tenant {name!r} requires"
        )
    return None


def _ruled(inputs: SubnamespaceInputs, tenant: Tenant) -> Blocked | None:
    """Check a new namespace against the rules above it, as admission does; an existing namespace stays as it is."""
    if inputs.bound is not None:
        return None
    resource, made = Subnamespace.resource, inputs.subnamespace
    spec = {"labels": made.spec.labels, "annotations": made.spec.annotations}
    request = Request(
        group=resource.group,
        resource=resource.plural,
        object={"metadata": {"name": made.metadata.name}, "spec": spec},
        namespace_labels={marks.TENANT: tenant.metadata.name},
    )
    try:
        rules = rules_of(inputs.defaults, tenant, inputs.above[:-1])
    except InputError:
        return None  # the controller that renders the rules reports it
    found = violations(request, rules.enforce)
    return Blocked(reason=reasons.NOT_ALLOWED, message=str(found[0])) if found else None


def _allows(rule: str, key: str) -> bool:
    return key.startswith(rule[:-1]) if rule.endswith("*") else key == rule


def _named(inputs: SubnamespaceInputs, tenant: Tenant) -> Blocked | None:
    pattern, name = tenant.spec.namespaces.name_pattern, inputs.subnamespace.metadata.name
    if inputs.bound is not None or not pattern:
        return None
    if not is_pattern(pattern):
        # The API server takes none; one that was stored before it looked, or before a change of the syntax, stays.
        return Blocked(
            reason=reasons.INVALID_SPEC,
            message=f"spec.namespaces.namePattern of tenant {tenant.metadata.name!r} is {pattern!r}, which is not a"
            " regular expression in the syntax of RE2: an administrator must correct it before names can be checked",
        )
    if matches(pattern, name):
        return None
    return Blocked(
        reason=reasons.NOT_ALLOWED,
        message=f"the name {name!r} does not match {pattern!r}, as tenant {tenant.metadata.name!r} requires",
    )


def _exact(inputs: SubnamespaceInputs, tenant: Tenant) -> Blocked | None:
    """Check that a child may have the name that its Subnamespace requests, and that no namespace has it."""
    name = inputs.subnamespace.spec.namespace_name
    if inputs.bound is not None or not name:
        return None
    if marks.is_reserved(name):
        return Blocked(
            reason=reasons.INVALID_SPEC, message=f"spec.namespaceName {name!r} is reserved; choose another one"
        )
    why = _not_exact(inputs.subnamespace, tenant, name)
    if why:
        homes = tenant.spec.namespaces.home_names
        # Without the id, any cluster could have the names of another one. The change of the Tenant wakes this one.
        is_early = homes is not UNSET and not homes.cluster_id
        return Blocked(reason=reasons.PROGRESSING if is_early else reasons.NOT_ALLOWED, message=why, passing=is_early)
    if inputs.lookup(Namespace.resource, name) is None:
        return None
    return Blocked(
        reason=reasons.NAME_TAKEN,
        message=f"namespace {name!r} exists already and is left as it is: delete it, or request another"
        " spec.namespaceName",
    )


def _not_exact(subnamespace: Subnamespace, tenant: Tenant, name: str) -> str:
    """Return why a tenant may not have a namespace of a name; "" if it may."""
    rules, notes = tenant.spec.namespaces, subnamespace.metadata.annotations
    if is_pattern(rules.exact_names) and rules.exact_names and matches(rules.exact_names, name):
        return ""
    if rules.home_names is UNSET:
        return (
            f"spec.namespaceName {name!r} does not match spec.namespaces.exactNames of tenant"
            f" {tenant.metadata.name!r}: leave it out, or ask an administrator"
        )
    home = notes.get(HOME_ID, "")
    if not rules.home_names.cluster_id:
        return "the id of the cluster that the tenant stands for is not known yet: spec.namespaces.homeNames.clusterId"
    if rules.home_names.cluster_id != home:
        return f"annotation {HOME_ID} is {home[:64]!r}, which is not the id of the cluster that the tenant stands for"
    if is_name_of(name, home, notes.get(HOME_NAMESPACE, ""), notes.get(HOME_PATH, "")):
        return ""
    return (
        f"spec.namespaceName {name!r} is not the name of the namespace in the annotation {HOME_NAMESPACE}: it must be"
        " that namespace, a hyphen and 16 digits of the hash of the cluster id and the namespace; for its name at home,"
        " an administrator of this cluster sets spec.guest.names of the PeerCluster to Same"
    )


def _limited(inputs: SubnamespaceInputs, tenant: Tenant) -> Blocked | None:
    """Check the limits of the tree; an existing namespace stays when the limits become tighter."""
    if inputs.bound is not None:
        return None
    rules, name = tenant.spec.namespaces, tenant.metadata.name
    max_count = rules.max_count or inputs.limits.max_count
    allowed = allowed_depth(inputs, tenant)
    if allowed:
        return Blocked(
            reason=reasons.LIMIT_REACHED,
            message=f"its depth would be {len(inputs.ancestors)}; {allowed}",
        )
    if max_count and inputs.count >= max_count:
        # A Subtenant must not learn how many namespaces the rest of the tree has.
        inside = _subtenants(inputs, inputs.subnamespace.metadata.namespace)
        has = "" if inside else f" has {inputs.count} subnamespaces and"
        most = "no more subnamespaces" if inside else str(max_count)
        return Blocked(
            reason=reasons.LIMIT_REACHED,
            message=f"tenant {name!r}{has} may have {most}; delete one, or ask an administrator for more"
            f" ({_set_in('maxCount', is_own=bool(rules.max_count))})",
        )
    return None


def allowed_depth(inputs: SubnamespaceInputs, tenant: Tenant) -> str:
    """Return how deep a tenant's tree may be and where that is set; "" if the Subnamespace is not too deep."""
    rules = tenant.spec.namespaces
    max_depth = rules.max_depth or inputs.limits.max_depth
    # The ancestors include the core namespace, which has depth 0.
    if not max_depth or len(inputs.ancestors) <= max_depth:
        return ""
    where = _set_in("maxDepth", is_own=bool(rules.max_depth))
    return f"tenant {tenant.metadata.name!r} allows {max_depth} ({where})"


def _set_in(field: str, *, is_own: bool) -> str:
    """Return where a limit is set, as an administrator finds it."""
    return f"spec.namespaces.{field} of {'the Tenant' if is_own else 'TenancyDefaults'}"


def _given(inputs: SubnamespaceInputs, _: Tenant) -> Blocked | None:
    """Return what the quota controller has decided about a namespace that does not exist yet."""
    verdict = inputs.verdict
    return verdict.blocked if verdict is not None and inputs.bound is None else None
