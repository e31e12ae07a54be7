"""The objects of a tenant: pure.

The order of writing is the order of safety: first the namespace, then limits and isolation, and last the binding that
admits users.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tenantry.api import marks, reasons
from tenantry.api.kubernetes import (
    ClusterNetworkPolicy,
    Namespace,
    ResourceQuota,
    ResourceQuotaSpec,
)
from tenantry.api.model import ObjectMeta, OwnerReference, object_key
from tenantry.api.rules import Rules
from tenantry.api.tenant import ClusterNetworkPolicyMode, Tenant
from tenantry.controllers import (
    controlplane,
    network,
    ownnodes,
    suspension,
    tenancyrules,
    tenantcluster,
    tenantnamespace,
)
from tenantry.controllers.network import ALONE, ClusterAddresses
from tenantry.controllers.tenant import clusternetworkpolicy, summary
from tenantry.controllers.tenant.gather import TenantInputs
from tenantry.controllers.tenantnamespace import TenantNamespace
from tenantry.controllers.watched import tenant_of
from tenantry.engine.observed import Observed
from tenantry.engine.plan import (
    Amendment,
    Blocked,
    Child,
    DirectWrite,
    Equivalent,
    Plan,
    Step,
    StepAction,
    compare,
    same,
)
from tenantry.world import objectcounts, quota
from tenantry.world.objectcounts import ObjectLimits
from tenantry.world.sandbox import NO_SANDBOX, Sandbox

QUOTA = "tenantry-quota"


def plan(inputs: TenantInputs, equivalent: Equivalent = same) -> Plan:
    """Return what the tenant controller has to write for a tenant.

    Raises:
        InputError: The spec is wrong in a way that the CRD's schema did not catch.
    """
    found = whole(inputs, equivalent)
    waves = tuple(tuple(step for step in wave if _is_ours(step, inputs)) for wave in found.waves)
    return replace(found, waves=tuple(wave for wave in waves if wave))


def whole(inputs: TenantInputs, equivalent: Equivalent = same) -> Plan:
    """Return what a tenant lacks, its ResourceQuota included, which the quota controller keeps once it exists.

    Raises:
        InputError: As `plan`.
    """
    tenant = inputs.tenant
    wanted = children(
        tenant,
        inputs.cluster_uid,
        has_cluster_policies=inputs.has_cluster_policies,
        defaults=inputs.defaults,
        around=inputs.around,
        zones=inputs.zones,
        sandbox=inputs.sandbox,
        limits=inputs.limits,
    )
    keys = {(child.object.resource, child.object.key) for child in wanted}
    # Labels alone justify no deletion: only what is in the tenant's own namespace, or owned by it, is ours.
    stale = [
        (resource, found)
        for resource, found in inputs.made
        if (resource, found.key) not in keys and _is_stale(tenant, found)
    ]
    found = _with_adoption(compare(wanted, inputs.lookup, stale=stale, equivalent=equivalent), inputs)
    if tenant.spec.suspended:
        first = closing(inputs)
        return replace(found, before=first.before, writes=(*first.writes, *kept(inputs)))
    ours = tenantnamespace.OWNER_BINDING
    # No other controller opens the bindings of a namespace that is being deleted.
    edits = suspension.edits([*inputs.bindings, *inputs.inside], suspended=False, ours=ours)
    counts = inputs.lookup(ResourceQuota.resource, object_key(tenant.metadata.name, tenantnamespace.COUNTS))
    writes = (*suspension.unlabels(inputs.tree), *edits, *tenantnamespace.upkeep(counts), *kept(inputs))
    return replace(found, writes=writes)


def _with_adoption(found: Plan, inputs: TenantInputs) -> Plan:
    """Return a plan that names the way to adopt the core namespace, if that comes from a backup.

    Without it, the advice for any namespace of this name would be to delete it, and so to delete what was restored.
    """
    name = inputs.tenant.metadata.name
    core = inputs.lookup(Namespace.resource, name)
    # A namespace with an owner still belongs to that owner, or is about to go with it.
    if core is None or core.owner_uid or tenant_of(core) != [name] or core.labels.get(marks.KIND) != marks.KIND_CORE:
        return found
    restored = Blocked(
        reason=reasons.NOT_ADOPTED,
        message=f"Namespace {name!r} has the labels of an earlier tenant {name!r}, as after a restore; it is left as it"
        " is: `tenantry adopt --plan` shows what an administrator can bind to this tenant",
    )
    return replace(
        found,
        blocked=tuple(restored if each.reason == reasons.NAMESPACE_EXISTS else each for each in found.blocked),
    )


def kept(inputs: TenantInputs) -> tuple[DirectWrite | Amendment, ...]:
    """Return the writes for what controllers of their own carry out.

    These are the VirtualControlPlane or the DedicatedCluster, and the SliceClaim.

    Raises:
        InputError: As `plan`.
    """
    claim = ownnodes.writes(inputs.tenant, inputs.claim)
    if controlplane.is_handed_over(inputs.tenant):
        return claim  # the plane is deleted, with nothing left inside, before the journal reports the end
    room = room_of(inputs.tenant)
    return (*controlplane.creation(room, inputs.plane), *tenantcluster.creation(room, inputs.dedicated), *claim)


def closing(inputs: TenantInputs) -> Plan:
    """Return the writes that close the tree of a suspended tenant, whatever else stands in its way.

    The labels come first: they stop writes and tokens at once, before the first of many bindings is emptied.
    """
    writes = suspension.closing(inputs.open, inputs.whole, tenantnamespace.OWNER_BINDING)
    return Plan(before=suspension.labels(inputs.tree), writes=writes)


def _is_stale(tenant: Tenant, found: Observed) -> bool:
    if found.namespace:
        return found.namespace == tenant.metadata.name and tenantnamespace.has_our_name(found)
    return found.owner_uid == tenant.metadata.uid


def _is_ours(step: Step, inputs: TenantInputs) -> bool:
    """Return whether a step is the tenant controller's: of the share, only the creation before there are children."""
    if step.resource != ResourceQuota.resource or step.name != QUOTA:
        return True
    return step.action is StepAction.CREATE and not inputs.is_divided


def children(
    tenant: Tenant,
    cluster_uid: str,
    *,
    has_cluster_policies: bool = False,
    defaults: Rules = tenancyrules.NO_RULES,
    around: ClusterAddresses = ALONE,
    zones: Sequence[str] = (),
    sandbox: Sandbox = NO_SANDBOX,
    limits: ObjectLimits = objectcounts.DEFAULT,
) -> list[Child]:
    """Return everything that a tenant should have, whole.

    Args:
        tenant: The tenant; its uid is in labels and owner references.
        cluster_uid: The uid of the namespace kube-system.
        has_cluster_policies: The cluster has the kind ClusterNetworkPolicy.
        defaults: The rules of all tenants.
        around: The addresses of nodes and DNS.
        zones: The network zones of its tree beside that of its core namespace.
        sandbox: The cluster's sandbox.
        limits: The limits of all tenants.

    Raises:
        InputError: A quantity of the tenant's is wrong in a way that the CRD's schema did not catch.
    """
    namespace = room_of(tenant)
    rules = tenancyrules.render(namespace, defaults, sandbox=sandbox)
    found = [_namespace(tenant, cluster_uid, rules.labels), *rules.children]
    own = core_quota(tenant)
    if own is not None:
        # The quota controller keeps it from then on, because children may have shares of it.
        found.append(Child(object=own, wave=tenantnamespace.WAVE_LIMITS, once=True))
    found += [*tenantnamespace.limits(namespace), *network.policies(namespace, network.core_zone(tenant), around)]
    found += controlplane.children(namespace)
    if has_cluster_policies and tenant.spec.cluster_network_policy is ClusterNetworkPolicyMode.ENABLED:
        found += _cluster_policies(tenant, zones)
    binding = tenantnamespace.owner_binding(namespace)
    kept_elsewhere = [*controlplane.plane(namespace), *tenantcluster.children(namespace), *ownnodes.children(tenant)]
    ours = [*found, binding, *kept_elsewhere]
    return [*found, tenantnamespace.counts(namespace, limits.core, limits.core_disk, ours), binding]


def room_of(tenant: Tenant) -> TenantNamespace:
    """Return the core namespace.

    Raises:
        InputError: The quota is wrong in a way that the CRD's schema did not catch.
    """
    return TenantNamespace(
        tenant=tenant,
        name=tenant.metadata.name,
        owners=tenant.spec.owners,
        hard=quota.normal(tenant.spec.quota.hard),
        suspended=tenant.spec.suspended,
        control_plane=controlplane.name_of(tenant),
    )


def _cluster_meta(
    tenant: Tenant, name: str, labels: dict[str, str], annotations: dict[str, str] | None = None
) -> ObjectMeta:
    owner = OwnerReference(
        api_version=tenant.resource.api_version,
        kind=tenant.resource.kind,
        name=tenant.metadata.name,
        uid=tenant.metadata.uid,
        controller=True,
        block_owner_deletion=True,
    )
    everywhere = {marks.MANAGED_BY: marks.MANAGER, marks.TENANT: tenant.metadata.name}
    return ObjectMeta(
        name=name, labels={**everywhere, **labels}, annotations=annotations or {}, owner_references=(owner,)
    )


def _namespace(tenant: Tenant, cluster_uid: str, marked: dict[str, str]) -> Child:
    labels = {
        marks.KIND: marks.KIND_CORE,
        marks.TENANT_UID: tenant.metadata.uid,
        marks.CLUSTER_UID: cluster_uid,
        **network.labels(tenant, network.core_zone(tenant)),
        **controlplane.labels(tenant),
        **ownnodes.labels(tenant),
        f"{tenant.metadata.name}{marks.TREE_SUFFIX}": "0",
        **({marks.SUSPENDED: "true"} if tenant.spec.suspended else {}),
        **marked,
    }
    annotations = {
        **network.allowances(tenant),
        **tenantnamespace.owners_mark(tenant.spec.owners),
        **summary.marked(tenant),
    }
    return Child(
        object=Namespace(metadata=_cluster_meta(tenant, tenant.metadata.name, labels, annotations)),
        wave=tenantnamespace.WAVE_NAMESPACE,
        owner_uid=tenant.metadata.uid,
    )


def core_quota(tenant: Tenant) -> ResourceQuota | None:
    """Return the ResourceQuota of a tenant that has only its core namespace; None if nothing is limited.

    Raises:
        InputError: The quota is wrong in a way that the CRD's schema did not catch.
    """
    namespace = room_of(tenant)
    if not namespace.hard:
        return None
    return ResourceQuota(metadata=tenantnamespace.meta(namespace, QUOTA), spec=ResourceQuotaSpec(hard=namespace.hard))


def _cluster_policies(tenant: Tenant, zones: Sequence[str]) -> list[Child]:
    specs = clusternetworkpolicy.policies(tenant, zones)
    return [
        Child(
            object=ClusterNetworkPolicy(metadata=_cluster_meta(tenant, name, {}), spec=spec),
            wave=tenantnamespace.WAVE_LIMITS,
            owner_uid=tenant.metadata.uid,
        )
        for name, spec in specs.items()
    ]
