"""Keep the core namespace of every Tenant: the glue between gather, desired, plan, apply and status."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from tenantry.api import reasons
from tenantry.api.dedicatedcluster import DedicatedCluster
from tenantry.api.errors import ApiError, InputError, TenantryError, TerminalError
from tenantry.api.kubernetes import ClusterNetworkPolicy, Namespace, ResourceQuota, RoleBinding
from tenantry.api.marks import KIND, KIND_SUBTENANT, PARENT, SUBNAMESPACE, SUSPENDED
from tenantry.api.model import object_key
from tenantry.api.peercluster import PeerCluster
from tenantry.api.runtime import RuntimeClass
from tenantry.api.slice import SliceClaim
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenancydefaults import NAME as DEFAULTS
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.api.tenant import Tenant
from tenantry.api.tenantresourcequota import TenantResourceQuota
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers import controlplane, ownnodes, tenancyrules, tenantcluster, tenantnamespace, watched
from tenantry.controllers.announcement import LastInputs, announce, warn_of_end
from tenantry.controllers.conclusion import retried, waits_for_room
from tenantry.controllers.hosts.clashes import Clashes
from tenantry.controllers.limits.gather import LimitCache
from tenantry.controllers.nodes.addresses import AddressCache
from tenantry.controllers.runtime import asked_of, is_news, sandbox_of
from tenantry.controllers.tenancyrules import rules_of_all
from tenantry.controllers.tenant import clusternetworkpolicy, desired, status, summary
from tenantry.controllers.tenant.gather import CHILD_KINDS, TenantInputs, gather, listed, tree_of
from tenantry.controllers.virtualcontrolplane.wakes import wake_planes
from tenantry.controllers.watched import BY_NAMESPACE, tenant_of
from tenantry.engine.apply import Outcome
from tenantry.engine.cache import Cache, Change
from tenantry.engine.clock import rfc3339
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.conditions import find
from tenantry.engine.observed import Observed
from tenantry.engine.plan import Plan
from tenantry.world.leases import ENDLESS, lease, with_lease

SETTLE_SECONDS = 0.5
"""When to look again whether the whole tree is closed, or open again."""


class TenantController:
    """Reconciles tenants; the key is the tenant's name.

    Args:
        cluster_uid: The uid of the namespace kube-system.
        addresses: The addresses of nodes and DNS.
        clashes: The hosts in core namespaces that other namespaces hold.
        limits: The limits of all tenants.
    """

    name = "tenant"
    kind = Tenant

    def __init__(self, cluster_uid: str, addresses: AddressCache, clashes: Clashes, limits: LimitCache) -> None:
        self._cluster_uid = cluster_uid
        self._clashes = clashes
        self._limits = limits
        self._addresses = addresses
        # None until the first reconcile, which reads everything that changed before it.
        self._tenants: Cache[Tenant] | None = None
        self._last_inputs = LastInputs()

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller, and how an object's change becomes a tenant's name."""
        tenants = watched.tenants(watched.own_key)
        children = [
            watched.watch(kind.resource, self._by_child, optional=kind is ClusterNetworkPolicy) for kind in CHILD_KINDS
        ]
        runtimes = watched.runtime_classes(lambda change: self._all() if is_news(change) else ())
        planes = watched.control_planes(_plane_keys)
        claims = watched.slice_claims(ownnodes.keys)
        clusters = watched.dedicated_clusters(tenantcluster.keys)
        return [tenants, watched.defaults(self._by_defaults), runtimes, planes, claims, clusters, *children]

    def _by_defaults(self, change: Change[TenancyDefaults]) -> Iterable[str]:
        """Return the tenants that a change of TenancyDefaults concerns: all, if the rules have changed."""
        before, after = change.before, change.after
        same = before is not None and after is not None and rules_of_all(before) == rules_of_all(after)
        return () if same and asked_of(before) == asked_of(after) else self._all()

    def _by_child(self, change: Change[Observed]) -> Iterable[str]:
        return (*_child_keys(change), *self._by_room(change))

    def _by_room(self, change: Change[Observed]) -> Iterable[str]:
        """Return the tenant of which something was refused because this ResourceQuota was full, once there is room."""
        before = change.before
        tenant = self._tenants.get(before.namespace) if before is not None and self._tenants is not None else None
        # In this order: every new object of a tenant changes a ResourceQuota, and few tenants wait.
        if tenant is None or not waits_for_room(tenant.status.conditions):
            return ()
        return [tenant.key] if tenantnamespace.has_more_room(before, change.after) else ()

    def _all(self) -> list[str]:
        return [tenant.key for tenant in self._tenants] if self._tenants is not None else []

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:
        """Bring one tenant to its desired state; return in how many seconds to look again, None for never.

        Raises:
            TenantryError: Something failed; the status reports it, and the queue tries again.
        """
        self._tenants = cluster.cache(Tenant.resource)
        tenant = self._tenants.get(key)
        if tenant is None:
            cluster.forget(self.name, key)
            self._last_inputs.forget(key)
            return None
        if tenant.metadata.deletion_timestamp:
            return None  # Kubernetes' garbage collector does the rest
        now = cluster.clock.now()
        try:
            term = lease(tenant.spec.expires_at, now)
            counted = controlplane.effective(with_lease(tenant, now), cluster.lookup(Namespace.resource, key))
            outcome, inputs = await self._apply(cluster, counted)
        except InputError as error:
            term, counted, inputs = ENDLESS, tenant, None
            outcome = Outcome(error=error)
        is_settled = self._is_settled(cluster, counted)
        written = status.compute(
            counted,
            outcome,
            has_cluster_policies=inputs is not None and inputs.has_cluster_policies,
            attempt=attempt,
            now=rfc3339(now),
            lease=term,
            is_settled=is_settled,
            is_widened=self._addresses.current(cluster).is_widened,
            sandbox=sandbox_of(_defaults(cluster), cluster.cache(RuntimeClass.resource)),
            refuser=tenancyrules.refuser(rules_of_all(_defaults(cluster)), counted),
            clashes=self._clashes.inside(key),
            tenant_quota=_tenant_quota(cluster, key),
            plane=_plane(cluster, key),
            claim=_claim(cluster, key),
            cluster=_dedicated(cluster, key),
            exceeded=tenantnamespace.exceeded(
                cluster.lookup(ResourceQuota.resource, object_key(key, tenantnamespace.COUNTS))
            ),
        )
        if written != tenant.status:
            await cluster.writer.status(msgspec.structs.replace(tenant, status=written))
            for owner in tenant.metadata.owner_references:
                if owner.kind == PeerCluster.resource.kind:
                    cluster.wake(PeerCluster, owner.name)
        if inputs is not None and summary.notable(written.conditions) != summary.notable(tenant.status.conditions):
            # Owners read this on the namespace, whose plan was made before the status was known.
            repeated, _ = await self._apply(cluster, msgspec.structs.replace(counted, status=written))
            outcome = msgspec.structs.replace(outcome, error=outcome.error or repeated.error)
        is_change = inputs is not None and self._last_inputs.have_changed(key, inputs.set_elsewhere, outcome)
        announce(cluster.recorder, tenant, outcome, is_change=is_change)
        warn_of_end(cluster.recorder, tenant, written.conditions)
        if isinstance(outcome.error, ApiError):
            raise retried(outcome.error, attempt)
        return term.next_seconds if is_settled else SETTLE_SECONDS

    def _is_settled(self, cluster: Cluster, tenant: Tenant) -> bool:
        """Return whether all namespaces of the tree are suspended, or resumed, like the tenant; wake the others."""
        suspended = tenant.spec.suspended
        if not suspended and find(tenant.status.conditions, reasons.SUSPENDED) is None:
            return True
        caches = cluster.observed_caches((Namespace.resource, RoleBinding.resource))
        bindings = caches[RoleBinding.resource]
        left = [
            namespace
            for namespace in tree_of(caches[Namespace.resource], tenant)
            if (SUSPENDED in namespace.labels) != suspended
            or (suspended and any(each.has_subjects for each in bindings.by_index(BY_NAMESPACE, namespace.name)))
        ]
        for namespace in left:
            # The suspension may be the end of a lease, which no watch reports.
            parent, name = namespace.labels.get(PARENT, ""), namespace.labels.get(SUBNAMESPACE, "")
            if name:
                cluster.wake(Subnamespace, object_key(parent, name))
        return not left

    async def _apply(self, cluster: Cluster, tenant: Tenant) -> tuple[Outcome, TenantInputs]:
        error = await self._close(cluster, tenant) if tenant.spec.suspended else None
        inputs = self._gather(cluster, tenant)
        try:
            plan = desired.plan(inputs, cluster.writer.equivalent)
            if tenant.spec.suspended:
                # Tried above: what the API server refused there must not stop the rest.
                plan = msgspec.structs.replace(plan, before=(), writes=desired.kept(inputs))
            outcome = await cluster.writer.apply(plan)
        except (InputError, TerminalError) as wrong:
            outcome = Outcome(error=wrong)
        wake_planes(cluster, outcome)
        if error is not None:
            outcome = msgspec.structs.replace(outcome, error=error)
        return outcome, inputs

    async def _close(self, cluster: Cluster, tenant: Tenant) -> TenantryError | None:
        """Close the namespaces of a suspended tenant that the operator may close; return the first error.

        These are the first and the last writes of the tenant's plan. The namespaces are labelled before the bindings
        are even listed, because a policy stops writes and tokens by these labels.
        """
        labels = desired.closing(self._gather(cluster, tenant)).before
        errors = [(await cluster.writer.apply(Plan(writes=labels))).error]
        inputs = self._gather(cluster, tenant)
        try:
            inputs = await listed(cluster, inputs)
        except ApiError as error:
            errors.append(error)  # each binding is read on its own then
        errors.append((await cluster.writer.apply(Plan(writes=desired.closing(inputs).writes))).error)
        return next((error for error in errors if error is not None), None)

    def _gather(self, cluster: Cluster, tenant: Tenant) -> TenantInputs:
        defaults = _defaults(cluster)
        return gather(
            tenant,
            cluster.observed_caches(kind.resource for kind in CHILD_KINDS),
            cluster_uid=self._cluster_uid,
            is_divided=_tenant_quota(cluster, tenant.metadata.name) is not None,
            plane=_plane(cluster, tenant.metadata.name),
            claim=_claim(cluster, tenant.metadata.name),
            dedicated=_dedicated(cluster, tenant.metadata.name),
            defaults=defaults,
            around=self._addresses.current(cluster),
            sandbox=sandbox_of(defaults, cluster.cache(RuntimeClass.resource)),
            limits=self._limits.current(cluster),
        )


def _defaults(cluster: Cluster) -> TenancyDefaults | None:
    found: TenancyDefaults | None = cluster.cache(TenancyDefaults.resource).get(DEFAULTS)
    return found


def _tenant_quota(cluster: Cluster, name: str) -> TenantResourceQuota | None:
    # Another controller watches this kind: a runtime without it has no such cache.
    divided: Cache[TenantResourceQuota] | None = cluster.cache_of(TenantResourceQuota.resource)
    return divided.get(name) if divided is not None else None


def _plane(cluster: Cluster, name: str) -> VirtualControlPlane | None:
    found: VirtualControlPlane | None = cluster.cache(VirtualControlPlane.resource).get(object_key(name, name))
    return found


def _claim(cluster: Cluster, name: str) -> SliceClaim | None:
    found: SliceClaim | None = cluster.cache(SliceClaim.resource).get(object_key(name, name))
    return found


def _dedicated(cluster: Cluster, name: str) -> DedicatedCluster | None:
    found: DedicatedCluster | None = cluster.cache(DedicatedCluster.resource).get(object_key(name, name))
    return found


def _plane_keys(change: Change[VirtualControlPlane]) -> Iterable[str]:
    """Return the tenant whose control plane has changed: it has the name of the core namespace."""
    value = change.after or change.before
    if value is None or value.metadata.name != value.metadata.namespace or not controlplane.is_news(change):
        return ()
    return [value.metadata.name]


def _is_news(before: Observed, after: Observed) -> bool:
    return not watched.is_same(before, after) or tenantnamespace.is_news_of_counts(before, after)


def _child_keys(change: Change[Observed]) -> Iterable[str]:
    """Return the tenants that an object's change may concern; none for a change that is not ours to look at."""
    before, after = change.before, change.after
    if before is not None and after is not None and not _is_news(before, after):
        return ()
    keys: set[str] = set()
    for value in (before, after):
        if value is None:
            continue
        if value.namespace:
            keys.add(value.namespace)  # the core namespace; other controllers keep the namespaces below
            continue
        # A ClusterNetworkPolicy that lost its labels is known by its name.
        keys.add(value.name.removeprefix(clusternetworkpolicy.PREFIX))
        if PARENT not in value.labels or value.labels.get(KIND) == KIND_SUBTENANT:
            keys.update(tenant_of(value))
            keys.add(value.name)
    return keys
