"""The writes that move the objects of a tenant out of its control plane, to the host: pure.

The opposite of `moves`, by the same machine: the state of both sides decides what is next. Nothing is written inside,
and no mirror follows it any more, so nothing that controllers there delete is deleted on the host. Kubernetes'
controllers of the host create no pods meanwhile, because a policy closes the namespace.

    ends      host: pods, Services and claims that are gone inside, as the mirror would delete them
    basics    host: ServiceAccounts, ConfigMaps, Secrets, Roles; adopted ones lose their marks
    barriers  host: NetworkPolicies, budgets, Ingresses, before pods lose the label that the mirror's select
    services  host: they select pods by the labels of users; one that keeps another name gets a second of its name
    claims    host: they lose their marks
    pods      host: they lose their marks and their owner
    low       host: ReplicaSets and StatefulSets, which take over the pods without an owner
    high      host: Deployments, which take over the ReplicaSets; CronJobs, HorizontalPodAutoscalers
    grants    host: RoleBindings
    rest      host: what only the mirror needed is deleted; its copies that pods name end with these pods

Namespaces inside that become Subnamespaces go through the same stages before that one.

Source: Kubernetes, "Garbage Collection", "ReplicaSet" (acquisition of pods).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tenantry.api.model import Json, Resource
from tenantry.api.virtualcontrolplane import PLANE
from tenantry.api.wording import shortened
from tenantry.controllers.conversion import objects, outcopies
from tenantry.controllers.conversion.moves import Move, Moves, Side, Stages, Worlds, delete, next_moves
from tenantry.controllers.conversion.objects import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    HIGH,
    JOBS,
    LOW,
    REPLICA_SETS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    STATEFUL_SETS,
    name_of,
)
from tenantry.controllers.conversion.outplan import BARRIERS, STAYING, carried, claim_names, counterpart
from tenantry.engine import request
from tenantry.mirror import references
from tenantry.mirror.kinds import claims, services
from tenantry.mirror.shapes import items, part
from tenantry.mirror.things import COPIED, PODS

_IDENTITY = ("name", "namespace", "uid")


# -- stages ---------------------------------------------------------------------------------------


def _ends(worlds: Worlds) -> Iterator[Move | str]:
    for resource in STAYING:
        for each in _marked(worlds, resource):
            above = _above(worlds, resource, each)
            if objects.is_deleting(each):
                yield f"the end of {resource.kind} {name_of(each)!r}"
            elif above is None or objects.is_deleting(above) or _is_of_job(resource, above):
                yield delete(resource, each)


def _basics(worlds: Worlds) -> Iterator[Move | str]:
    yield from _settled(worlds, (SERVICE_ACCOUNTS, CONFIG_MAPS, SECRETS, ROLES))


def _barriers(worlds: Worlds) -> Iterator[Move | str]:
    yield from _settled(worlds, BARRIERS)


def _services(worlds: Worlds) -> Iterator[Move | str]:
    for each in worlds.inside.all(services.RESOURCE):
        there = counterpart(worlds, services.RESOURCE, each)
        if there is not None and outcopies.is_marked(there, worlds.profile):
            yield _selecting(worlds, there, each)
        elif worlds.host.find(services.RESOURCE, name_of(each)) is None and not objects.is_deleting(each):
            body = outcopies.alias(each, worlds.profile)
            yield Move(side=Side.HOST, request=request.create_json(services.RESOURCE, body))


def _claims(worlds: Worlds) -> Iterator[Move | str]:
    for each in worlds.inside.all(claims.RESOURCE):
        there = counterpart(worlds, claims.RESOURCE, each)
        if there is None or not outcopies.is_marked(there, worlds.profile):
            continue
        owner, owners = objects.controller_of(each), list[Json]()
        if owner.get("kind") == PODS.kind:
            # Of a generic ephemeral volume: it ends with its pod, as it would inside.
            pod = worlds.inside.find(PODS, str(owner.get("name", "")))
            below = counterpart(worlds, PODS, pod) if pod is not None else None
            owners = [_reference(below)] if below is not None else []
        yield _freed(worlds, claims.RESOURCE, there, owners)


def _pods(worlds: Worlds) -> Iterator[Move | str]:
    for each in worlds.inside.all(PODS):
        there = counterpart(worlds, PODS, each)
        if there is not None and outcopies.is_marked(there, worlds.profile):
            yield _freed(worlds, PODS, there, [], _shown_marks(there, worlds))


def _low(worlds: Worlds) -> Iterator[Move | str]:
    yield from _brought(worlds, LOW, (REPLICA_SETS, STATEFUL_SETS))
    yield from _taken_over(worlds, PODS, (REPLICA_SETS, STATEFUL_SETS))


def _high(worlds: Worlds) -> Iterator[Move | str]:
    yield from _brought(worlds, HIGH, (DEPLOYMENTS,))
    yield from _taken_over(worlds, REPLICA_SETS, (DEPLOYMENTS,))


def _grants(worlds: Worlds) -> Iterator[Move | str]:
    yield from _brought(worlds, (ROLE_BINDINGS,), ())


def _rest(worlds: Worlds) -> Iterator[Move | str]:
    for resource in BARRIERS:
        for each in _marked(worlds, resource):
            if not objects.is_deleting(each):
                yield delete(resource, each)
    users = _users_of_copies(worlds)
    for resource in (CONFIG_MAPS, SECRETS):
        for each in _marked(worlds, resource):
            if objects.is_deleting(each):
                continue
            named_by = users.get((resource, name_of(each)), ())
            owners = [_reference(pod) for pod in named_by] if len(named_by) <= outcopies.MOST_OWNERS else []
            yield _freed(worlds, resource, each, owners) if named_by else delete(resource, each)


STAGES: Stages = {
    "ends": _ends,
    "basics": _basics,
    "barriers": _barriers,
    "services": _services,
    "claims": _claims,
    "pods": _pods,
    "low": _low,
    "high": _high,
    "grants": _grants,
    "rest": _rest,
}


def next_elsewhere(others: Iterable[Worlds]) -> Moves:
    """Return what is next in the namespaces that become Subnamespaces; each has these stages of its own.

    Args:
        others: Both sides of each of them; see `elsewhere`.
    """
    found = [each for each in (next_moves(one, STAGES) for one in others) if not each.is_done]
    writes = tuple(write for each in found for write in each.writes)
    waits = shortened([each.waits for each in found if each.waits])
    return Moves(stage="namespaces" if found else "done", writes=writes, waits=waits)


# -- parts of stages ------------------------------------------------------------------------------


def _marked(worlds: Worlds, resource: Resource) -> list[Json]:
    """Return the objects of the host that have the label of the mirror.

    The operator keeps others for the control plane itself, such as the Service of its API server: these end with it.
    """
    mark, uid = worlds.profile.mark("owner"), worlds.profile.owner_uid
    found = [each for each in worlds.host.all(resource) if objects.labels(each).get(mark) == uid]
    return [each for each in found if PLANE not in objects.labels(each)]


def _above(worlds: Worlds, resource: Resource, below: Json) -> Json | None:
    """Return the object inside that a marked one of the host stands for; None if it is gone."""
    marks = objects.notes(below)
    of_namespace = marks.get(worlds.profile.mark("namespace")) == worlds.profile.namespace
    found = worlds.inside.find(resource, str(marks.get(worlds.profile.mark("name"), ""))) if of_namespace else None
    if found is None or marks.get(worlds.profile.mark("uid")) not in (None, found["metadata"].get("uid")):
        return None
    return found


def _is_of_job(resource: Resource, above: Json) -> bool:
    return resource == PODS and objects.controller_of(above).get("kind") == JOBS.kind


def _create(worlds: Worlds, resource: Resource, above: Json) -> Move:
    body = outcopies.lower(resource, above, worlds.profile, claim_names(worlds), worlds.place)
    return Move(side=Side.HOST, request=request.create_json(resource, body))


def _replaced(worlds: Worlds, resource: Resource, there: Json, above: Json) -> Move:
    """Return the write by which an adopted object becomes one of users: it keeps its uid."""
    body = outcopies.lower(resource, above, worlds.profile, place=worlds.place)
    for field in ("uid", "resourceVersion"):
        if field in there["metadata"]:
            body["metadata"][field] = there["metadata"][field]
    if "type" in there:
        body["type"] = there["type"]  # of a Secret: it never changes
    return Move(side=Side.HOST, request=request.replace_json(resource, body))


def _selecting(worlds: Worlds, there: Json, above: Json) -> Move:
    """Return the write by which a Service is no longer the mirror's, and selects the pods of users."""
    body = outcopies.freed(there, worlds.profile, [])
    selector: Json = dict(part(part(above, "spec"), "selector"))
    before = part(part(there, "spec"), "selector")
    body["spec"] = {"selector": {**dict.fromkeys(before), **selector} or None}
    return _patched(services.RESOURCE, there, body)


def _freed(worlds: Worlds, resource: Resource, there: Json, owners: list[Json], keeps: tuple[str, ...] = ()) -> Move:
    return _patched(resource, there, outcopies.freed(there, worlds.profile, owners, keeps))


def _patched(resource: Resource, there: Json, body: Json) -> Move:
    meta = there["metadata"]
    return Move(side=Side.HOST, request=request.patch(resource, meta["namespace"], meta["name"], body))


def _reference(pod: Json) -> Json:
    return {"apiVersion": "v1", "kind": PODS.kind, "name": name_of(pod), "uid": pod["metadata"]["uid"]}


def _shown_marks(pod: Json, worlds: Worlds) -> tuple[str, ...]:
    """Return the marks that files in the pod show, as its name, its namespace or its uid."""
    spec, found = part(pod, "spec"), list[str]()
    for volume in items(spec, "volumes"):
        sources = [part(volume, "downwardAPI")]
        sources += [part(each, "downwardAPI") for each in items(part(volume, "projected"), "sources")]
        paths = {str(part(each, "fieldRef").get("fieldPath")) for source in sources for each in items(source, "items")}
        found += [mark for mark in _IDENTITY if f"metadata.annotations['{worlds.profile.mark(mark)}']" in paths]
    return tuple(sorted(set(found)))


def _settled(worlds: Worlds, resources: Sequence[Resource]) -> Iterator[Move | str]:
    """Create what is missing on the host, and give what was adopted to the users."""
    for resource in resources:
        for each in carried(worlds, resource):
            there = worlds.host.find(resource, name_of(each))
            if there is None:
                yield _create(worlds, resource, each)
            elif outcopies.stands_for(there, worlds.profile, name_of(each)):
                yield _replaced(worlds, resource, there, each)


def _brought(worlds: Worlds, resources: Sequence[Resource], seen: Sequence[Resource]) -> Iterator[Move | str]:
    """Create what is missing on the host, and wait until its controllers have seen it."""
    for resource in resources:
        for each in carried(worlds, resource):
            there = worlds.host.find(resource, name_of(each))
            if there is None:
                yield _create(worlds, resource, each)
            elif resource in seen and not part(there, "status").get("observedGeneration"):
                yield f"the controller of {resource.kind} {name_of(each)!r}"


def _taken_over(worlds: Worlds, resource: Resource, owners: Sequence[Resource]) -> Iterator[Move | str]:
    """Wait until the objects of the host have the controllers that they had inside."""
    kinds = {each.kind: each for each in owners}
    for each in worlds.inside.all(resource):
        owner = objects.controller_of(each)
        kind = kinds.get(str(owner.get("kind", "")))
        there = counterpart(worlds, resource, each) if resource == PODS else worlds.host.find(resource, name_of(each))
        if kind is None or there is None or objects.is_deleting(there) or objects.controller_of(there):
            continue
        if worlds.host.find(kind, str(owner.get("name", ""))) is not None:
            yield f"the owner of {resource.kind} {name_of(there)!r}"


def _users_of_copies(worlds: Worlds) -> dict[tuple[Resource, str], list[Json]]:
    """Return the pods of the host that name each ConfigMap and Secret there."""
    found: dict[tuple[Resource, str], list[Json]] = {}
    for pod in worlds.host.all(PODS):
        for each in references.references(pod):
            found.setdefault((COPIED[each.kind], each.name), []).append(pod)
    return found
