"""The children of a DedicatedCluster, and the next writes towards them: pure.

    spec ─► VirtualControlPlane           only the fields that the cluster has; others are set there
         ─► SliceClaim of each pool ─► its nodes ─► NodeHandover of each

A pool grows by its claim, and then by handovers of the claim's new nodes. It shrinks the other way round: handovers are
deleted, and the claim requests fewer nodes only when those are back on the host:

    spec.nodes  handovers  claim
    3           n1 n2 n3   3
    1           n1 -- --   3      n2 and n3 leave the cluster
    1           n1         1      they are back: the slice gives them back

A deleted cluster goes in the same order: handovers, claims, the control plane, and at last the finalizer.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.dedicatedcluster import (
    CLUSTER_FINALIZER,
    DEFAULT_POOL,
    DedicatedCluster,
    NodePool,
    PoolSettings,
    claim_name,
)
from tenantry.api.errors import Conflict, NotFound
from tenantry.api.marks import LEAVE_NODES, MANAGED_BY, MANAGER, POOL
from tenantry.api.model import Json, KubernetesObject, ObjectMeta
from tenantry.api.nodehandover import HandoverPlane, NodeHandover, NodeHandoverSpec
from tenantry.api.slice import ClaimMode, SliceClaim, SliceClaimSpec, SliceState, Users, slice_name
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.api.wording import shortened
from tenantry.controllers.children import created, deleted, kept, meta_of
from tenantry.controllers.dedicatedcluster import contributed, ending, leaving, planespec, release, reported, template
from tenantry.controllers.dedicatedcluster.gather import ClusterInputs
from tenantry.controllers.dedicatedcluster.leaving import LeavingFacts, Pool, is_joined
from tenantry.engine import request
from tenantry.engine.plan import Blocked, DirectWrite, Plan
from tenantry.hosting import versions
from tenantry.world.labels import is_label_key, is_label_value

RESERVED_DOMAINS = ("kubernetes.io", "k8s.io", "tenantry.dev")
"""Of label keys that Kubernetes or Tenantry gives a meaning; `node-role.kubernetes.io` only shows a word."""

ROLES = "node-role.kubernetes.io"

_BLOCKING = (reasons.INVALID_SPEC, reasons.UNKNOWN_TEMPLATE)


def settings_of(found: DedicatedCluster) -> dict[str, NodePool]:
    """Return the pools that a spec names, the default one first."""
    given = msgspec.structs.asdict(found.spec.default_pool)
    default = NodePool(name=DEFAULT_POOL, count=found.spec.nodes, **given)
    return {DEFAULT_POOL: default, **{each.name: each for each in found.spec.pools}}


def claim_names(found: DedicatedCluster) -> list[str]:
    """Return the names of the claims that a cluster needs."""
    return [claim_name(found.metadata.name, pool) for pool in settings_of(found)]


def pools(inputs: ClusterInputs) -> list[Pool]:
    """Return all pools of a cluster: those of its spec, and those whose nodes leave it."""
    found = inputs.found
    wanted = {} if found.metadata.deletion_timestamp else settings_of(found)
    is_without = release.is_without_nodes(found.status.sleep)
    # By their names, because a label may have been removed by hand.
    own = {each.metadata.name.removeprefix(claim_name(found.metadata.name, "")): each for each in inputs.own_claims}
    slices = {slice_name(each.metadata.name, each.metadata.uid): name for name, each in own.items()}
    by_pool: dict[str, list[NodeHandover]] = {name: [] for name in (*wanted, *own)}
    for each in inputs.handovers.values():
        if contributed.is_outside(each):
            continue
        # Of a claim that is gone: the label of the Node inside has the name of the pool.
        name = slices.get(each.spec.slice) or each.spec.labels.get(POOL, DEFAULT_POOL)
        by_pool.setdefault(name, []).append(each)
    return [
        Pool(
            name=name,
            want=wanted[name].count if name in wanted and not is_without else 0,
            settings=wanted.get(name, PoolSettings()),
            claim=own.get(name),
            live=tuple(each for each in handovers if not each.metadata.deletion_timestamp),
            going=tuple(each for each in handovers if each.metadata.deletion_timestamp),
        )
        for name, handovers in by_pool.items()
    ]


def plan(inputs: ClusterInputs) -> Plan:
    """Return the next writes for the children of a DedicatedCluster; an empty plan if they are as they should be."""
    inputs = template.applied(inputs)
    found = inputs.found
    if found.metadata.deletion_timestamp:
        return _end(inputs)
    if found.spec.paused:
        return Plan()
    blocked = problems(inputs)
    if CLUSTER_FINALIZER not in found.metadata.finalizers:
        before = (_with_finalizers(found, (*found.metadata.finalizers, CLUSTER_FINALIZER)),)
    else:
        before = ()
    # A foreign object blocks what depends on it, and nothing else; an error in the spec blocks everything.
    if any(each.reason in _BLOCKING for each in blocked):
        return Plan(before=before, blocked=tuple(blocked))
    writes = list(_plane_writes(inputs))
    for pool in pools(inputs):
        writes += _pool_writes(inputs, pool)
    writes += contributed.writes(inputs)
    return Plan(before=before, writes=tuple(writes))


def problems(inputs: ClusterInputs) -> list[Blocked]:
    """Return what a person must change before the cluster can be complete."""
    found, name = inputs.found, inputs.found.metadata.name
    wrong = [
        Blocked(reason=reasons.INVALID_SPEC, message=message)
        for pool, settings in settings_of(found).items()
        for message in _wrong(pool, settings)
    ]
    wrong += [Blocked(reason=reasons.INVALID_SPEC, message=each) for each in _wrong_versions(inputs)]
    others: list[KubernetesObject] = [
        each
        for each in (inputs.plane, *(inputs.claims.get(claim) for claim in claim_names(found)))
        if each is not None and not inputs.is_child(each)
    ]
    foreign = [
        Blocked(
            reason=reasons.OBJECT_EXISTS,
            message=(
                f"{each.resource.kind} {each.key!r} exists already and does not belong to DedicatedCluster {name!r}: it"
                " is left as it is; delete it, or choose another name for the cluster or the pool"
            ),
        )
        for each in others
    ]
    return [*wrong, *reported.problems(found, inputs.now), *template.problems(inputs), *foreign]


def _wrong(pool: str, settings: PoolSettings) -> Iterable[str]:
    return wrong_settings("spec.defaultPool" if pool == DEFAULT_POOL else f"spec.pools[{pool}]", settings)


def wrong_settings(path: str, settings: PoolSettings) -> Iterable[str]:
    """Return what is wrong with the settings of nodes; each message begins with the JSON path."""
    keys = [key for key in settings.labels if _is_reserved(key)]
    if keys:
        listed, domains = shortened(map(repr, sorted(keys))), " and ".join(RESERVED_DOMAINS)
        yield f"{path}.labels must not have {listed}: keys of {domains} have a meaning of their own"
    yield from (f"{path}.{each}" for each in _unusable(settings))


def _wrong_versions(inputs: ClusterInputs) -> Iterable[str]:
    """Yield the versions of pools that no kubelet may have beside the version of the spec."""
    of = inputs.own_plane
    running = of.status.version if of is not None else ""
    wanted = planespec.spec(inputs, of).version or (versions.minor(running) if running else "")
    for pool, settings in settings_of(inputs.found).items():
        if not settings.version or not wanted:
            continue
        step = versions.minors_between(settings.version, wanted)
        if not 0 <= step <= leaving.MOST_SKEW:
            path = "spec.defaultPool" if pool == DEFAULT_POOL else f"spec.pools[{pool}]"
            yield (
                f"{path}.version must be from {versions.minor_before(wanted, leaving.MOST_SKEW)} to {wanted}, which the"
                f" control plane is to have, not {settings.version}"
            )


def _unusable(settings: PoolSettings) -> Iterable[str]:
    """Return the labels and taints that no Node may have; the API server inside would refuse the Node."""
    for key, value in settings.labels.items():
        if not is_label_key(key) or not is_label_value(value):
            yield f"labels must not have {key!r}: {value!r}, which is not a label of Kubernetes"
    seen: set[tuple[str, str]] = set()
    for taint in settings.taints:
        if not is_label_key(taint.key) or not is_label_value(taint.value):
            yield f"taints must not have {taint.key!r}: {taint.value!r}, which is not a key and a value of a label"
        if (taint.key, taint.effect) in seen:
            yield f"taints must not have the key {taint.key!r} with the effect {taint.effect} twice"
        seen.add((taint.key, taint.effect))


def _is_reserved(key: str) -> bool:
    domain, slash, _ = key.partition("/")
    if not slash or domain == ROLES:
        return False
    return any(domain == each or domain.endswith(f".{each}") for each in RESERVED_DOMAINS)


# -- the control plane ----------------------------------------------------------------------------


def _plane_writes(inputs: ClusterInputs) -> Iterable[DirectWrite]:
    before = inputs.own_plane
    if inputs.plane is not None and before is None:
        return []
    found = inputs.found
    wanted = VirtualControlPlane(
        metadata=msgspec.structs.replace(meta_of(found, found.metadata.name), annotations=planespec.notes(inputs)),
        spec=planespec.spec(inputs, before),
    )
    return kept(wanted, before)


# -- pools ----------------------------------------------------------------------------------------


def claim(inputs: ClusterInputs, pool: Pool, count: int) -> SliceClaim:
    """Return the SliceClaim of a pool with a number of nodes."""
    settings = pool.settings
    name = claim_name(inputs.found.metadata.name, pool.name)
    return SliceClaim(
        metadata=meta_of(inputs.found, name, {POOL: pool.name}),
        spec=SliceClaimSpec(
            mode=ClaimMode.DYNAMIC,
            count=count,
            selector=settings.selector,
            node_names=settings.node_names,
            per_node=settings.per_node,
            users=Users.CLUSTER,
            grace_period_seconds=min(settings.drain_seconds, inputs.defaults.max_grace_period_seconds),
            # Only the cluster decides when a node leaves it.
            replace_after_seconds=0,
        ),
    )


def claimed(inputs: ClusterInputs, pool: Pool) -> int:
    """Return how many nodes the claim of a pool should request: never fewer than serve the cluster; 0 for no claim."""
    return max(pool.want, len(pool.live) + len(pool.going) + len(_free(inputs, pool)))


def _pool_writes(inputs: ClusterInputs, pool: Pool) -> Iterable[DirectWrite]:
    count = claimed(inputs, pool)
    there = inputs.claims.get(claim_name(inputs.found.metadata.name, pool.name))
    is_foreign = there is not None and pool.claim is None
    if count and not is_foreign:
        wanted = claim(inputs, pool, count)
        if pool.claim is not None and not pool.want:
            # A pool that is removed keeps its settings: they are not in the spec any more.
            wanted = msgspec.structs.replace(wanted, spec=msgspec.structs.replace(pool.claim.spec, count=count))
        yield from kept(wanted, pool.claim)
    if not count and pool.claim is not None:
        yield from deleted([pool.claim])
    yield from deleted(leaving.leaving(pool, facts_of(inputs)))
    yield from _handed_over(inputs, pool)


def choosable(inputs: ClusterInputs) -> list[str]:
    """Return the nodes of which some leave because their pool shrinks, and all others of it; none if none does."""
    if inputs.found.metadata.deletion_timestamp or inputs.found.spec.paused:
        return []
    facts = facts_of(inputs)
    # A pool that keeps none chooses none.
    shrinking = [pool for pool in pools(inputs) if pool.want and leaving.surplus(pool, facts)]
    return sorted(each.metadata.name for pool in shrinking for each in pool.live)


def facts_of(inputs: ClusterInputs) -> LeavingFacts:
    """Return what decides which nodes leave."""
    return LeavingFacts(plane=inputs.own_plane, first=inputs.first, pods=inputs.pods)


def handover(pool: Pool, node: str, of: VirtualControlPlane, most_seconds: int) -> NodeHandover:
    """Return the NodeHandover of a node of a pool.

    Args:
        pool: The pool.
        node: The node.
        of: The control plane.
        most_seconds: The longest grace period of slices, for which a cluster may keep a node, too.
    """
    meta, settings = of.metadata, pool.settings
    return NodeHandover(
        metadata=ObjectMeta(name=node, labels={MANAGED_BY: MANAGER}),
        spec=NodeHandoverSpec(
            plane=HandoverPlane(namespace=meta.namespace, name=meta.name, uid=meta.uid),
            slice=pool.slice,
            labels={**settings.labels, POOL: pool.name},
            taints=settings.taints,
            drain_seconds=min(settings.drain_seconds, most_seconds),
            version=leaving.wanted_version(settings, of),
        ),
    )


def _handed_over(inputs: ClusterInputs, pool: Pool) -> Iterable[DirectWrite]:
    """Return the writes of the handovers that stay, and of new ones."""
    of, found = inputs.own_plane, pool.claim
    if of is None or of.metadata.deletion_timestamp or found is None or not pool.want:
        return
    most = inputs.defaults.max_grace_period_seconds
    ending = {each.metadata.name for each in leaving.leaving(pool, facts_of(inputs))}
    staying = [each for each in pool.live if each.metadata.name not in ending]
    for each in staying:
        wanted = handover(pool, each.metadata.name, of, most)
        if leaving.is_outdated(each, wanted.spec.version) or not wanted.spec.version:
            # It waits for its turn: the version is that of its kubelet until it is rebuilt.
            wanted = replace(wanted, spec=replace(wanted.spec, version=each.spec.version))
        yield from kept(wanted, each)
    for name in _free(inputs, pool):
        yield created(handover(pool, name, of, most))


def _free(inputs: ClusterInputs, pool: Pool) -> list[str]:
    """Return the nodes of the claim that leave the host next."""
    of, found = inputs.own_plane, pool.claim
    if of is None or of.metadata.deletion_timestamp or found is None:
        return []
    # Only what the slice has alone: pods of others have left these nodes within their grace periods.
    if found.status.state is not SliceState.BOUND or found.metadata.deletion_timestamp:
        return []
    busy = {*inputs.handovers, *inputs.taken}
    free = [name for name in sorted(found.status.nodes) if name not in busy]
    staying = len(pool.live) - len(leaving.leaving(pool, facts_of(inputs)))
    return free[: max(0, pool.want - staying)]


# -- the end --------------------------------------------------------------------------------------


def _end(inputs: ClusterInputs) -> Plan:
    """Return the next writes of a cluster that is being deleted: each step waits for the one before, until a time."""
    found, handovers = inputs.found, tuple(inputs.handovers.values())
    is_over = ending.is_over(inputs)
    if handovers and not is_over:
        return Plan(writes=(*_hurried(handovers), *deleted(handovers)))
    if inputs.own_claims and not is_over:
        return Plan(writes=tuple(deleted(inputs.own_claims)))
    # What is left of them ends by itself: no other claim gets a machine that has not returned.
    rest = (*deleted(handovers), *deleted(inputs.own_claims))
    if inputs.own_plane is not None:
        return Plan(writes=(*rest, *_left(inputs.own_plane, is_over=is_over), *deleted([inputs.own_plane])))
    if CLUSTER_FINALIZER not in found.metadata.finalizers:
        return Plan(writes=rest)
    others = tuple(each for each in found.metadata.finalizers if each != CLUSTER_FINALIZER)
    return Plan(writes=(*rest, _with_finalizers(found, others)))


def _hurried(found: Iterable[NodeHandover]) -> Iterable[DirectWrite]:
    """Return the writes by which no pod is waited for on a node that is not Ready: nothing there confirms its end."""
    for each in found:
        if not is_joined(each) and not each.metadata.deletion_timestamp and each.spec.drain_seconds:
            meta = each.metadata
            body: Json = {"metadata": {"uid": meta.uid}, "spec": {"drainSeconds": 0}}
            yield DirectWrite(request=request.patch(each.resource, "", meta.name, body), ignores=(NotFound, Conflict))


def _left(found: VirtualControlPlane, *, is_over: bool) -> Iterable[DirectWrite]:
    """Return the write by which a control plane ends although machines have not returned."""
    meta = found.metadata
    if is_over and LEAVE_NODES not in meta.annotations:
        body: Json = {"metadata": {"uid": meta.uid, "annotations": {LEAVE_NODES: "true"}}}
        patch = request.patch(found.resource, meta.namespace, meta.name, body)
        yield DirectWrite(request=patch, ignores=(NotFound, Conflict))


# -- writes ---------------------------------------------------------------------------------------


def _with_finalizers(found: DedicatedCluster, names: tuple[str, ...]) -> DirectWrite:
    return DirectWrite(request=request.finalizers(found, names), ignores=(NotFound, Conflict))
