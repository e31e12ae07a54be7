"""Keeps the namespaces of one peer: a controller of the peer's cluster that also writes the NamespaceMap at home.

NamespaceMap.spec.desired ─► Subnamespace in the Workspace of its tenant at the peer ─► its operator makes the namespace
Subnamespace.status       ─► NamespaceMap.status.current, and the pairs by which objects are mirrored
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.errors import AlreadyExists, Conflict, InputError, NotFound
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import Json, object_key
from tenantry.api.offloading import (
    MOST_WORDS,
    DesiredNamespace,
    MappedNamespace,
    MapPhase,
    MappingStrategy,
    NamespaceMap,
)
from tenantry.api.peercluster import HOME_ID, HOME_NAMESPACE, HOME_PATH, HOME_TENANT
from tenantry.api.subnamespace import Mode, Subnamespace
from tenantry.api.wording import visible
from tenantry.controllers import watched
from tenantry.controllers.peering.link import workspaces
from tenantry.controllers.peering.link.following import FOLLOWS, FollowedQuotas
from tenantry.controllers.peering.link.limits import PeerLimits, is_listed
from tenantry.controllers.peering.link.mapstatus import MapStatusWriter
from tenantry.controllers.peering.link.shares import PeerShares
from tenantry.controllers.peering.link.strays import StrayPods
from tenantry.controllers.peering.link.workspaces import PeerWorkspaces, namespace_of
from tenantry.controllers.watched import BY_NAMESPACE
from tenantry.engine import conditions, request
from tenantry.engine.cache import Change
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.observed import Observed
from tenantry.engine.scope import WatchScope
from tenantry.mirror.refusals import REFUSALS, retry_seconds
from tenantry.world.naming import federated_path, mapped_name

LISTED_SECONDS = 5.0
"""When to look again while the peer does not list the Subnamespaces of a place."""

BY_HOME = "home namespace"
"""The index of Subnamespaces by the namespace of the home that they are for."""

_PHASES = {
    reasons.NAME_TAKEN: MapPhase.NAME_TAKEN,
    reasons.NOT_ALLOWED: MapPhase.REFUSED,
    reasons.INVALID_SPEC: MapPhase.REFUSED,
    reasons.LIMIT_REACHED: MapPhase.REFUSED,
}
"""By the reason why a Subnamespace at the peer is not ready: how its namespace is reported."""


class PeerNamespaces:
    """Reconciles the namespaces of one peer; the key is the namespace at home.

    Args:
        name: The PeerCluster at home, and its NamespaceMap.
        home: The home.
        guest: The PeerCluster at the peer.
        home_id: The cluster id of the home.
        scope: Where Subnamespaces are watched: the guest's core namespace, and those of its Workspaces.
        paired: Called with all pairs, home namespace to peer namespace, and with the home namespaces that leave,
            whenever they have changed.
        quotas: What of their quotas follows pods.
    """

    name = "peer-namespaces"
    kind = Subnamespace

    def __init__(
        self,
        name: str,
        home: Cluster,
        *,
        guest: str,
        home_id: str,
        scope: WatchScope,
        paired: Callable[[Mapping[str, str], Collection[str]], None],
        quotas: FollowedQuotas,
    ) -> None:
        self._name = name
        self._home_id = home_id
        self._home = home
        self._map_status = MapStatusWriter(home, name)
        self._scope = scope
        self._paired = paired
        self._workspaces = PeerWorkspaces(guest, home_id, scope)
        self._shares = PeerShares(name, home, scope)
        self._strays = StrayPods(name, home)
        self._quotas = quotas
        self._limits = PeerLimits(self._workspaces.core, quotas, self._home_of)
        self._pairs: dict[str, str] = {}
        self._leaving: set[str] = set()
        # By namespace: how often it was refused in a row.
        self._refused: dict[str, int] = {}
        # Namespaces that wait for a change of their Workspace.
        self._waiting: set[str] = set()
        # Namespaces that have ended, until the map shows it: two that end at once must not each leave the Workspace.
        self._ended: set[str] = set()

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        return [
            Watch(
                resource=Subnamespace.resource,
                decode=watched.decoder(Subnamespace),
                keys=self._of_subnamespace,
                scope=self._scope,
                indexes={BY_NAMESPACE: lambda each: [each.metadata.namespace], BY_HOME: _home_namespace},
            ),
            Watch(
                resource=NamespaceMap.resource,
                decode=watched.decoder(NamespaceMap),
                keys=self._of_map,
                cluster=self._home,
            ),
            self._limits.watch(),
            self._shares.watch(),
        ]

    def _of_subnamespace(self, change: Change[Subnamespace]) -> Iterable[str]:
        found = change.after or change.before
        if found is None or HOME_TENANT not in found.metadata.annotations:
            return _home_namespace(found) if found is not None else ()
        if not workspaces.is_news(change.before, change.after):
            return ()
        if change.before is not None and change.after is not None:
            return tuple(self._waiting)
        known = self._map()
        return self._inside(known, found.metadata.name) if known is not None else ()

    def _of_map(self, change: Change[NamespaceMap]) -> Iterable[str]:
        found = change.after or change.before
        if found is None or found.metadata.name != self._name:
            return ()
        before = change.before.spec.desired if change.before is not None else {}
        after = change.after.spec.desired if change.after is not None else {}
        status = found.status
        known = {*status.current, *status.shares, *status.lost} if change.before is None else set[str]()
        if change.before is not None and change.before.status.lost != status.lost:
            known = set(status.lost)
        return {*known, *(each for each in {*before, *after} if before.get(each) != after.get(each))}

    def _map(self) -> NamespaceMap | None:
        return self._home.cache(NamespaceMap.resource).get(self._name)

    def _inside(self, found: NamespaceMap, workspace: str) -> set[str]:
        """Return the namespaces that are in a Workspace, or should be."""
        wanted = (key for key, each in found.spec.desired.items() if each.workspace == workspace)
        known = (key for key, each in found.status.current.items() if each.workspace == workspace)
        return {*wanted, *known}

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - the queue counts
        """Bring one namespace a step further; return in how many seconds to look again, None for never.

        Raises:
            ApiError: One side failed; the queue tries again.
        """
        self._waiting.discard(key)
        found = self._map()
        if found is None:
            return None
        wanted, known = found.spec.desired.get(key), found.status.current.get(key)
        # A place that the peer refuses has no objects in the cache, and nothing is known of it.
        if not await self._is_listed(cluster, self._workspaces.core) or not await self._limits.are_listed(cluster):
            return LISTED_SECONDS
        self._workspaces.follow(cluster)
        names = {each.workspace for each in (wanted, known) if each is not None}
        for place in sorted({self._workspaces.place(cluster, each) for each in names} & self._scope.places):
            if not await self._is_listed(cluster, place):
                return LISTED_SECONDS
        if wanted is None:
            return await self._end(cluster, key, found)
        self._ended.discard(key)
        self._leave(key, is_leaving=wanted.leaving)
        return await self._keep(cluster, key, wanted, found)

    async def _is_listed(self, cluster: Cluster, place: str) -> bool:
        return place in self._scope and await is_listed(cluster, Subnamespace.resource, place)

    def _home_of(self, place: str) -> str:
        return next((home for home, there in self._pairs.items() if there == place), "")

    async def _keep(self, cluster: Cluster, key: str, wanted: DesiredNamespace, found: NamespaceMap) -> float | None:
        """Bring a namespace that should exist a step further."""
        known, place = found.status.current.get(key), self._workspaces.place(cluster, wanted.workspace)
        ours = self._ours(cluster, key)
        elsewhere = [each for each in ours if (each.metadata.namespace, each.metadata.name) != (place, wanted.name)]
        if elsewhere:
            # It belonged to another tenant: its pods must not meet those of the new one.
            await self._delete(cluster, key, elsewhere[0], known)
            return None
        sub: Subnamespace | None = cluster.cache(Subnamespace.resource).get(object_key(place, wanted.name))
        if sub is not None and sub.metadata.deletion_timestamp:
            await self._report(key, _entry(MapPhase.TERMINATING, sub, wanted.workspace))
            return None
        if sub is not None and not ours:
            message = f"Subnamespace {wanted.name!r} belongs to another client of the peer: delete it there"
            return await self._refuse(key, _entry(MapPhase.REFUSED, None, wanted.workspace, message))
        if sub is None:
            await self._missing(key, wanted, known)
        try:
            return await self._bring(cluster, key, wanted, sub)
        except AlreadyExists:
            return retry_seconds(0)  # the watch is about to report it
        except (*REFUSALS, NotFound, InputError) as error:
            return await self._refuse(key, _entry(MapPhase.REFUSED, sub, wanted.workspace, str(error)))

    async def _missing(self, key: str, wanted: DesiredNamespace, known: MappedNamespace | None) -> None:
        """Report that a namespace is not there, before it is made: no pods must be sent to the one that is gone."""
        was_there = known is not None and (known.phase in {MapPhase.ACCEPTED, MapPhase.LOST} or known.peer_namespace)
        if known is None or was_there or known.phase is not MapPhase.REFUSED:
            await self._report(key, _entry(MapPhase.LOST if was_there else MapPhase.CREATING, None, wanted.workspace))

    async def _bring(
        self, cluster: Cluster, key: str, wanted: DesiredNamespace, sub: Subnamespace | None
    ) -> float | None:
        """Give a namespace its share, in a Workspace that has room for it.

        Raises:
            ApiError: The peer refuses, or does not answer.
            InputError: The share has a quantity that is none.
        """
        held = self._shares.held(key)
        base = await self._limits.decide(cluster, key, wanted, sub, held=held, spaces=self._workspaces)
        whole = self._shares.whole(key, base)
        # Before the Workspace is looked at: the peer may report it while the request is under way.
        self._waiting.add(key)
        room = await self._workspaces.grow(cluster, whole, self._entries(wanted.workspace))
        if room.words and sub is not None:
            base = self._quotas.yields(key, wanted, sub, room.words)
            if workspaces.has_room(sub, self._shares.whole(key, base)):
                # The Workspace does not get what another namespace, or more pods, need: what shrinks must not wait.
                return await self._follow(cluster, key, sub, base)
        if room.words:
            return await self._refuse(key, _entry(MapPhase.REFUSED, sub, wanted.workspace, room.words))
        if not room.is_ready:
            return None
        self._waiting.discard(key)
        place = self._workspaces.place(cluster, wanted.workspace)
        if not await self._is_listed(cluster, place):
            return LISTED_SECONDS
        if sub is not None:
            return await self._follow(cluster, key, sub, base)
        await self._create(cluster, key, base, place)
        return None

    def _entries(self, workspace: str) -> list[DesiredNamespace]:
        found = self._map()
        wanted = found.spec.desired if found is not None else {}
        inside = {key: each for key, each in wanted.items() if each.workspace == workspace}
        return [self._shares.whole(key, self._quotas.whole(key, each)) for key, each in inside.items()]

    async def _create(self, cluster: Cluster, key: str, wanted: DesiredNamespace, place: str) -> None:
        name, path = self._names(key, wanted)
        every = {HOME_NAMESPACE: key, HOME_ID: self._home_id, HOME_PATH: path, FOLLOWS: self._quotas.note(key)}
        notes = {note: text for note, text in every.items() if text}
        value: Json = {
            "metadata": {"name": wanted.name, "namespace": place, "annotations": notes},
            "spec": {
                "mode": Mode.WORKSPACE.value,
                "owners": [self._workspaces.owner],
                "namespaceName": name,
                "quota": {"hard": wanted.hard},
            },
        }
        await cluster.writer.own(request.create_json(Subnamespace.resource, value))

    def _names(self, key: str, wanted: DesiredNamespace) -> tuple[str, str]:
        """Return the name that a namespace gets at the peer, and of a federated child what it is computed from."""
        found: Observed | None = self._home.lookup(Namespace.resource, key)
        path = federated_path(self._home_id, key, found.labels) if found is not None else ""
        is_same = bool(path) or wanted.mapping_strategy is MappingStrategy.ENFORCE_SAME_NAME
        return (key if is_same else mapped_name(self._home_id, key)), path

    async def _follow(self, cluster: Cluster, key: str, sub: Subnamespace, wanted: DesiredNamespace) -> float | None:
        """Keep the quota of a Subnamespace of ours, and report its state.

        Raises:
            ApiError: The peer refuses, or does not answer.
            InputError: A quantity is none.
        """
        if await self._shares.follow(cluster, key, sub, wanted, self._quotas.note(key)):
            return self._quotas.again(key)
        self._refused.pop(key, None)
        await self._report(key, _state(sub, wanted, self._quotas.words_of(key)))
        self._limits.look(cluster, key, namespace_of(sub), self._shares.given(key))
        await self._workspaces.shrink(cluster, wanted.workspace, self._entries(wanted.workspace))
        place = namespace_of(sub)
        # Without a name, the namespace is not gone: it is not reported yet.
        waits = await self._strays.confirm(cluster, key, place) if place else None
        again = await self._shares.confirm(cluster, key, sub, wanted)
        return min((each for each in (waits, again, self._quotas.again(key)) if each is not None), default=None)

    async def _refuse(self, key: str, now: MappedNamespace) -> float:
        """Report a refusal; return in how many seconds to try again."""
        await self._report(key, now)
        times = self._refused.get(key, 0)
        self._refused[key] = times + 1
        return retry_seconds(times)

    def _leave(self, key: str, *, is_leaving: bool) -> None:
        """Send no further pods of a namespace, or send them again."""
        if is_leaving != (key in self._leaving):
            self._leaving ^= {key}
            self._paired(self._pairs, self._leaving)

    async def _end(self, cluster: Cluster, key: str, found: NamespaceMap) -> float | None:
        """Delete the Subnamespace of a namespace that is not wanted any more, and a Workspace that is empty then."""
        known = found.status.current.get(key)
        ours = self._ours(cluster, key)
        if ours:
            await self._delete(cluster, key, ours[0], known)
            return None
        workspace = known.workspace if known is not None else ""
        self._ended.add(key)
        if self._inside(found, workspace) - self._ended:
            await self._workspaces.shrink(cluster, workspace, self._entries(workspace))
        elif workspace:
            try:
                is_gone = await self._workspaces.end(cluster, workspace)
            except (*REFUSALS, Conflict):
                is_gone = False  # the peer still counts what has been in it
            if not is_gone:
                self._waiting.add(key)
                return retry_seconds(0)
        self._refused.pop(key, None)
        self._quotas.forget(key)
        await self._report(key, None)
        self._ended.discard(key)
        waits = await self._strays.confirm(cluster, key, "")
        again = await self._shares.confirm(cluster, key, None, None)
        return min((each for each in (waits, again) if each is not None), default=None)

    async def _delete(self, cluster: Cluster, key: str, sub: Subnamespace, known: MappedNamespace | None) -> None:
        workspace = known.workspace if known is not None else ""
        await self._report(key, _entry(MapPhase.TERMINATING, sub, workspace))
        if not sub.metadata.deletion_timestamp:
            with suppress(NotFound, Conflict):
                await cluster.writer.delete(sub)

    def _ours(self, cluster: Cluster, key: str) -> list[Subnamespace]:
        """Return the Subnamespaces that this cluster has made for a namespace: one, or two while it moves."""
        found: list[Subnamespace] = cluster.cache(Subnamespace.resource).by_index(BY_HOME, key)
        return [each for each in found if each.metadata.annotations.get(HOME_ID) == self._home_id]

    async def _report(self, key: str, now: MappedNamespace | None) -> None:
        """Record how far a namespace is, at home and for the mirror, which must stop before anything is deleted."""
        pairs = {name: peer for name, peer in self._pairs.items() if name != key}
        if now is not None and now.peer_namespace in pairs.values():
            # A peer may say anything: two namespaces of the home must not meet in one.
            words = f"the peer names namespace {now.peer_namespace!r} for another namespace, too"
            now = replace(now, peer_namespace="", phase=MapPhase.REFUSED, message=words)
        before_it = self._pairs.get(key, "")
        if now is not None and now.phase is MapPhase.ACCEPTED:
            pairs[key] = now.peer_namespace
        elif (
            now is not None
            and before_it
            and (
                # Its pods are deleted by then, and their last state comes up. Or its quota cannot grow: pods run on.
                now.phase is MapPhase.TERMINATING or now.peer_namespace == before_it
            )
        ):
            pairs[key] = before_it
        if now is None:
            self._leaving.discard(key)
        if pairs != self._pairs:
            if before_it and key not in pairs:
                self._limits.close(before_it)
            self._pairs = pairs
            self._paired(pairs, self._leaving)
        found: NamespaceMap | None = self._home.cache(NamespaceMap.resource).get(self._name)
        before = found.status.current.get(key) if found is not None else None
        if found is None or now == before:
            return
        current: Json = {key: msgspec.to_builtins(now) if now is not None else None}
        if now is not None and before is not None:
            # A merge patch keeps what it does not name.
            current[key] = dict.fromkeys(msgspec.to_builtins(before)) | msgspec.to_builtins(now)
        await self._map_status.write(found.metadata.uid, current)


def _entry(phase: MapPhase, sub: Subnamespace | None, workspace: str, message: str = "") -> MappedNamespace:
    """Return what the map reports of a namespace; a namespace at the peer is only named while it can be used."""
    return MappedNamespace(
        peer_namespace=namespace_of(sub) if sub is not None and phase is not MapPhase.TERMINATING else "",
        uid=sub.metadata.uid if sub is not None else "",
        workspace=workspace,
        phase=phase,
        message=visible(message)[:MOST_WORDS],
    )


def _state(sub: Subnamespace, wanted: DesiredNamespace, words: str) -> MappedNamespace:
    """Return what the map reports of a namespace whose Subnamespace is as it should be.

    Args:
        sub: The Subnamespace.
        wanted: The namespace.
        words: Why the peer has no more for its pods.
    """
    asked, given = sub.spec.namespace_name, namespace_of(sub)
    if given and asked != given:
        words = f"the peer has made namespace {given!r} instead of {asked!r}: upgrade Tenantry there"
        return _entry(MapPhase.REFUSED, None, wanted.workspace, words)
    if given and conditions.is_true(sub.status.conditions, reasons.READY):
        return _entry(MapPhase.ACCEPTED, sub, wanted.workspace, words)
    ready = conditions.find(sub.status.conditions, reasons.READY)
    phase = _PHASES.get(ready.reason, MapPhase.CREATING) if ready is not None else MapPhase.CREATING
    return _entry(phase, sub, wanted.workspace, ready.message if ready is not None else "")


def _home_namespace(found: Subnamespace) -> Iterable[str]:
    namespace = found.metadata.annotations.get(HOME_NAMESPACE, "")
    return [namespace] if namespace else ()
