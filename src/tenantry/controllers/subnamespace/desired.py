"""The objects of a Subnamespace's child, and the next writes for it: pure.

The order of writing is the order of safety, as for a tenant, in two stages:

1. The finalizer on the Subnamespace, the namespace, and what limits and isolates it.
2. The binding of its owners, once the API server enforces the namespace's share of the quota and the namespace has what
   it inherits: a child without its inherited policies must not have users yet.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from tenantry.api import marks, reasons
from tenantry.api.kubernetes import Namespace, ResourceQuota
from tenantry.api.model import ObjectMeta, object_key
from tenantry.api.subnamespace import Mode, Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.controllers import controlplane, network, ownnodes, suspension, tenancyrules, tenantnamespace
from tenantry.controllers.conclusion import PASSING
from tenantry.controllers.inheritance.status import Inherited
from tenantry.controllers.subnamespace import checks, ending
from tenantry.controllers.subnamespace.gather import SubnamespaceInputs
from tenantry.controllers.tenantnamespace import TenantNamespace
from tenantry.engine import request
from tenantry.engine.conditions import is_true
from tenantry.engine.observed import is_ours
from tenantry.engine.plan import Child, DirectWrite, Equivalent, Plan, compare, same
from tenantry.world import quantity, quota


def plan(inputs: SubnamespaceInputs, equivalent: Equivalent = same) -> Plan:
    """Return what the subnamespace controller has to write next; an empty plan if that is nothing, or it must wait.

    Raises:
        InputError: A quantity is wrong in a way that the CRD's schema did not catch.
    """
    subnamespace, tenant = inputs.subnamespace, inputs.tenant
    if subnamespace.metadata.deletion_timestamp:
        return ending.plan(inputs)
    if ending.is_due(inputs):
        return Plan(writes=(_deletion(subnamespace),))
    problem = checks.blocked(inputs)
    if problem is not None or tenant is None:
        return Plan(blocked=(problem,) if problem is not None else ())
    if inputs.awaits_verdict:
        return Plan()
    wanted = children(inputs, tenant)
    first = [child for child in wanted if child.wave < tenantnamespace.WAVE_PEOPLE]
    keys = {(child.object.resource, child.object.key) for child in wanted}
    stale = [(resource, found) for resource, found in inputs.made if (resource, found.key) not in keys]
    found = compare(first, inputs.lookup, stale=stale, equivalent=equivalent)
    # The old Subnamespace of a moved namespace has done its work, and finds nothing bound to it when it ends.
    old = inputs.adopted_from
    has_moved = old is not None and old.status.namespace == inputs.namespace and not old.metadata.deletion_timestamp
    # The finalizer comes before the namespace: a Subnamespace deleted in between would leave it behind.
    counts = inputs.lookup(ResourceQuota.resource, object_key(inputs.namespace, tenantnamespace.COUNTS))
    found = replace(
        found,
        before=(ending.finalizers(subnamespace, [*subnamespace.metadata.finalizers, marks.FINALIZER]),)
        if marks.FINALIZER not in subnamespace.metadata.finalizers
        else (),
        writes=(
            *((_deletion(old),) if old is not None and has_moved else ()),
            *tenantnamespace.upkeep(counts),
        ),
    )
    if found.blocked or not may_admit(inputs):
        return found
    people = compare([child for child in wanted if child not in first], inputs.lookup, equivalent=equivalent)
    others = [binding for binding in inputs.bindings if marks.INHERITED_FROM not in binding.labels]
    # The tenant controller empties the bindings of the whole tree at once: two writers would meet at each of them.
    begins = tenant.spec.suspended and not is_true(tenant.status.conditions, reasons.SUSPENDED)
    edits = (
        () if begins else suspension.edits(others, suspended=tenant.spec.suspended, ours=tenantnamespace.OWNER_BINDING)
    )
    # One that objects move out of is deleted, with nothing left inside, before the journal reports the end.
    is_left = controlplane.is_handed_over(subnamespace)
    plane = () if is_left else controlplane.creation(_room(inputs, tenant), inputs.plane)
    writes = (*found.writes, *edits, *plane)
    return replace(found, waves=(*found.waves, *people.waves), blocked=people.blocked, writes=writes)


def may_admit(inputs: SubnamespaceInputs) -> bool:
    """Return whether the child is ready for its users; see the second stage above."""
    return (
        inputs.is_in_force
        and not inputs.is_early
        and inputs.inherited is not None
        and not lacks(inputs.inherited, inputs)
    )


def lacks(inherited: Inherited, inputs: SubnamespaceInputs) -> bool:
    """Return whether the child must wait for what it inherits.

    An error that passes may concern what keeps other tenants out. A Subtenant must have all that it gets from its
    parent before its users come, so that its parent cannot add objects beside theirs.
    """
    is_blind = inputs.subnamespace.spec.mode is Mode.SUBTENANT
    return isinstance(inherited.error, PASSING) or (is_blind and inherited.error is not None)


def _deletion(found: Subnamespace) -> DirectWrite:
    meta = found.metadata
    asked = request.delete(found.resource, meta.namespace, meta.name, uid=meta.uid)
    return DirectWrite(request=asked)


def children(inputs: SubnamespaceInputs, tenant: Tenant) -> list[Child]:
    """Return everything that the child should have, whole, except its share of the quota and what it inherits.

    Args:
        inputs: The inputs.
        tenant: The tenant of the tree.

    Raises:
        InputError: A quantity is wrong in a way that the CRD's schema did not catch.
    """
    namespace = _room(inputs, tenant)
    rules = tenancyrules.render(namespace, inputs.defaults, inputs.above, inputs.sandbox)
    found = [
        _namespace(inputs, tenant, rules.labels),
        *rules.children,
        *tenantnamespace.limits(namespace),
        *network.policies(namespace, inputs.zone, inputs.around),
        *controlplane.children(namespace),
    ]
    binding = tenantnamespace.owner_binding(namespace)
    limits = inputs.limits
    ours = [*found, binding, *controlplane.plane(namespace)]
    return [*found, tenantnamespace.counts(namespace, limits.child, limits.child_disk, ours), binding]


def _room(inputs: SubnamespaceInputs, tenant: Tenant) -> TenantNamespace:
    """Return the child namespace.

    Raises:
        InputError: As `children`.
    """
    return TenantNamespace(
        tenant=tenant,
        name=inputs.namespace,
        owners=inputs.owners,
        hard=_limits_of(inputs, tenant),
        suspended=tenant.spec.suspended,
        control_plane=controlplane.name_of(inputs.subnamespace),
    )


def _limits_of(inputs: SubnamespaceInputs, tenant: Tenant) -> dict[str, str]:
    """Return the quota that the containers' defaults must fit in: what the child requests or has, else the tenant's."""
    asked = quota.normal(inputs.subnamespace.spec.quota.hard)
    has = (inputs.verdict.totals if inputs.verdict is not None else inputs.subnamespace.status.quota).assigned
    # Without anything, no default would fit: those that fit the tenant's quota are as good.
    given = {key: value for key, value in has.items() if quantity.parse(value) > 0}
    return {key: asked.get(key, given.get(key, whole)) for key, whole in quota.normal(tenant.spec.quota.hard).items()}


def _namespace(inputs: SubnamespaceInputs, tenant: Tenant, marked: dict[str, str]) -> Child:
    subnamespace = inputs.subnamespace
    spec, meta = subnamespace.spec, subnamespace.metadata
    # A moved namespace keeps the old Subnamespace's uid until this write.
    accepted = {meta.uid}
    if inputs.adopted_from is not None:
        accepted.add(inputs.adopted_from.metadata.uid)
    depth = len(inputs.ancestors)
    labels = {
        **spec.labels,
        marks.MANAGED_BY: marks.MANAGER,
        marks.KIND: marks.KIND_WORKSPACE if spec.mode is Mode.WORKSPACE else marks.KIND_SUBTENANT,
        marks.TENANT: tenant.metadata.name,
        marks.TENANT_UID: tenant.metadata.uid,
        marks.CLUSTER_UID: inputs.cluster_uid,
        **network.labels(tenant, inputs.zone),
        **controlplane.labels(subnamespace),
        **ownnodes.labels(tenant),
        marks.PARENT: meta.namespace,
        marks.SUBNAMESPACE: meta.name,
        marks.SUBNAMESPACE_UID: meta.uid,
        # One label for each ancestor with the distance to it: a selector can choose a whole subtree.
        **{f"{name}{marks.TREE_SUFFIX}": str(depth - level) for level, name in enumerate(inputs.ancestors)},
        f"{inputs.namespace}{marks.TREE_SUFFIX}": "0",
        **({marks.SUSPENDED: "true"} if tenant.spec.suspended else {}),
        **marked,
    }
    annotations = {
        **spec.annotations,
        **_given(marks.GIVEN_LABELS, spec.labels),
        **_given(marks.GIVEN_ANNOTATIONS, spec.annotations),
        **network.allowances(tenant),
        **tenantnamespace.owners_mark(inputs.owners),
    }
    return Child(
        object=Namespace(metadata=ObjectMeta(name=inputs.namespace, labels=labels, annotations=annotations)),
        wave=tenantnamespace.WAVE_NAMESPACE,
        marks={marks.SUBNAMESPACE_UID: frozenset(accepted)},
    )


def _given(mark: str, keys: Iterable[str]) -> dict[str, str]:
    """Return the annotation that lists the keys that the Subnamespace sets, so that they can be removed again."""
    others = sorted(key for key in keys if not is_ours(key))
    return {mark: ",".join(others)} if others else {}
