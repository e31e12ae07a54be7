"""The steps of a plan with their consequences: what is deleted, what shrinks, who loses access, which pods leave. Pure.

    changes of files, prunes, changes of the operator ─┐
    namespaces, pods, quotas, bindings, slices         ┴─► steps, each with its changed fields and its consequences

    Tenant acme      quota cpu 4 ─► 2                      Shrinks       requests.cpu 4 to 2
    ResourceQuota    requests.cpu 4 ─► 2, of which 3 used  NoLongerFits  pods acme/web-1, which are the newest

A consequence that a Tenantry object has through objects of the operator is that of these: each of them is a step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from tenantry.api.dedicatedcluster import DedicatedCluster
from tenantry.api.kubernetes import RoleBinding
from tenantry.api.marks import TENANT, TREE_SUFFIX
from tenantry.api.model import Json
from tenantry.api.offloading import NamespaceMap
from tenantry.api.slice import ClaimMode, Sharing, Slice, SliceClaim, slice_name
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.api.wording import shortened
from tenantry.engine.plan import StepAction
from tenantry.engine.preview import Preview
from tenantry.views.pods import FINISHED, PodRequests
from tenantry.world.podcharges import charge
from tenantry.world.shares.amounts import Amounts, add, beyond, read, spell


class StepAuthor(StrEnum):
    """What writes a step."""

    APPLY = "Apply"
    PRUNE = "Prune"
    OPERATOR = "Operator"


class Effect(StrEnum):
    """The kind of a consequence."""

    DELETES = "Deletes"
    SHRINKS = "Shrinks"
    LOSES_ACCESS = "LosesAccess"
    NO_LONGER_FITS = "NoLongerFits"
    DRAINS = "Drains"
    RESTARTS = "Restarts"
    BLOCKED = "Blocked"


class Consequence(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a step does to what exists.

    Args:
        effect: Its kind.
        objects: What it is about: objects as Kind/key, or subjects as Kind name, sorted.
        message: The same in words.
    """

    effect: Effect
    objects: tuple[str, ...]
    message: str


class FieldChange(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A field before and after; None for a field that is not set."""

    path: str
    before: object
    after: object


class PlannedStep(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One write.

    Args:
        by: What writes it.
        action: create, update or delete.
        kind: The kind of the object.
        namespace: Its namespace; "" for a cluster-scoped object.
        name: Its name.
        fields: The fields that an update changes.
        consequences: What it does to what exists.
    """

    by: StepAuthor
    action: StepAction
    kind: str
    namespace: str
    name: str
    fields: tuple[FieldChange, ...] = ()
    consequences: tuple[Consequence, ...] = ()


class PlanSurroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What a cluster has around the changes; maps are by key unless they say otherwise.

    Args:
        namespaces: The labels of the managed namespaces, by name.
        subnamespaces: All Subnamespaces.
        claims: All SliceClaims.
        slices: All Slices.
        planes: All VirtualControlPlanes.
        clusters: All DedicatedClusters.
        maps: All NamespaceMaps.
        pods: The pods of the namespaces that end, or whose quota changes.
        on_nodes: The pods of the nodes that are given back.
        volumes: The number of PersistentVolumeClaims of namespaces that end, by name.
        bindings: The RoleBindings of namespaces that end.
        used: What is used of each share of a quota.
    """

    namespaces: Mapping[str, Mapping[str, str]] = {}
    subnamespaces: Mapping[str, Subnamespace] = {}
    claims: Mapping[str, SliceClaim] = {}
    slices: Mapping[str, Slice] = {}
    planes: Mapping[str, VirtualControlPlane] = {}
    clusters: Mapping[str, DedicatedCluster] = {}
    maps: Mapping[str, NamespaceMap] = {}
    pods: Sequence[PodRequests] = ()
    on_nodes: Sequence[PodRequests] = ()
    volumes: Mapping[str, int] = {}
    bindings: Sequence[RoleBinding] = ()
    used: Mapping[str, Mapping[str, str]] = {}

    def with_contents(
        self,
        *,
        pods: Sequence[PodRequests],
        on_nodes: Sequence[PodRequests],
        volumes: Mapping[str, int],
        bindings: Sequence[RoleBinding],
        used: Mapping[str, Mapping[str, str]],
    ) -> PlanSurroundings:
        """Return the same with the contents of the namespaces and nodes in question."""
        return replace(self, pods=pods, on_nodes=on_nodes, volumes=volumes, bindings=bindings, used=used)

    def ending(self, change: Preview) -> list[str]:
        """Return the namespaces that end with a change, sorted."""
        if change.action is not StepAction.DELETE:
            return []
        if change.kind == "Tenant":
            return sorted(name for name, labels in self.namespaces.items() if labels.get(TENANT) == change.name)
        root = ""
        if change.kind == "Namespace":
            root = change.name
        elif change.kind == Subnamespace.resource.kind:
            found = self.subnamespaces.get(change.key)
            root = found.status.namespace if found is not None else ""
        if not root:
            return []
        return sorted({root, *(each for each, labels in self.namespaces.items() if f"{root}{TREE_SUFFIX}" in labels)})

    def nodes_of(self, change: Preview) -> list[str]:
        """Return the nodes that the object of a change has for itself, sorted."""
        if change.kind == SliceClaim.resource.kind:
            claim = self.claims.get(change.key)
            found = self.slices.get(slice_name(claim.metadata.name, claim.metadata.uid)) if claim is not None else None
            return sorted({*(claim.status.nodes if claim else ()), *(found.status.nodes if found else ())})
        if change.kind == Slice.resource.kind:
            slice_ = self.slices.get(change.key)
            return sorted(slice_.status.nodes) if slice_ is not None else []
        return []


def steps(by: StepAuthor, changes: Sequence[Preview], around: PlanSurroundings) -> list[PlannedStep]:
    """Return the steps of changes, in their order.

    Args:
        by: What writes them.
        changes: Objects before and after.
        around: What the cluster has around them.
    """
    return [
        PlannedStep(
            by=by,
            action=each.action,
            kind=each.kind,
            namespace=each.namespace,
            name=each.name,
            fields=tuple(fields(each.before, each.after)) if each.before and each.after else (),
            consequences=tuple(_consequences(each, around)),
        )
        for each in changes
    ]


def fields(before: Json, after: Json, path: str = "") -> Iterator[FieldChange]:
    """Yield the fields that differ, sorted by path; a list is one field."""
    for key in sorted(before.keys() | after.keys()):
        inner = f"{path}.{key}" if path else key
        was: object = before.get(key)
        will: object = after.get(key)
        if was == will:
            continue
        if isinstance(was, dict) and isinstance(will, dict):
            yield from fields(cast("Json", was), cast("Json", will), inner)
        else:
            yield _field(inner, was, will)


def _field(path: str, before: Any, after: Any) -> FieldChange:  # noqa: ANN401 - JSON is anything
    return FieldChange(path=path, before=before, after=after)


def _consequences(change: Preview, around: PlanSurroundings) -> Iterator[Consequence]:
    ending = around.ending(change)
    if ending:
        yield from _ends(change, ending, around)
    match change.kind:
        case "Tenant":
            yield from _of_tenant(change)
        case "ResourceQuota":
            yield from _of_quota(change, around)
        case "RoleBinding":
            yield from _of_binding(change)
        case "SliceClaim" | "Slice":
            yield from _of_nodes(change, around)
        case "VirtualControlPlane" | "DedicatedCluster":
            yield from _of_plane(change, around)
        case "PeerCluster" | "NamespaceOffloading":
            yield from _of_peer(change, around)
        case "ClusterTemplate":
            yield from _of_template(change, around)
        case _:
            pass


# -- namespaces and access ------------------------------------------------------------------------


def _ends(change: Preview, ending: Sequence[str], around: PlanSurroundings) -> Iterator[Consequence]:
    inside = set(ending)
    pods = [each for each in around.pods if each.metadata.namespace in inside]
    volumes = sum(around.volumes.get(each, 0) for each in ending)
    planes = [f"{each.resource.kind}/{key}" for key, each in around.planes.items() if each.metadata.namespace in inside]
    planes += [
        f"{each.resource.kind}/{key}" for key, each in around.clusters.items() if each.metadata.namespace in inside
    ]
    claims = [f"{each.resource.kind}/{key}" for key, each in around.claims.items() if each.metadata.namespace in inside]
    parts = [
        f"{_counted(len(ending), 'namespace')} ({shortened(ending)})",
        _counted(len(pods), "pod"),
        *([_counted(volumes, "PersistentVolumeClaim")] if volumes else []),
        *([shortened([*planes, *claims])] if planes or claims else []),
    ]
    objects = [*(f"Namespace/{each}" for each in ending), *sorted(planes), *sorted(claims)]
    yield Consequence(effect=Effect.DELETES, objects=tuple(objects), message=f"{', '.join(parts)} and all else inside")
    who = {_subject(each) for binding in around.bindings for each in msgspec.to_builtins(binding.subjects)}
    if who:
        told = f"{shortened(who)} in {shortened(ending)}"
        yield Consequence(effect=Effect.LOSES_ACCESS, objects=tuple(sorted(who)), message=told)
    below = _kept_by_children(change, ending, around)
    if below:
        told = f"ends only after the Subnamespaces inside: {shortened(below)}; or set spec.allowCascadingDeletion first"
        yield Consequence(effect=Effect.BLOCKED, objects=tuple(f"Subnamespace/{each}" for each in below), message=told)


def _kept_by_children(change: Preview, ending: Sequence[str], around: PlanSurroundings) -> list[str]:
    """Return the Subnamespaces that keep the operator from deleting the namespace of another."""
    found = around.subnamespaces.get(change.key) if change.kind == Subnamespace.resource.kind else None
    if found is None or found.spec.allow_cascading_deletion:
        return []
    return sorted(key for key, each in around.subnamespaces.items() if each.metadata.namespace in ending)


def _of_tenant(change: Preview) -> Iterator[Consequence]:
    before, after = _spec(change.before), _spec(change.after)
    if change.after is None or change.before is None:
        return
    lost = _shrunk(_hard(before.get("quota")), _hard(after.get("quota")))
    if lost:
        yield _shrinks(change, lost)
    if after.get("suspended") and not before.get("suspended"):
        who = sorted(_subject(each) for each in after.get("owners", ()))
        told = f"{shortened(who)} and all other users of the tenant, until it is resumed; pods keep running"
        yield Consequence(effect=Effect.LOSES_ACCESS, objects=tuple(who), message=told)


def _of_binding(change: Preview) -> Iterator[Consequence]:
    before, after = change.before or {}, change.after or {}
    was = {_subject(each) for each in before.get("subjects") or ()}
    will = {_subject(each) for each in after.get("subjects") or ()}
    lost = tuple(sorted(was - will))
    if lost:
        role = before.get("roleRef", {}).get("name", "")
        told = f"{shortened(lost)} in namespace {change.namespace}: role {role}"
        yield Consequence(effect=Effect.LOSES_ACCESS, objects=lost, message=told)


def _subject(found: Mapping[str, Any]) -> str:
    namespace = found.get("namespace", "")
    return f"{found.get('kind', '')} {f'{namespace}/' if namespace else ''}{found.get('name', '')}"


# -- quotas and pods ------------------------------------------------------------------------------


def _of_quota(change: Preview, around: PlanSurroundings) -> Iterator[Consequence]:
    before, after = _hard(_spec(change.before)), _hard(_spec(change.after))
    if change.before is None or change.after is None:
        return
    lost = _shrunk(before, after)
    if not lost:
        return
    yield _shrinks(change, lost)
    used = read(around.used.get(change.key, {}))
    over = {key: amount for key, amount in beyond(used, read(after)).items() if amount and key in lost}
    if not over:
        return
    pods = [each for each in around.pods if each.metadata.namespace == change.namespace]
    beside = _newest_beyond(pods, over)
    told = ", ".join(f"{spell(key, used[key])} of {spell(key, read(after)[key])} {key} used" for key in sorted(over))
    names = f"; the newest that exceed it: {shortened(beside)}" if beside else ""
    message = f"{told}{names}; pods keep running, and new ones are refused until less is used"
    objects = tuple(f"Pod/{each}" for each in beside)
    yield Consequence(effect=Effect.NO_LONGER_FITS, objects=objects, message=message)


def _newest_beyond(pods: Sequence[PodRequests], over: Amounts) -> list[str]:
    """Return the newest pods that together use at least what exceeds a quota, as namespace/name."""
    left = dict(over)
    found: list[str] = []
    running = [each for each in pods if each.status.phase not in FINISHED]
    for pod in sorted(running, key=lambda each: (each.metadata.creation_timestamp, each.metadata.name), reverse=True):
        takes = {key: amount for key, amount in charge(pod.spec).items() if key in left and amount}
        if not takes:
            continue
        found.append(f"{pod.metadata.namespace}/{pod.metadata.name}")
        add(left, takes, -1)
        left = {key: amount for key, amount in left.items() if amount > 0}
        if not left:
            break
    return found


def _shrunk(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, tuple[int, int]]:
    """Return the keys of a quota whose amount becomes less, with both amounts in thousandths.

    A key that is no longer there has no limit any more.
    """
    was, will = read(before), read(after)
    found = {key: (was[key], will[key]) for key in was.keys() & will.keys() if will[key] < was[key]}
    # A key that is new limits what had no limit.
    return found | {key: (-1, will[key]) for key in will.keys() - was.keys()}


def _shrinks(change: Preview, lost: Mapping[str, tuple[int, int]]) -> Consequence:
    told = (
        f"{key} from {spell(key, was) if was >= 0 else 'no limit'} to {spell(key, will)}"
        for key, (was, will) in sorted(lost.items())
    )
    about = f"{change.kind}/{change.key}"
    return Consequence(effect=Effect.SHRINKS, objects=(about,), message=shortened(told, in_order=True))


# -- nodes, control planes and peers --------------------------------------------------------------


def _of_nodes(change: Preview, around: PlanSurroundings) -> Iterator[Consequence]:
    if change.action is not StepAction.DELETE:
        if change.kind == SliceClaim.resource.kind:
            held = len(around.nodes_of(change)) if change.before else 0
            before = _spec(change.before) if change.before else {"count": 0}
            yield from _of_growth(before, _spec(change.after), held)
        return
    nodes = around.nodes_of(change)
    if not nodes:
        return
    there = {each.metadata.namespace for each in around.on_nodes if each.node in nodes}
    drained = sorted(there & around.namespaces.keys())
    told = f"{_counted(len(nodes), 'node')} ({shortened(nodes)}) given back and cleaned"
    if drained:
        told += f"; pods of {shortened(drained)} there are evicted"
    yield Consequence(effect=Effect.DRAINS, objects=tuple(f"Namespace/{each}" for each in drained), message=told)


def _of_growth(before: Json, after: Json, held: int) -> Iterator[Consequence]:
    """Yield the eviction of pods from the nodes that a claim gets; which nodes these are depends on the moment.

    Args:
        before: The spec; with a count of 0 for a new claim.
        after: The spec.
        held: How many nodes the claim has.
    """
    if after.get("sharing", Sharing.WHOLE) != Sharing.WHOLE:
        return
    more = int(after.get("count", 1)) - max(int(before.get("count", 1)), held)
    was, total = read(_total(before)), read(_total(after))
    grows = any(amount > was.get(key, 0) for key, amount in total.items())
    if more <= 0 and not grows:
        return
    least = "at least " if total else ""
    who = f"{least}{_counted(more, 'node')}" if more > 0 else "as many nodes as spec.total needs"
    when = ", once an administrator approves" if after.get("mode") == ClaimMode.MANUAL else ""
    leave = "leaves" if more == 1 else "leave"
    told = f"{who} {leave} the shared pool{when}: pods of other namespaces there are evicted"
    yield Consequence(effect=Effect.DRAINS, objects=(), message=told)


def _of_plane(change: Preview, around: PlanSurroundings) -> Iterator[Consequence]:
    before, after = _spec(change.before), _spec(change.after)
    if change.before is None:
        return
    about = f"{change.kind}/{change.key}"
    owners = {_subject(each) for each in before.get("owners") or ()}
    if change.after is None:
        told = "its control plane with all objects inside, and the pods that run for them"
        yield Consequence(effect=Effect.DELETES, objects=(about,), message=told)
        cluster = around.clusters.get(change.key) if change.kind == DedicatedCluster.resource.kind else None
        if cluster is not None and cluster.status.nodes:
            told = f"{_counted(cluster.status.nodes, 'node')} drained, cleaned and given back to the host"
            yield Consequence(effect=Effect.DRAINS, objects=(about,), message=told)
        lost = owners
    else:
        lost = owners - {_subject(each) for each in after.get("owners") or ()}
        yield from _of_plane_fields(about, before, after)
    if lost:
        told = f"{shortened(lost)} inside {change.name}"
        yield Consequence(effect=Effect.LOSES_ACCESS, objects=tuple(sorted(lost)), message=told)


def _of_plane_fields(about: str, before: Json, after: Json) -> Iterator[Consequence]:
    was, will = before.get("version", ""), after.get("version", "")
    if was != will:
        told = f"its control plane, for Kubernetes {will or 'of its template'} instead of {was or 'of its template'}"
        yield Consequence(effect=Effect.RESTARTS, objects=(about,), message=told)
    for path, had, has in _node_counts(before, after):
        if has < had:
            told = f"{_counted(had - has, 'node')} drained, cleaned and given back: {path} from {had} to {has}"
            yield Consequence(effect=Effect.DRAINS, objects=(about,), message=told)
    had, has = int(before.get("replicas", 1)), int(after.get("replicas", 1))
    if has < had:
        told = f"spec.replicas from {had} to {has}"
        yield Consequence(effect=Effect.SHRINKS, objects=(about,), message=told)


def _node_counts(before: Json, after: Json) -> Iterator[tuple[str, int, int]]:
    """Yield the numbers of nodes of a DedicatedCluster, by their path; nothing for a VirtualControlPlane."""
    if isinstance(before.get("nodes"), int):
        yield "spec.nodes", int(before["nodes"]), int(after.get("nodes") or 0)
    will = {each.get("name", ""): int(each.get("count", 0)) for each in after.get("pools") or ()}
    for each in before.get("pools") or ():
        name = each.get("name", "")
        yield f"spec.pools[{name}].count", int(each.get("count", 0)), will.get(name, 0)


def _of_peer(change: Preview, around: PlanSurroundings) -> Iterator[Consequence]:
    if change.action is not StepAction.DELETE:
        return
    if change.kind == "PeerCluster":
        found = around.maps.get(change.name)
        drained = sorted(found.status.current) if found is not None else []
        where = f"peer {change.name}"
    else:
        drained = [change.namespace] if any(change.namespace in e.status.current for e in around.maps.values()) else []
        where = "all peers"
    if drained:
        told = f"pods of {shortened(drained)} at {where} end, and start where they may run"
        objects = tuple(f"Namespace/{each}" for each in drained)
        yield Consequence(effect=Effect.DRAINS, objects=objects, message=told)


def _of_template(change: Preview, around: PlanSurroundings) -> Iterator[Consequence]:
    users = sorted(key for key, each in around.clusters.items() if each.spec.template == change.name)
    if change.action is StepAction.DELETE and users:
        told = f"{shortened(users)} name it: they keep what they have, and do not grow"
        objects = tuple(f"DedicatedCluster/{each}" for each in users)
        yield Consequence(effect=Effect.BLOCKED, objects=objects, message=told)


def _spec(found: Json | None) -> Json:
    spec: object = (found or {}).get("spec")
    return cast("Json", spec) if isinstance(spec, dict) else {}


def _hard(found: object) -> dict[str, str]:
    hard: object = cast("Json", found).get("hard") if isinstance(found, dict) else None
    return {key: str(value) for key, value in cast("Json", hard).items()} if isinstance(hard, dict) else {}


def _total(spec: Json) -> dict[str, str]:
    return _hard({"hard": spec.get("total")})


def _counted(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
