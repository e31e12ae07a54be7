"""Keeps the nodes of an upper side: one for each lower node that is used."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress

import msgspec

from tenantry.api.errors import AlreadyExists, Conflict, NotFound, RetryableError
from tenantry.api.model import Json
from tenantry.engine import request
from tenantry.engine.cache import Change
from tenantry.engine.clock import rfc3339
from tenantry.engine.cluster import Cluster, Watch
from tenantry.mirror import capacity, nodes, things
from tenantry.mirror.nodenames import LowerNode
from tenantry.mirror.profile import Profile
from tenantry.mirror.shapes import part
from tenantry.mirror.side import LowerSide
from tenantry.mirror.things import NODES, Thing

BY_ADDRESS = "address"
"""Upper nodes, by their address."""


class UpperNodes:
    """The nodes of one upper side.

    Args:
        profile: The configuration.
        upper: The upper cluster.
        lower: The lower side.
        noticed: Called with the addresses of all upper nodes before a pod is bound to a new one.
    """

    def __init__(
        self,
        profile: Profile,
        upper: Cluster,
        lower: LowerSide,
        noticed: Callable[[Sequence[str]], Awaitable[None]],
    ) -> None:
        self._profile = profile
        self._upper = upper
        self._lower = lower
        self._noticed = noticed
        self._lock = asyncio.Lock()
        # By upper name: the lower name. Never built again for a name that is not in it: users choose those.
        self._lower_names: dict[str, str] | None = None

    def watch(self, keys: Callable[[Change[Thing]], Iterable[str]] = lambda _: ()) -> Watch:
        """Return the watch of the upper nodes.

        Args:
            keys: As in `Watch`.
        """
        return Watch(resource=NODES, decode=_addressed, keys=keys, indexes={BY_ADDRESS: _address})

    def name(self, lower: str) -> str:
        """Return the upper name of a lower node; "" if there is no such node."""
        found = self._lower.nodes.get(lower)
        return nodes.upper_name(self._profile.owner_uid, lower, found.uid) if found is not None else ""

    def lower(self, upper: str) -> LowerNode | None:
        """Return the lower node of an upper name; None if the name is not one of this mirror's."""
        if self._lower_names is None:
            # Upper nodes that an earlier process has made.
            self._lower_names = {self.name(each): each for each in self._lower.nodes}
        found = self._lower_names.get(upper, "")
        return self._lower.nodes.get(found) if found and self.name(found) == upper else None

    def at(self, address: str) -> str:
        """Return the name of the upper node that has an address; "" if none has it."""
        # By an index: the gate asks for every connection, and users can create any number of Nodes.
        cache = self._upper.cache_of(NODES)
        found = cache.by_index(BY_ADDRESS, address) if cache is not None and address else ()
        return found[0].key if found else ""

    async def bring(self, lower: str) -> str:
        """Create the upper node of a lower one unless it is there; return its name.

        Raises:
            RetryableError: The lower node is gone.
            ApiError: One side refuses.
        """
        name = self.name(lower)
        if not name:
            raise RetryableError(f"node {lower!r} of a pod does not exist, or the watch has not reported it yet")
        if self._lower_names is not None:
            self._lower_names[name] = lower
        cache = self._upper.cache(NODES)
        known = cache.get(name)
        if known is not None:
            if nodes.is_not_ready(known.object):
                await self._make_ready(name)
            return name
        # One at a time: two nodes must not choose the same address.
        async with self._lock:
            if cache.get(name) is not None:
                return name
            found = await self._lower.node(lower)
            if found is None:
                raise RetryableError(f"node {lower!r} of a pod does not exist")
            taken = {nodes.address_of(each.object) for each in cache}
            wanted = nodes.node(name, found, nodes.address(name, taken), rfc3339(self._upper.clock.now()))
            await self._noticed(sorted({*taken, nodes.address_of(wanted)} - {""}))
            try:
                # Not quiet: its size is that of the lower node until it is looked at.
                await self._upper.writer.own(request.create_json(NODES, wanted))
            except AlreadyExists as error:
                raise RetryableError(f"node {name!r} exists, and the watch has not reported it yet") from error
        await self._make_ready(name)
        return name

    async def _make_ready(self, name: str) -> None:
        """Take the taint of new nodes from an upper node: no program does it in a kubelet's place."""
        # Conflict: the node has changed since; it keeps the taint until it is looked at again.
        with suppress(NotFound, Conflict):
            found = msgspec.json.decode(await self._upper.writer.send(request.get(NODES, "", name)))
            if nodes.is_not_ready(found):
                await self._upper.writer.own(request.patch(NODES, "", name, nodes.made_ready(found)), quiet=True)

    async def announce(self) -> bool:
        """Call `noticed` with the addresses of the nodes that are there, and make them ready; return whether any is."""
        async with self._lock:
            known = await self._notice()
            for each in self._upper.cache(NODES):
                if nodes.is_not_ready(each.object) and self.lower(each.key) is not None:
                    await self._make_ready(each.key)
        return known

    async def notice(self) -> None:
        """Call `noticed` with the addresses of the nodes that are there, without a request to the upper side."""
        async with self._lock:
            await self._notice()

    async def _notice(self) -> bool:
        known = {nodes.address_of(each.object) for each in self._upper.cache(NODES)} - {""}
        if known:
            await self._noticed(sorted(known))
        return bool(known)

    def shown(self, lower: Json) -> Json:
        """Return a lower pod with the address of its upper node in place of the lower node's."""
        status, spec = part(lower, "status"), part(lower, "spec")
        if not status.get("hostIP"):
            return lower
        cache = self._upper.cache(NODES)
        found = cache.get(self.name(str(spec.get("nodeName", ""))))
        address = nodes.address_of(found.object) if found is not None else ""
        hidden: Json = {**status, "hostIP": address, "hostIPs": [{"ip": address}]} if address else dict(status)
        if not address:
            hidden.pop("hostIP", None)
            hidden.pop("hostIPs", None)
        if spec.get("hostNetwork"):
            hidden |= {"podIP": address, "podIPs": [{"ip": address}]}
        return {**lower, "status": hidden}


def _addressed(data: msgspec.Raw) -> Thing:
    """Return what is read of a node: users create any number of Nodes, of any content."""
    found = things.whole(data)
    address = nodes.address_of(found.object)
    kept: Json = {"status": {"addresses": [{"type": "InternalIP", "address": address}]}} if address else {}
    if nodes.is_not_ready(found.object):
        kept["spec"] = {"taints": [{"key": nodes.NOT_READY}]}
    size = capacity.seen(found.object)
    if size:
        kept["size"] = size
    return things.thing(found.key, found.version, kept)


def seen_allocatable(node: Thing) -> str:
    """Return the digest of what a cached upper node has; see `capacity.digest`."""
    return str(node.object.get("size", ""))


def _address(node: Thing) -> Iterable[str]:
    found = nodes.address_of(node.object)
    return [found] if found else ()
