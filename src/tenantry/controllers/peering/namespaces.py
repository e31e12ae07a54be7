"""Keeps the namespaces of one peer: a controller of the peer's cluster that also writes the NamespaceMap at home.

NamespaceMap.spec.desired ─► Subnamespace in the guest's namespace at the peer ─► its operator makes the namespace
Subnamespace.status       ─► NamespaceMap.status.current, and the pairs by which objects are mirrored
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.errors import AlreadyExists, Conflict, NotFound
from tenantry.api.model import Json, object_key
from tenantry.api.offloading import DesiredNamespace, MappedNamespace, MapPhase, NamespaceMap
from tenantry.api.owner import OwnerKind
from tenantry.api.peercluster import PEERS_NAMESPACE, PREFIX, tenant_name
from tenantry.api.subnamespace import Mode, Subnamespace
from tenantry.controllers import watched
from tenantry.controllers.peering.mapstatus import MapStatusWriter
from tenantry.engine import conditions, request
from tenantry.engine.cache import Change
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.plan import merge_patch
from tenantry.engine.scope import WatchScope
from tenantry.mirror.refusals import REFUSALS, retry_seconds

HOME_NAMESPACE = f"{PREFIX}/namespace"
HOME_ID = f"{PREFIX}/home"
"""Annotations of a Subnamespace at a peer: the namespace of the home that it is for, and the home's cluster id."""

LISTED_SECONDS = 5.0
"""When to look again while the peer does not list the Subnamespaces of the guest."""

_MOST_WORDS = 1024
_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")


def _name_of(sub: Subnamespace) -> str:
    """Return the namespace of a Subnamespace; "" if it has none, or if the peer reports what is no name."""
    found = sub.status.namespace
    return found if _NAME.fullmatch(found) else ""


class PeerNamespaces:
    """Reconciles the namespaces of one peer; the key is the namespace at home.

    Args:
        name: The PeerCluster at home, and its NamespaceMap.
        home: The home.
        guest: The PeerCluster at the peer.
        home_id: The cluster id of the home.
        scope: Where Subnamespaces are watched: the guest's core namespace.
        paired: Called with all pairs, home namespace to peer namespace, and with the home namespaces that leave,
            whenever they have changed.
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
    ) -> None:
        self._name = name
        self._guest = guest
        self._home_id = home_id
        self._home = home
        self._map_status = MapStatusWriter(home, name)
        self._scope = scope
        self._paired = paired
        self._pairs: dict[str, str] = {}
        self._leaving: set[str] = set()
        # By namespace: how often it was refused in a row.
        self._refused: dict[str, int] = {}

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        return [
            Watch(
                resource=Subnamespace.resource,
                decode=watched.decoder(Subnamespace),
                keys=self._of_subnamespace,
                scope=self._scope,
            ),
            Watch(
                resource=NamespaceMap.resource,
                decode=watched.decoder(NamespaceMap),
                keys=self._of_map,
                cluster=self._home,
            ),
        ]

    def _of_subnamespace(self, change: Change[Subnamespace]) -> Iterable[str]:
        found = change.after or change.before
        namespace = found.metadata.annotations.get(HOME_NAMESPACE, "") if found is not None else ""
        return [namespace] if namespace else ()

    def _of_map(self, change: Change[NamespaceMap]) -> Iterable[str]:
        found = change.after or change.before
        if found is None or found.metadata.name != self._name:
            return ()
        before = change.before.spec.desired if change.before is not None else {}
        after = change.after.spec.desired if change.after is not None else {}
        known = found.status.current if change.before is None else {}
        return {*known, *(each for each in {*before, *after} if before.get(each) != after.get(each))}

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - the queue counts
        """Bring one namespace a step further; return in how many seconds to look again, None for never.

        Raises:
            ApiError: One side failed; the queue tries again.
        """
        found: NamespaceMap | None = self._home.cache(NamespaceMap.resource).get(self._name)
        core = tenant_name(self._guest)
        if found is None or not cluster.is_listed_in(Subnamespace.resource, core):
            # A place that the peer refuses has no objects in the cache, and nothing is known of it.
            return None if found is None else LISTED_SECONDS
        wanted, known = found.spec.desired.get(key), found.status.current.get(key)
        if wanted is None:
            return await self._end(cluster, key, known)
        self._leave(key, is_leaving=wanted.leaving)
        there = object_key(core, wanted.name)
        sub: Subnamespace | None = cluster.cache(Subnamespace.resource).get(there)
        if sub is not None and sub.metadata.deletion_timestamp:
            await self._report(key, MappedNamespace(uid=sub.metadata.uid, phase=MapPhase.TERMINATING))
            return None
        if sub is None:
            return await self._create(cluster, key, wanted, known)
        if not self._is_ours(sub, key):
            message = f"Subnamespace {wanted.name!r} belongs to another client of the peer: delete it there"
            return await self._refuse(key, MappedNamespace(phase=MapPhase.REFUSED, message=message))
        return await self._follow(cluster, key, sub, wanted)

    async def _follow(self, cluster: Cluster, key: str, sub: Subnamespace, wanted: DesiredNamespace) -> float | None:
        """Keep the quota of a Subnamespace of ours, and report its state."""
        hard = {quota_key: str(value) for quota_key, value in sub.spec.quota.hard.items()}
        if hard != wanted.hard:
            about: Json = {"uid": sub.metadata.uid}
            patch: Json = {"metadata": about, "spec": {"quota": {"hard": merge_patch(hard, wanted.hard)}}}
            meta = sub.metadata
            try:
                await cluster.writer.patch(Subnamespace.resource, meta.namespace, meta.name, patch)
            except REFUSALS as error:
                words = str(error)[:_MOST_WORDS]
                now = MappedNamespace(peer_namespace=_name_of(sub), uid=meta.uid, phase=MapPhase.REFUSED, message=words)
                return await self._refuse(key, now)
            return None
        self._refused.pop(key, None)
        is_ready = conditions.is_true(sub.status.conditions, reasons.READY) and bool(_name_of(sub))
        ready = conditions.find(sub.status.conditions, reasons.READY)
        phase = MapPhase.ACCEPTED if is_ready else MapPhase.CREATING
        words = "" if is_ready or ready is None else ready.message[:_MOST_WORDS]
        now = MappedNamespace(peer_namespace=_name_of(sub), uid=sub.metadata.uid, phase=phase, message=words)
        await self._report(key, now)
        return None

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

    async def _create(
        self, cluster: Cluster, key: str, wanted: DesiredNamespace, known: MappedNamespace | None
    ) -> float | None:
        was_there = known is not None and known.phase in {MapPhase.ACCEPTED, MapPhase.LOST}
        phase = MapPhase.LOST if was_there else MapPhase.CREATING
        # Before the creation: its pods must not be sent to the namespace that is gone.
        await self._report(key, MappedNamespace(phase=phase))
        try:
            await cluster.writer.own(request.create_json(Subnamespace.resource, self._subnamespace(key, wanted)))
        except AlreadyExists:
            return retry_seconds(0)  # the watch is about to report it
        except (*REFUSALS, NotFound) as error:
            return await self._refuse(key, MappedNamespace(phase=MapPhase.REFUSED, message=str(error)[:_MOST_WORDS]))
        return None

    async def _end(self, cluster: Cluster, key: str, known: MappedNamespace | None) -> float | None:
        """Delete the Subnamespace of a namespace that is not wanted any more."""
        of_key = (
            each
            for each in cluster.cache(Subnamespace.resource)
            if self._is_ours(each, key) and (known is None or known.uid in {"", each.metadata.uid})
        )
        sub = next(of_key, None)
        if sub is None:
            self._refused.pop(key, None)
            await self._report(key, None)
            return None
        await self._report(key, MappedNamespace(uid=sub.metadata.uid, phase=MapPhase.TERMINATING))
        if not sub.metadata.deletion_timestamp:
            with suppress(NotFound, Conflict):
                await cluster.writer.delete(sub)
        return None

    def _is_ours(self, sub: Subnamespace, key: str) -> bool:
        notes = sub.metadata.annotations
        return (notes.get(HOME_NAMESPACE), notes.get(HOME_ID)) == (key, self._home_id)

    def _subnamespace(self, key: str, wanted: DesiredNamespace) -> Json:
        owner = {"kind": OwnerKind.SERVICE_ACCOUNT.value, "name": self._guest, "namespace": PEERS_NAMESPACE}
        return {
            "metadata": {
                "name": wanted.name,
                "namespace": tenant_name(self._guest),
                "annotations": {HOME_NAMESPACE: key, HOME_ID: self._home_id},
            },
            "spec": {
                "mode": Mode.WORKSPACE.value,
                "owners": [owner],
                "quota": {"hard": wanted.hard},
            },
        }

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
