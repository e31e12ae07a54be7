"""Computes the status of a DedicatedCluster: pure.

Ready of the VirtualControlPlane        ─► ControlPlaneReady ─┐
claims and handovers of all pools       ─► NodesReady        ─┴─► Ready, Reconciling or Stalled

While the cluster ends, Ready names the step that it waits for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tenantry.api import reasons
from tenantry.api.dedicatedcluster import (
    MOST_POOLS_SHOWN,
    ClusterProvider,
    ClusterVersions,
    DedicatedClusterStatus,
    PoolStatus,
)
from tenantry.api.model import Condition, ConditionStatus
from tenantry.api.nodehandover import NodeHandover
from tenantry.api.slice import SliceClaim, SliceState
from tenantry.api.virtualcontrolplane import PlanePhase
from tenantry.api.wording import shortened
from tenantry.controllers import controlplane
from tenantry.controllers.conclusion import ready as verdict
from tenantry.controllers.conclusion import trouble
from tenantry.controllers.dedicatedcluster import (
    contributed,
    desired,
    ending,
    leaving,
    planespec,
    release,
    reported,
    template,
)
from tenantry.controllers.dedicatedcluster.desired import Pool
from tenantry.controllers.dedicatedcluster.gather import ClusterInputs
from tenantry.engine.clock import rfc3339
from tenantry.engine.conditions import Wanted, find, is_true, merge
from tenantry.engine.plan import Blocked

_ABOUT_CLAIM = {
    SliceState.PENDING: reasons.PENDING,
    SliceState.RESERVED: reasons.RESERVED,
    SliceState.DRAINING: reasons.DRAINING,
    SliceState.RELEASING: reasons.RELEASING,
}
"""The condition of a claim that explains its state."""


def compute(inputs: ClusterInputs, problem: Blocked | None, now: str) -> DedicatedClusterStatus:
    """Return the status of a DedicatedCluster.

    Args:
        inputs: The cluster with its children.
        problem: Why the last write failed; None if all were carried out.
        now: RFC 3339.
    """
    inputs = template.applied(inputs)
    found, plane = inputs.found, inputs.own_plane
    every = desired.pools(inputs)
    generation, before = found.metadata.generation, found.status
    shown = plane.status if plane is not None else None
    obstacles = [each for each in (problem, *desired.problems(inputs)) if each is not None]
    of_plane, of_nodes = _plane_problem(inputs), _paused(inputs, _nodes_problem(inputs, every))
    if found.metadata.deletion_timestamp:
        first: Blocked | None = _ending(inputs)
    else:
        first = next(iter([*obstacles, *(each for each in (of_plane, of_nodes) if each is not None)]), None)
    wanted = [
        verdict(first, _done(every, is_paused=found.spec.paused)),
        *trouble(_most_urgent([*obstacles, *(each for each in (of_plane, of_nodes) if each is not None)], first)),
        _plane_condition(inputs, of_plane),
        _nodes_condition(inputs, every, of_nodes),
        *_repeated(inputs),
        *template.condition(inputs),
        *_add_ons(inputs),
        *reported.conditions(inputs),
    ]
    joined = sum(len(pool.joined) for pool in every)
    return DedicatedClusterStatus(
        observed_generation=generation,
        version=shown.version if shown is not None else before.version,
        versions=_versions(shown.version if shown is not None else "", inputs.handovers.values()),
        template=found.status.template,
        # Before its control plane is there, a template that comes later may still decide.
        provider=ClusterProvider.HOSTED if plane is not None else before.provider,
        endpoint=shown.endpoint if shown is not None else "",
        kubeconfig_secret=shown.kubeconfig_secret if shown is not None else "",
        kubeconfig_namespace=shown.kubeconfig_namespace if shown is not None else "",
        nodes=next((len(pool.joined) for pool in every if pool.name == desired.DEFAULT_POOL), 0),
        ready_nodes=f"{joined}/{sum(pool.want for pool in every)}",
        pools=tuple(_shown(pool) for pool in every[:MOST_POOLS_SHOWN]),
        contributed=contributed.shown(inputs),
        allowed_nodes=template.allowed_nodes(inputs),
        charged=shown.charged if shown is not None else {},
        last_backup=reported.last_backup(inputs),
        sleep=release.stage(inputs),
        requests=planespec.handled(inputs),
        conditions=merge(before.conditions, wanted, generation=generation, now=now),
    )


def _most_urgent(obstacles: Sequence[Blocked], first: Blocked | None) -> Blocked | None:
    """Return the obstacle that a person must remove, before one that passes."""
    return next((each for each in obstacles if not each.passing), first)


def _shown(pool: Pool) -> PoolStatus:
    return PoolStatus(
        name=pool.name,
        want=pool.want,
        ready=len(pool.joined),
        joining=len(pool.live) - len(pool.joined),
        leaving=len(pool.going),
    )


_KUBELET = re.compile(r"v(\d{1,3})\.(\d{1,4})\.(\d{1,4})(?:[-+].*)?")


def _versions(control_plane: str, nodes: Iterable[NodeHandover]) -> ClusterVersions:
    """Return the versions that run in the cluster; what is no version of Kubernetes does not count."""
    found = [match for each in nodes if (match := _KUBELET.fullmatch(each.status.kubelet)) is not None]
    known = sorted(tuple(int(part) for part in match.groups()) for match in found)
    texts = [".".join(map(str, each)) for each in known]
    return ClusterVersions(
        control_plane=control_plane,
        oldest_node=texts[0] if texts else "",
        newest_node=texts[-1] if texts else "",
    )


def _done(every: Sequence[Pool], *, is_paused: bool) -> str:
    count = sum(pool.want for pool in every)
    rest = "; spec.paused is true: the operator changes nothing" if is_paused else ""
    return f"the control plane serves its clients, and {_nodes(count)} Ready in the cluster{rest}"


def _paused(inputs: ClusterInputs, problem: Blocked | None) -> Blocked | None:
    """Return a problem of nodes, in other words if it would pass by itself without `spec.paused`."""
    found = inputs.found
    if problem is None or not problem.passing or not found.spec.paused or found.metadata.deletion_timestamp:
        return problem
    message = f"spec.paused is true: the operator changes neither claims nor nodes; {problem.message}"
    return Blocked(reason=reasons.PAUSED, message=message, passing=True)


def _nodes(count: int) -> str:
    return "1 node is" if count == 1 else f"{count} nodes are"


# -- the control plane ----------------------------------------------------------------------------


def _plane_problem(inputs: ClusterInputs) -> Blocked | None:
    """Return why the control plane is not usable, or not yet as the spec of the cluster wants it; None if it is."""
    found, of = inputs.found, inputs.own_plane
    problem = controlplane.problem(found.metadata.name, of)
    if problem is not None or of is None or found.metadata.deletion_timestamp:
        return problem
    ready = find(of.status.conditions, reasons.READY)
    if ready is not None and ready.reason == reasons.TENANT_SUSPENDED:
        told = (
            "its endpoint refuses users with a 503 until the suspension of the tenant ends; its nodes and pods run on"
        )
        return Blocked(reason=ready.reason, message=told, passing=True)
    if planespec.is_outdated(inputs, of):
        why = ": spec.paused of the cluster is true" if found.spec.paused else ""
        told = f"it does not have the spec of the cluster yet{why}"
    elif of.status.phase is not PlanePhase.ASLEEP and of.status.observed_generation != of.metadata.generation:
        # One that sleeps carries out its spec when it wakes.
        told = "the operator carries out a change of its spec"
    else:
        # It serves with what it had, such as the previous version, if the requested one is not offered.
        stalled = find(of.status.conditions, reasons.STALLED)
        if stalled is None or stalled.reason != reasons.INVALID_SPEC:
            return None
        return Blocked(reason=stalled.reason, message=f"VirtualControlPlane {of.key!r}: {stalled.message}")
    message = f"VirtualControlPlane {of.key!r}: {told}"
    return Blocked(reason=reasons.PROGRESSING, message=message, passing=True)


def _plane_condition(inputs: ClusterInputs, problem: Blocked | None) -> Wanted:
    (condition,) = controlplane.condition(inputs.found.metadata.name, problem)
    return condition


def _add_ons(inputs: ClusterInputs) -> Iterable[Wanted]:
    """Return what the control plane has reported last of its add-ons: while it sleeps, it reports nothing."""
    of = inputs.own_plane
    told = find(of.status.conditions, reasons.ADD_ONS_READY) if of is not None else None
    told = told or find(inputs.found.status.conditions, reasons.ADD_ONS_READY)
    if of is not None and told is not None:
        yield Wanted(told.type, told.status is ConditionStatus.TRUE, told.reason, told.message)


def _repeated(inputs: ClusterInputs) -> Iterable[Wanted]:
    """Return what the control plane reports of an upgrade and of its guards."""
    plane = inputs.own_plane
    for type_ in (reasons.UPGRADING, reasons.GUARDS_ENFORCED):
        told = find(plane.status.conditions, type_) if plane is not None else None
        if told is not None:
            yield Wanted(type_, told.status is ConditionStatus.TRUE, told.reason, told.message)


# -- nodes ----------------------------------------------------------------------------------------


def _nodes_problem(inputs: ClusterInputs, every: Iterable[Pool]) -> Blocked | None:
    """Return why not all nodes are Ready in the cluster; None if they are."""
    found = [each for pool in every if (each := _pool_problem(inputs, pool)) is not None]
    stalled = next((each for each in found if not each.passing), None)
    return stalled or next(iter(found), None)


def _pool_problem(inputs: ClusterInputs, pool: Pool) -> Blocked | None:
    path = f"pool {pool.name!r}"
    # Also of nodes that have joined: the host may have lost the Node of one.
    for each in (*pool.live, *pool.going):
        told = find(each.status.conditions, reasons.STALLED)
        # A pool that grows lists nodes from which pods of others are still leaving: that passes.
        if told is not None and told.reason != reasons.NODE_NOT_IN_SLICE:
            return Blocked(reason=told.reason, message=f"{path}: node {each.metadata.name!r}: {told.message}")
    leaves = _rebuilding(inputs, pool, path) or _shrinking(pool, path)
    if leaves is not None:
        return leaves
    missing = pool.want - len(pool.joined)
    if missing <= 0:
        return None
    for each in pool.live:
        refused = find(each.status.conditions, reasons.JOIN_REFUSED)
        if refused is not None:
            name = each.metadata.name
            return Blocked(reason=refused.reason, message=f"{path}: node {name!r}: {refused.message}", passing=True)
    joining = sorted(_told(each) for each in pool.live if not desired.is_joined(each))
    if joining and len(pool.live) == pool.want:
        message = f"{path}: {len(pool.joined)} of {pool.want} nodes are Ready; {shortened(joining)}"
        return Blocked(reason=reasons.NODES_JOINING, message=message, passing=True)
    reason, why, is_stalled = _claim_problem(inputs, pool)
    message = f"{path}: {len(pool.joined)} of {pool.want} nodes are Ready; {why}{_advice(pool, reason)}"
    return Blocked(reason=reason, message=message, passing=not is_stalled)


def _shrinking(pool: Pool, path: str) -> Blocked | None:
    if not pool.going and len(pool.live) <= pool.want:
        return None
    names = shortened(sorted(each.metadata.name for each in pool.going or pool.live))
    return Blocked(reason=reasons.NODES_LEAVING, message=f"{path}: nodes leave the cluster: {names}", passing=True)


def _rebuilding(inputs: ClusterInputs, pool: Pool, path: str) -> Blocked | None:
    """Return that nodes are rebuilt to have the version of the control plane; None if they are not.

    Nodes of a pool that shrinks leave for that.
    """
    plane = inputs.own_plane
    wanted = leaving.wanted_version(pool.settings, plane)
    old = [each for each in (*pool.live, *pool.going) if leaving.is_outdated(each, wanted)]
    found = inputs.found
    if not old or len(pool.live) + len(pool.going) > pool.want or found.metadata.deletion_timestamp:
        return None
    # While the control plane soaks or sleeps, nothing is taken from the cluster.
    if found.spec.paused or not leaving.may_rebuild(plane):
        return None
    names = shortened(sorted(each.metadata.name for each in old))
    done = pool.want - len(old)
    told = f"{path}: nodes are rebuilt to have Kubernetes {wanted}, {pool.settings.max_unavailable} at a time: {names}"
    return Blocked(reason=reasons.NODES_REBUILDING, message=f"{told}; {done} of {pool.want} have it", passing=True)


def _advice(pool: Pool, reason: str) -> str:
    """Return what a person can do so that a pool gets its nodes; "" if it only has to wait."""
    field = "spec.nodes" if pool.name == desired.DEFAULT_POOL else f"count of spec.pools[{pool.name}]"
    if reason == reasons.NODES_INSUFFICIENT:
        which = "spec.defaultPool" if pool.name == desired.DEFAULT_POOL else "the pool"
        return (
            f"; lower {field}, or change selector, perNode or nodeNames of {which}: `tenantry node list` shows the"
            " nodes of the host, and which cluster or slice has each"
        )
    if reason == reasons.QUOTA_INSUFFICIENT:
        return f"; lower {field}, or ask an administrator for more quota: `tenantry quota` shows what is left"
    return ""


def _told(found: NodeHandover) -> str:
    condition = find(found.status.conditions, reasons.READY)
    words = f": {condition.message}" if condition is not None and condition.message else ""
    return f"node {found.metadata.name!r} is {found.status.stage.value}{words}"


def _claim_problem(inputs: ClusterInputs, pool: Pool) -> tuple[str, str, bool]:
    """Return the reason for which a pool lacks nodes, its words, and whether a person must act."""
    found = pool.claim
    if found is None:
        return reasons.NODES_JOINING, "its SliceClaim is not created yet", False
    busy = sorted(set(found.status.nodes) & inputs.taken)
    if busy:
        return reasons.NODES_JOINING, f"nodes still serve another cluster: {shortened(busy)}", False
    condition = _explanation(found)
    if condition is None:
        return reasons.NODES_JOINING, f"SliceClaim {found.key!r} gets its nodes", False
    stalled = is_true(found.status.conditions, reasons.STALLED)
    return condition.reason, f"SliceClaim {found.key!r}: {condition.message}", stalled


def _explanation(found: SliceClaim) -> Condition | None:
    type_ = _ABOUT_CLAIM.get(found.status.state)
    about = find(found.status.conditions, type_) if type_ is not None else None
    return about or find(found.status.conditions, reasons.DEGRADED)


def _nodes_condition(inputs: ClusterInputs, every: Sequence[Pool], problem: Blocked | None) -> Wanted:
    if problem is not None:
        return Wanted(reasons.NODES_READY, False, problem.reason, problem.message)
    if release.is_without_nodes(inputs.found.status.sleep):
        told = "its nodes have returned to the host: it sleeps, and claims nodes when it wakes"
        return Wanted(reasons.NODES_READY, True, reasons.ASLEEP, told)
    count = sum(pool.want for pool in every)
    message = f"{_nodes(count)} Ready in the cluster" if count else "the cluster is to have no nodes"
    return Wanted(reasons.NODES_READY, True, reasons.ESTABLISHED, message)


# -- the end --------------------------------------------------------------------------------------


def _ending(inputs: ClusterInputs) -> Blocked:
    """Return what a cluster that is being deleted waits for, and until when."""
    meta, handovers = inputs.found.metadata, sorted(inputs.handovers.values(), key=lambda each: each.metadata.name)
    is_over = ending.is_over(inputs)
    until = (
        f"; until {rfc3339(ending.deadline(inputs))} at the latest, or until `tenantry cluster delete {meta.name} -n"
        f" {meta.namespace} --leave-nodes`"
    )
    if handovers and not is_over:
        listed = shortened(map(_told, handovers))
        return Blocked(
            reason=reasons.NODES_LEAVING,
            message=f"it ends: its nodes return to the host: {listed}{until}",
            passing=True,
        )
    lost = shortened(each.metadata.name for each in handovers)
    rest = f"; nodes that have not returned are left, and no other claim gets them: {lost}" if handovers else ""
    if inputs.own_claims and not is_over:
        listed = shortened(f"SliceClaim {each.key!r}" for each in inputs.own_claims)
        message = f"it ends: its nodes are given back: {listed}{until}"
    elif inputs.own_plane is not None:
        message = f"it ends: VirtualControlPlane {inputs.own_plane.key!r} ends with all objects inside{rest}"
    else:
        message = f"it ends: nothing is left of it{rest}"
    return Blocked(reason=reasons.PROGRESSING, message=message, passing=True)
