"""The Workspaces of a home's tenants at a peer: one for each tenant, with a network zone of its own.

    core namespace of the guest ─► Workspace of tenant "shop" ─► Subnamespaces of the namespaces of "shop"

The share of a Workspace is the sum of those inside: it grows before one of them, and shrinks after one of them. So the
peer shows what each tenant of the home may use, and no tenant can use the share of another one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress

import msgspec

from tenantry.api import reasons
from tenantry.api.errors import AlreadyExists, InputError, NotFound
from tenantry.api.kubernetes import ResourceQuota
from tenantry.api.model import Json, object_key
from tenantry.api.offloading import DesiredNamespace
from tenantry.api.owner import OwnerKind
from tenantry.api.peercluster import HOME_ID, HOME_TENANT, PEERS_NAMESPACE, tenant_name
from tenantry.api.subnamespace import Mode, Subnamespace, ZoneChoice
from tenantry.controllers.tenant.desired import QUOTA
from tenantry.controllers.watched import BY_NAMESPACE
from tenantry.engine import conditions, request
from tenantry.engine.cluster import Cluster
from tenantry.engine.plan import merge_patch
from tenantry.engine.scope import WatchScope
from tenantry.world.quota import normal
from tenantry.world.shares.amounts import Amounts, beyond, fits, higher, read, spell, spelled, total

_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")


def namespace_of(sub: Subnamespace) -> str:
    """Return the namespace of a Subnamespace; "" if it has none, or if the peer reports what is no name."""
    found = sub.status.namespace
    return found if _NAME.fullmatch(found) else ""


def has_room(sub: Subnamespace, wanted: DesiredNamespace) -> bool:
    """Return whether a namespace has at least the share that it should have.

    Raises:
        InputError: A quantity that it should have is none.
    """
    return fits(_amounts(wanted.hard), _known(sub.spec.quota.hard))


class WorkspaceRoom(msgspec.Struct, frozen=True):
    """Whether a Workspace has room for a share.

    Args:
        is_ready: It has. Otherwise, the watch of the Workspace is about to report more, unless there are words.
        words: Why the peer does not give it.
    """

    is_ready: bool = False
    words: str = ""


_WAITS = WorkspaceRoom()


class PeerWorkspaces:
    """Keeps the Workspaces at one peer.

    Args:
        guest: The PeerCluster at the peer.
        home_id: The cluster id of the home.
        scope: Where Subnamespaces are watched: the guest's core namespace, and those of the Workspaces.
    """

    def __init__(self, guest: str, home_id: str, scope: WatchScope) -> None:
        self._guest = guest
        self._home_id = home_id
        self._scope = scope

    @property
    def core(self) -> str:
        """Return the core namespace of the guest."""
        return tenant_name(self._guest)

    def find(self, cluster: Cluster, name: str) -> Subnamespace | None:
        """Return a Workspace as it is cached; None if there is none."""
        return cluster.cache(Subnamespace.resource).get(object_key(self.core, name)) if name else None

    def place(self, cluster: Cluster, name: str) -> str:
        """Return the namespace of a Workspace; "" while there is none."""
        found = self.find(cluster, name)
        return namespace_of(found) if found is not None else ""

    def follow(self, cluster: Cluster) -> None:
        """Watch the namespaces of all Workspaces, from when the guest has its rights there."""
        places = {self.core}
        for each in cluster.cache(Subnamespace.resource).by_index(BY_NAMESPACE, self.core):
            name = namespace_of(each)
            # Its rights stay when it is not ready any more, as if its share cannot grow.
            is_open = conditions.is_true(each.status.conditions, reasons.READY) or bool(each.status.children)
            if name and self._is_ours(each) and (is_open or name in self._scope):
                places.add(name)
        self._scope.set(places)

    async def grow(
        self, cluster: Cluster, wanted: DesiredNamespace, entries: Collection[DesiredNamespace]
    ) -> WorkspaceRoom:
        """Give the Workspace of a namespace room for the share that the namespace should have.

        Args:
            cluster: The peer.
            wanted: The namespace.
            entries: All namespaces that should exist in this Workspace.

        Raises:
            ApiError: The peer refuses, or does not answer.
            InputError: A quantity is none.
        """
        space = self.find(cluster, wanted.workspace)
        inside = self._shares(cluster, namespace_of(space)) if space is not None else {}
        mine = total([_amounts(wanted.hard), *(each for name, each in inside.items() if name != wanted.name)])
        has: Amounts = _known(space.spec.quota.hard) if space is not None else {}
        if space is not None and not self._is_ours(space):
            name = wanted.workspace
            return WorkspaceRoom(words=f"Subnamespace {name!r} belongs to another client of the peer: delete it there")
        if space is not None and (space.metadata.deletion_timestamp or fits(mine, has)):
            return _WAITS if space.metadata.deletion_timestamp else _standing(space, mine)
        need, words = await self._affordable(cluster, mine, _need(inside, entries), has)
        if words:
            return WorkspaceRoom(words=words)
        if space is None:
            # The watch is about to report one that is there.
            with suppress(AlreadyExists):
                await cluster.writer.own(request.create_json(Subnamespace.resource, self._workspace(wanted, need)))
        else:
            await self._set(cluster, space, higher(has, need))
        return _WAITS

    async def shrink(self, cluster: Cluster, name: str, entries: Collection[DesiredNamespace]) -> None:
        """Take back what no namespace in a Workspace has or should have.

        Args:
            cluster: The peer.
            name: The Workspace.
            entries: As for `grow`.

        Raises:
            ApiError: The peer refuses, or does not answer.
        """
        space = self.find(cluster, name)
        if space is None or not self._is_ours(space) or space.metadata.deletion_timestamp:
            return
        has = _known(space.spec.quota.hard)
        need = _need(self._shares(cluster, namespace_of(space)), entries)
        less = {key: min(value, need.get(key, 0)) for key, value in has.items()}
        if less != has:
            await self._set(cluster, space, less)

    async def end(self, cluster: Cluster, name: str) -> bool:
        """Delete a Workspace in which nothing is left; return whether it is gone.

        Raises:
            ApiError: The peer refuses, or does not answer.
        """
        space = self.find(cluster, name)
        if space is None or not self._is_ours(space):
            return True
        if not space.metadata.deletion_timestamp:
            with suppress(NotFound):
                await cluster.writer.delete(space)
        return False

    def spare(self, cluster: Cluster, name: str, free: Mapping[str, int]) -> Amounts:
        """Return what namespaces in a Workspace may get beside what they have, as it is known.

        Args:
            cluster: The peer.
            name: The Workspace.
            free: What is left of what the peer gives this cluster.
        """
        space = self.find(cluster, name)
        if space is None:
            return dict(free)
        inside = total(self._shares(cluster, namespace_of(space)).values())
        own = beyond(_known(space.spec.quota.hard), inside)
        return {key: value + own.get(key, 0) for key, value in free.items()}

    def _is_ours(self, found: Subnamespace) -> bool:
        notes = found.metadata.annotations
        return HOME_TENANT in notes and notes.get(HOME_ID) == self._home_id

    def _shares(self, cluster: Cluster, place: str) -> dict[str, Amounts]:
        """Return the share of each Subnamespace in a namespace, also of those that are being deleted."""
        found = cluster.cache(Subnamespace.resource).by_index(BY_NAMESPACE, place) if place else ()
        return {each.metadata.name: _known(each.spec.quota.hard) for each in found}

    async def _affordable(self, cluster: Cluster, mine: Amounts, whole: Amounts, has: Amounts) -> tuple[Amounts, str]:
        """Return what a Workspace may get, and why not even one namespace gets its share.

        All at once, because each growth costs the peer a round; for one namespace alone if there is no room for all.
        """
        data = await cluster.live.find(ResourceQuota.resource, self.core, QUOTA)
        if data is None:
            return whole, ""  # the peer says what its quota does not limit
        quota: Json = msgspec.json.decode(data)
        status: Json = quota.get("status") or {}
        room = beyond(_known(status.get("hard") or {}), _known(status.get("used") or {}))
        for need in (whole, mine):
            if fits({key: value for key, value in beyond(need, has).items() if value}, room):
                return need, ""
        more = beyond(mine, has)
        key = next(each for each in sorted(more) if more[each] > room.get(each, 0))
        words = (
            f"{key}: {spell(key, more[key])} more are requested of what the peer gives this cluster, and"
            f" {spell(key, room.get(key, 0))} are left; request less, or take it from another namespace"
        )
        return {}, words

    async def _set(self, cluster: Cluster, space: Subnamespace, hard: Amounts) -> None:
        meta = space.metadata
        before = {key: str(value) for key, value in space.spec.quota.hard.items()}
        about: Json = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        body: Json = {"metadata": about, "spec": {"quota": {"hard": merge_patch(before, spelled(hard))}}}
        await cluster.writer.patch(Subnamespace.resource, meta.namespace, meta.name, body)

    def _workspace(self, wanted: DesiredNamespace, hard: Amounts) -> Json:
        notes = {HOME_TENANT: wanted.tenant, HOME_ID: self._home_id}
        spec: Json = {
            "mode": Mode.WORKSPACE.value,
            "owners": [self.owner],
            "isolation": {"zone": ZoneChoice.OWN.value},
            "quota": {"hard": spelled(hard)},
        }
        return {"metadata": {"name": wanted.workspace, "namespace": self.core, "annotations": notes}, "spec": spec}

    @property
    def owner(self) -> Json:
        """Return the owner of all Subnamespaces: the account of this cluster at the peer."""
        return {"kind": OwnerKind.SERVICE_ACCOUNT.value, "name": self._guest, "namespace": PEERS_NAMESPACE}


def is_news(before: Subnamespace | None, after: Subnamespace | None) -> bool:
    """Return whether a change of a Workspace may concern namespaces in it; what pods use does not."""
    return before is None or after is None or _facts(before) != _facts(after)


def _facts(found: Subnamespace) -> object:
    status = found.status
    is_ready = conditions.is_true(status.conditions, reasons.READY)
    return (
        (found.metadata.deletion_timestamp, found.metadata.generation, status.observed_generation),
        (namespace_of(found), is_ready, status.quota.assigned, bool(status.children)),
    )


def _standing(space: Subnamespace, mine: Amounts) -> WorkspaceRoom:
    """Return whether the peer has given a Workspace the share that its spec has."""
    is_ready = conditions.is_true(space.status.conditions, reasons.READY)
    is_given = fits(mine, _known(space.status.quota.assigned))
    if is_ready and is_given and namespace_of(space):
        return WorkspaceRoom(is_ready=True)
    ready = conditions.find(space.status.conditions, reasons.READY)
    if is_ready or ready is None or space.status.observed_generation < space.metadata.generation:
        return _WAITS
    return _WAITS if ready.reason == reasons.PROGRESSING else WorkspaceRoom(words=ready.message)


def _need(inside: Mapping[str, Amounts], entries: Iterable[DesiredNamespace]) -> Amounts:
    """Return the sum of all shares in a Workspace: each as it is or should be, if that is more."""
    wanted = {each.name: _known(each.hard) for each in entries}
    return total(higher(inside.get(name, {}), wanted.get(name, {})) for name in {*inside, *wanted})


def _amounts(hard: Mapping[str, str | int]) -> Amounts:
    """Return a quota in numbers.

    Raises:
        InputError: A key or a quantity is none.
    """
    return read(normal(hard))


def _known(hard: Mapping[str, str | int]) -> Amounts:
    """Return a quota in numbers, without what another cluster, or a user, has written that is none."""
    try:
        return _amounts(hard)
    except InputError:
        return {}
