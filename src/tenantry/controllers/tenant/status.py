"""Compute the status of a tenant: pure."""

from __future__ import annotations

from collections.abc import Sequence

from tenantry.api import reasons
from tenantry.api.dedicatedcluster import DedicatedCluster
from tenantry.api.slice import SliceClaim
from tenantry.api.tenant import ClusterNetworkPolicyMode, IsolationClass, NetworkIsolation, Tenant, TenantStatus
from tenantry.api.tenantresourcequota import TenantResourceQuota
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers import controlplane, ownnodes, tenantcluster
from tenantry.controllers.conclusion import PATIENCE, exceeding, expiring, problem_of, ready, trouble
from tenantry.controllers.hosts import clashes as taken
from tenantry.controllers.quota.standing import obstacle
from tenantry.controllers.runtime import sandboxed
from tenantry.engine.apply import Outcome
from tenantry.engine.conditions import Wanted, find, merge
from tenantry.engine.plan import Blocked
from tenantry.world.addresses import MOST
from tenantry.world.hosts import HostClash
from tenantry.world.leases import ENDLESS, LeaseState
from tenantry.world.sandbox import NO_SANDBOX, Sandbox

_NARROWED = Wanted(
    reasons.EGRESS_NARROWED,
    True,
    reasons.TOO_MANY_ADDRESSES,
    f"nodes have more addresses than a policy holds ({MOST} blocks): pods do not reach some addresses in between;"
    " name the nodes' subnets in spec.network.keptCidrs of TenancyDefaults 'default'",
    only_true=True,
)


def compute(
    tenant: Tenant,
    outcome: Outcome,
    *,
    has_cluster_policies: bool,
    attempt: int,
    now: str,
    lease: LeaseState = ENDLESS,
    is_settled: bool = True,
    is_widened: bool = False,
    sandbox: Sandbox = NO_SANDBOX,
    refuser: str = "",
    clashes: tuple[HostClash, ...] | None = (),
    exceeded: Sequence[tuple[str, str, str]] = (),
    tenant_quota: TenantResourceQuota | None = None,
    plane: VirtualControlPlane | None = None,
    claim: SliceClaim | None = None,
    cluster: DedicatedCluster | None = None,
) -> TenantStatus:
    """Return the status to write.

    Args:
        tenant: Its spec, generation and conditions so far.
        outcome: The outcome of the plan.
        has_cluster_policies: The cluster has the kind ClusterNetworkPolicy.
        attempt: The number of tries that failed before this one.
        now: RFC 3339.
        lease: The state of its lease.
        is_settled: The whole tree is suspended, or resumed.
        is_widened: Policies block more addresses than the nodes', because the nodes have too many to list.
        sandbox: The cluster's sandbox.
        refuser: The level whose rule refuses pods if a sandbox is missing; "" for none.
        clashes: The hosts in its core namespace that other namespaces hold; None before the first comparison.
        tenant_quota: Its TenantResourceQuota; None if its quota is not divided.
        plane: Its VirtualControlPlane; None if there is none.
        claim: The SliceClaim of its name; None if there is none.
        cluster: The DedicatedCluster of its name; None if there is none.
        exceeded: The kinds of which its core namespace has too many objects (`objectcounts.exceeded`).
    """
    problem = problem_of(outcome)
    failed = problem is not None and problem.passing and not outcome.blocked
    if failed and attempt < PATIENCE and find(tenant.status.conditions, reasons.READY):
        return tenant.status  # conditions must not flap; the next try is under way
    done = problem is None
    own = controlplane.name_of(tenant)
    is_dedicated = tenantcluster.is_wanted(tenant)
    lacks = tenantcluster.problem(tenant, cluster) if is_dedicated else controlplane.problem(own, plane)
    lacks_nodes = ownnodes.problem(tenant, claim)
    problem = problem or _ended(tenant, lease) or obstacle(tenant, tenant_quota) or lacks or lacks_nodes
    wanted = [ready(problem, "namespace, rights, limits and isolation are in place"), *trouble(problem)]
    wanted.append(_suspended(tenant, lease, done=done and is_settled))
    wanted += expiring(
        tenant.spec.expires_at, lease, then="is suspended", ended="; set a later spec.expiresAt to open it again"
    )
    if is_widened and tenant.spec.isolation.network is NetworkIsolation.BASELINE:
        wanted.append(_NARROWED)
    if tenant.spec.cluster_network_policy is ClusterNetworkPolicyMode.ENABLED:
        wanted.append(_cluster_policy(done=done, installed=has_cluster_policies))
    runtime = sandboxed(tenant.spec.isolation.runtime, sandbox, refuser)
    wanted += [runtime] if runtime is not None else []
    wanted += tenantcluster.conditions(cluster, lacks) if is_dedicated else controlplane.condition(own, lacks)
    wanted += ownnodes.condition(claim, lacks_nodes) if ownnodes.is_wanted(tenant) else []
    wanted += taken.condition(clashes, tenant.status.conditions)
    wanted += exceeding(tenant.metadata.name, exceeded, "core")
    generation = tenant.metadata.generation
    return TenantStatus(
        observed_generation=generation,
        namespace=tenant.metadata.name if done else tenant.status.namespace,
        isolation_class=isolation_class(
            has_plane=tenantcluster.has_plane(cluster) if is_dedicated else bool(own) and lacks is None,
            is_dedicated=is_dedicated,
            is_sandboxed=runtime is not None and runtime.holds,
            has_nodes=tenantcluster.has_nodes(cluster) or (ownnodes.is_wanted(tenant) and lacks_nodes is None),
        ),
        conversion=tenant.status.conversion,
        conditions=merge(tenant.status.conditions, wanted, generation=generation, now=now),
    )


def isolation_class(
    *, has_plane: bool, is_sandboxed: bool, has_nodes: bool, is_dedicated: bool = False
) -> IsolationClass:
    """Return how hard a tenant is isolated by what is in force (docs/concepts/isolation.md).

    Args:
        has_plane: Its users work with an API server of their own.
        is_sandboxed: New pods run in a sandbox.
        has_nodes: New pods run on nodes of the tenant only.
        is_dedicated: Its pods run in a cluster of its own, and nowhere before that has nodes.
    """
    if has_plane and is_dedicated:
        return IsolationClass.HARDER if has_nodes else IsolationClass.HARD
    # Own nodes or a sandbox alone leave the API server shared, and an own API server alone leaves kernels shared.
    return IsolationClass.HARD if has_plane and (is_sandboxed or has_nodes) else IsolationClass.SOFT


def _ended(tenant: Tenant, lease: LeaseState) -> Blocked | None:
    """Return that the lease of the tenant has ended; None if it has not.

    A suspension by `spec.suspended` is what the spec requests, so the tenant stays Ready.
    """
    if not lease.is_expired:
        return None
    message = (
        f"spec.expiresAt is {tenant.spec.expires_at}, which has passed, so the tenant is suspended;"
        f" `tenantry tenant renew {tenant.metadata.name} --for 72h` opens it again for three days"
    )
    return Blocked(reason=reasons.EXPIRED, message=message)


def _suspended(tenant: Tenant, lease: LeaseState, *, done: bool) -> Wanted:
    wanted = tenant.spec.suspended
    if wanted:
        end = "a later spec.expiresAt" if lease.is_expired else "spec.suspended: false"
        message = f"writes are refused and only administrators have access; {end} ends the suspension"
        if not done:
            message = "some rights are not removed yet"
        why = reasons.EXPIRED if lease.is_expired else reasons.SUSPENDED_BY_SPEC
        reason = why if done else reasons.SUSPENDING
        return Wanted(reasons.SUSPENDED, done, reason, message)
    was = find(tenant.status.conditions, reasons.SUSPENDED)
    resuming = was is not None and not done
    return Wanted(reasons.SUSPENDED, resuming, reasons.RESUMING, "some rights are not restored yet", only_true=True)


def _cluster_policy(*, done: bool, installed: bool) -> Wanted:
    if not installed:
        return Wanted(
            reasons.CLUSTER_NETWORK_POLICY,
            False,
            reasons.KIND_NOT_INSTALLED,
            "not in force: this cluster does not have ClusterNetworkPolicy of policy.networking.k8s.io/v1alpha2;"
            " install network-policy-api v0.2 and a network plugin that implements it",
        )
    return Wanted(
        reasons.CLUSTER_NETWORK_POLICY,
        done,
        reasons.IN_FORCE if done else reasons.PROGRESSING,
        "a ClusterNetworkPolicy keeps other tenants' pods away" if done else "not in force yet",
    )
