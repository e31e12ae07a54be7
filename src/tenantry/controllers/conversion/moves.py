"""The writes that move the objects of a tenant into its control plane: pure.

The state of both sides decides what is next; nothing else is remembered, so that an operator that was killed between
any two writes goes on. Each stage begins when there is nothing left to do in those before it:

    basics   inside: the namespace, ServiceAccounts, ConfigMaps, Secrets, Roles, RoleBindings
    marks    host: what stays gets the marks by which the mirror adopts it
    twins    inside: Services, claims, Ingresses, NetworkPolicies, budgets; the mirror adopts those of the host
    pods     inside: the same pods without a node; the mirror binds them to theirs
    low      inside: ReplicaSets and StatefulSets, which take over the pods without an owner
    high     inside: Deployments, which take over the ReplicaSets; CronJobs, HorizontalPodAutoscalers
    release  host: these are deleted, the high ones first, without what they own
    own      host: the adopted objects get the owner that mirrored objects have
    rest     host: what was copied is deleted; ServiceAccounts stay, without rights, as pods that run mount their tokens

Source: Kubernetes, "Garbage Collection" (orphaned dependents), "ReplicaSet" (acquisition of pods).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TypeAlias

import msgspec

from tenantry.api.errors import ApiError
from tenantry.api.model import Json, Resource
from tenantry.api.wording import shortened
from tenantry.controllers.conversion import objects
from tenantry.controllers.conversion.objects import (
    ADOPTED_KINDS,
    AUTOSCALERS,
    BASICS,
    CONFIG_MAPS,
    CRON_JOBS,
    DEPLOYMENTS,
    HIGH,
    JOBS,
    LOW,
    NAMESPACES,
    REPLICA_SETS,
    REVISIONS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    STATEFUL_SETS,
    Holdings,
    is_movable,
    name_of,
)
from tenantry.engine import request
from tenantry.engine.request import ApiRequest, Verb
from tenantry.mirror import adoption
from tenantry.mirror.profile import Profile
from tenantry.mirror.shapes import items, part
from tenantry.mirror.things import PODS


class Side(StrEnum):
    """Where a write goes."""

    HOST = "Host"
    INSIDE = "Inside"


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """One write.

    Args:
        side: Where it goes.
        request: The request.
    """

    side: Side
    request: ApiRequest


Todo: TypeAlias = tuple[str, tuple[tuple[Verb, Resource, str, str], ...]]
"""See `Moves.todo`: the verb, kind, namespace and name of each write."""


class Moves(msgspec.Struct, frozen=True, kw_only=True):
    """What is next.

    Args:
        stage: The name of the stage.
        writes: They may be sent in any order, and at the same time.
        waits: What others have to do before the next stage; "" for nothing.
    """

    stage: str
    writes: tuple[Move, ...] = ()
    waits: str = ""

    @property
    def is_done(self) -> bool:
        """Return whether everything has moved."""
        return not self.writes and not self.waits

    @property
    def todo(self) -> Todo:
        """Return what is waited for, and the objects that are written: the same as before if nothing has changed."""
        asked = (each.request for each in self.writes)
        return self.waits, tuple((each.verb, each.resource, each.namespace, each.name) for each in asked)

    def progress(self, error: ApiError | None, *, is_blind: bool) -> str:
        """Return how far objects have moved.

        Args:
            error: Why the last writes failed; None if they did not.
            is_blind: Whether users read it who may not see what is in the namespace: it has no names then.
        """
        waits = f", waits for {self.waits}" if self.waits and not is_blind else ""
        refused = f": {error}" if error is not None and not is_blind else ""
        return f"objects move: stage {self.stage}{waits}{refused}"


class Worlds(msgspec.Struct, frozen=True, kw_only=True):
    """Both sides, as they were listed.

    Args:
        host: The objects of the namespace on the host.
        inside: The objects of the namespace inside.
        has_namespace: Whether there is this namespace inside.
        profile: The configuration of the mirror that adopts; its namespace is the one on the host.
        source: The namespace inside, if it has another name there, so that no pod is in it; see `elsewhere`.
        places: The namespaces inside whose objects move, and those on the host that they move to.
    """

    host: Holdings
    inside: Holdings
    has_namespace: bool
    profile: Profile
    source: str = ""
    places: Mapping[str, str] = {}

    def told(self, name: str) -> str:
        """Return the name of an object, with its namespace inside if that is another one than on the host."""
        return f"{self.source}/{name}" if self.source else name

    def place(self, namespace: str) -> str | None:
        """Return the namespace of the host to which the objects of one inside move; None if they do not move."""
        if namespace in self.places:
            return self.places[namespace]
        return namespace if namespace == self.profile.namespace and not self.source else None

    def movable(self, resource: Resource) -> list[Json]:
        """Return the objects of users on the host that are not being deleted."""
        found = self.host.all(resource)
        return [each for each in found if is_movable(resource, each, self.profile) and not objects.is_deleting(each)]

    def adopted(self, resource: Resource) -> list[Json]:
        """Return the objects of the host that have the marks by which the mirror adopts them."""
        return [each for each in self.host.all(resource) if objects.is_adopted(each, self.profile)]

    def lacks(self, resource: Resource, found: Json) -> bool:
        """Return whether there is no object of this name inside."""
        return self.inside.find(resource, name_of(found)) is None


def has_begun(host: Holdings, profile: Profile) -> bool:
    """Return whether an object of the host is marked, so that a conversion only goes on."""
    return any(objects.is_adopted(each, profile) for found in host.of.values() for each in found)


Stages = Mapping[str, Callable[[Worlds], Iterator["Move | str"]]]
"""By name, in their order: each yields its writes, and what others have to do before the next stage."""


def next_moves(worlds: Worlds, stages: Stages | None = None) -> Moves:
    """Return what is next.

    Args:
        worlds: Both sides.
        stages: Those of a conversion in the other direction; see `outmoves`.
    """
    for name, stage in (STAGES if stages is None else stages).items():
        found = list(stage(worlds))
        writes = tuple(each for each in found if isinstance(each, Move))
        told = shortened([each for each in found if isinstance(each, str)])
        if found:
            return Moves(stage=name, writes=writes, waits=told)
    return Moves(stage="done")


def taken_back(worlds: Worlds) -> list[Move]:
    """Return the writes that delete the copies inside, of a conversion that has not begun to mark."""
    found: list[Move] = []
    for resource in BASICS:
        for each in worlds.movable(resource):
            above = worlds.inside.find(resource, name_of(each))
            if above is not None and objects.is_same(resource, each, above) and not objects.is_deleting(above):
                found.append(delete(resource, above, side=Side.INSIDE))
    return found


# -- stages ---------------------------------------------------------------------------------------


def _basics(worlds: Worlds) -> Iterator[Move | str]:
    namespace = worlds.profile.namespace
    if not worlds.has_namespace:
        yield _inside(request.create_json(NAMESPACES, {"metadata": {"name": namespace}}))
        return
    is_first = not has_begun(worlds.host, worlds.profile)
    for resource in BASICS:
        for each in worlds.movable(resource):
            above = worlds.inside.find(resource, name_of(each))
            if resource == ROLE_BINDINGS and objects.is_suspended(each):
                yield f"the subjects of RoleBinding {name_of(each)!r}, which a suspension has taken"
            elif above is None:
                yield _copy(resource, each)
            elif is_first and not objects.is_same(resource, each, above):
                # Of an earlier attempt: what it is a copy of could change since. The next look copies it again.
                yield _again(resource, above)


def _again(resource: Resource, above: Json) -> Move | str:
    if objects.is_deleting(above):
        return f"the end of {resource.kind} {name_of(above)!r} inside"
    return delete(resource, above, side=Side.INSIDE)


def _marks(worlds: Worlds) -> Iterator[Move | str]:
    named = objects.named(worlds.host, worlds.profile)
    for resource in (CONFIG_MAPS, SECRETS, *ADOPTED_KINDS, PODS):
        for each in worlds.movable(resource):
            is_kept = resource not in BASICS or (resource, name_of(each)) in named
            if is_kept and not objects.is_adopted(each, worlds.profile) and not _is_of_job(resource, each):
                yield _mark(resource, each, worlds.profile)


def _twins(worlds: Worlds) -> Iterator[Move | str]:
    for resource in ADOPTED_KINDS:
        yield from _brought(resource, worlds)


def _pods(worlds: Worlds) -> Iterator[Move | str]:
    yield from _brought(PODS, worlds)
    for each in worlds.adopted(PODS):
        above = worlds.inside.find(PODS, name_of(each))
        if above is not None and part(each, "spec").get("nodeName") and not part(above, "spec").get("nodeName"):
            yield f"the node of Pod {name_of(each)!r}"


def _low(worlds: Worlds) -> Iterator[Move | str]:
    yield from _copied(LOW, worlds, (REPLICA_SETS, STATEFUL_SETS))


def _high(worlds: Worlds) -> Iterator[Move | str]:
    yield from _copied(HIGH, worlds, (DEPLOYMENTS,))


def _release(worlds: Worlds) -> Iterator[Move | str]:
    for resources in ((AUTOSCALERS, CRON_JOBS, DEPLOYMENTS), (REPLICA_SETS, STATEFUL_SETS), (REVISIONS,)):
        found = list(_released(resources, worlds))
        if found:
            yield from found
            return


def _own(worlds: Worlds) -> Iterator[Move | str]:
    owner = worlds.profile.owner
    for resource in (PODS, *ADOPTED_KINDS, CONFIG_MAPS, SECRETS):
        for each in worlds.adopted(resource):
            owners = items(each["metadata"], "ownerReferences")
            if owner is None or objects.is_deleting(each) or any(found.get("uid") == owner["uid"] for found in owners):
                continue
            if objects.controller_of(each):
                yield f"the owner of {resource.kind} {name_of(each)!r}"
            else:
                yield _patch(resource, each, {"ownerReferences": [dict(owner)]})


def _rest(worlds: Worlds) -> Iterator[Move | str]:
    for each in worlds.host.all(ROLE_BINDINGS):
        if is_movable(ROLE_BINDINGS, each, worlds.profile) and objects.is_deleting(each):
            # Deleted in the foreground, it grants its rights until its dependents are gone, which users can keep.
            yield delete(ROLE_BINDINGS, each)
    for resource in (JOBS, ROLE_BINDINGS, ROLES, SECRETS, CONFIG_MAPS):
        for each in worlds.movable(resource):
            if resource == JOBS and not objects.is_finished(each):
                yield f"the end of Job {name_of(each)!r}"
            elif resource == JOBS or _is_copied(resource, each, worlds):
                yield delete(resource, each)


STAGES: Stages = {
    "basics": _basics,
    "marks": _marks,
    "twins": _twins,
    "pods": _pods,
    "low": _low,
    "high": _high,
    "release": _release,
    "own": _own,
    "rest": _rest,
}


def _is_copied(resource: Resource, found: Json, worlds: Worlds) -> bool:
    """Return whether an object of the host is not needed any more."""
    above = worlds.inside.find(resource, name_of(found))
    if above is None or objects.is_adopted(found, worlds.profile):
        return False
    # Rights on the host always end; what a program of the cluster has changed since it was copied is not lost.
    return resource in (ROLES, ROLE_BINDINGS) or objects.is_same(resource, found, above)


# -- parts of stages ------------------------------------------------------------------------------


def _is_of_job(resource: Resource, found: Json) -> bool:
    return resource == PODS and objects.controller_of(found).get("kind") == JOBS.kind


def _brought(resource: Resource, worlds: Worlds) -> Iterator[Move | str]:
    """Create what is missing inside of what waits on the host, and wait until the mirror has adopted it."""
    for each in worlds.adopted(resource):
        if not objects.waits(each, worlds.profile):
            continue
        if not worlds.lacks(resource, each):
            yield f"{resource.kind} {name_of(each)!r}"
        elif not objects.is_deleting(each):
            yield _copy(resource, each)


def _copied(resources: Sequence[Resource], worlds: Worlds, seen: Sequence[Resource]) -> Iterator[Move | str]:
    """Create what is missing inside, and wait until its controllers have seen it."""
    for resource in resources:
        for each in worlds.movable(resource):
            above = worlds.inside.find(resource, name_of(each))
            if above is None:
                yield _copy(resource, each)
            elif resource in seen and not part(above, "status").get("observedGeneration"):
                yield f"the controller of {resource.kind} {name_of(each)!r}"


def _released(resources: Sequence[Resource], worlds: Worlds) -> Iterator[Move | str]:
    for resource in resources:
        for each in worlds.host.all(resource):
            if not is_movable(resource, each, worlds.profile) or worlds.lacks(resource, each):
                continue
            if objects.is_deleting(each):
                yield f"the end of {resource.kind} {name_of(each)!r}"
            else:
                yield delete(resource, each, "Orphan")


def _inside(asked: ApiRequest) -> Move:
    return Move(side=Side.INSIDE, request=asked)


def _copy(resource: Resource, found: Json) -> Move:
    return _inside(request.create_json(resource, objects.upper(resource, found)))


def _mark(resource: Resource, found: Json, profile: Profile) -> Move:
    kind = str(found.get("type", "")) if resource == SECRETS else ""
    return _patch(
        resource, found, adoption.marks(resource.kind, profile.namespace, name_of(found), profile, secret_type=kind)
    )


def _patch(resource: Resource, found: Json, metadata: Json) -> Move:
    meta = found["metadata"]
    body: Json = {"metadata": {**metadata, "uid": meta["uid"]}}
    return Move(side=Side.HOST, request=request.patch(resource, meta["namespace"], meta["name"], body))


def delete(resource: Resource, found: Json, policy: str = "Background", side: Side = Side.HOST) -> Move:
    """Return the write that deletes an object as it was listed."""
    meta = found["metadata"]
    body: Json = {"propagationPolicy": policy, "preconditions": {"uid": meta["uid"]}}
    asked = ApiRequest(verb=Verb.DELETE, resource=resource, namespace=meta["namespace"], name=meta["name"], body=body)
    return Move(side=side, request=asked)
