"""Where the agent gets its rules from: all objects of the cluster, or the view that the operator writes for the node.

WholeCluster   pods, namespaces, nodes, NetworkPolicies ─► compiled here
OwnView        NodeView of the node ─► compiled by the operator; the node's own pods confirm their addresses
└► Services for kube-proxy (`serviceapi`)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from tenantry.api.node import Node
from tenantry.api.nodeview import NodeView
from tenantry.engine.cache import Change
from tenantry.engine.informer import Informer
from tenantry.netpol.serviceapi import ServiceApi
from tenantry.world.netpol import objects
from tenantry.world.netpol.compile import GuardedNode, compile_rules, confined, table
from tenantry.world.netpol.objects import NetworkState
from tenantry.world.netpol.records import foreign
from tenantry.world.netpol.ruleset import Ruleset
from tenantry.world.netpol.view import Content, decoded

log = logging.getLogger(__name__)


class RuleSource(Protocol):
    """What the rules of a node are compiled from."""

    @property
    def informers(self) -> Sequence[Informer[Any]]:
        """Return the informers of the kinds that are read."""
        ...

    async def wait(self) -> None:
        """Wait until there are rules; the informers are synchronised."""
        ...

    def rules(self) -> tuple[Ruleset, dict[str, int]]:
        """Return the current table, and how many objects it was compiled from, for the log."""
        ...

    def report(self) -> None:
        """Report what is ignored; the table is in force."""
        ...


class WholeCluster:
    """The objects of the whole cluster.

    Args:
        guarded: The node.
        changed: Called when the rules may have changed.
    """

    def __init__(self, guarded: GuardedNode, changed: Callable[[], None]) -> None:
        self._guarded = guarded
        notice = noticing(changed)
        self._pods = Informer(objects.PODS, objects.decode_pod, notice)
        self._spaces = Informer(objects.NAMESPACES, objects.decode_space, notice)
        self._policies = Informer(objects.POLICIES, objects.decode_policy, notice)
        self._nodes = Informer(Node.resource, objects.decode_node, notice)
        self.informers: Sequence[Informer[Any]] = (self._pods, self._spaces, self._policies, self._nodes)
        self._world = NetworkState()
        self._ignored: set[tuple[str, str, str]] = set()

    async def wait(self) -> None:
        """Return at once: the objects are there."""

    def rules(self) -> tuple[Ruleset, dict[str, int]]:
        """Return the table that follows from all objects."""
        self._world = NetworkState(
            pods=tuple(self._pods.cache),
            spaces=tuple(self._spaces.cache),
            policies=tuple(self._policies.cache),
            nodes=tuple(self._nodes.cache),
        )
        counts = {"pods": len(self._world.pods), "policies": len(self._world.policies)}
        return compile_rules(self._world, self._guarded), counts

    def report(self) -> None:
        """Log each address that does not count, once: such a pod has no network."""
        ignored = [(pod.key, pod.node, address) for pod, address in foreign(self._world)]
        for pod, node, address in sorted({*ignored} - self._ignored):
            log.warning(
                "a pod's address is ignored: the record of its node does not allow it",
                extra={"pod": pod, "node": node, "address": address},
            )
        self._ignored = {*ignored}


class _View(msgspec.Struct, frozen=True, kw_only=True):
    """The view of the node as it was last read."""

    key: str
    version: int
    content: Content


class OwnView:
    """The view of the node, which is all that its certificate can read beside its own objects.

    Args:
        guarded: The node.
        changed: Called when the rules may have changed.
        services: What serves the Services of the view; None for no kube-proxy.
    """

    def __init__(self, guarded: GuardedNode, changed: Callable[[], None], services: ServiceApi | None) -> None:
        self._guarded = guarded
        self._changed = changed
        self._services = services
        self._known = asyncio.Event()
        self._content = Content()
        own = {"fieldSelector": f"metadata.name={guarded.node}"}
        # The Node authorizer lets a node list its own pods only, and only with this selector.
        here = {"fieldSelector": f"spec.nodeName={guarded.node}"}
        pods = Informer(objects.PODS, objects.decode_pod, noticing(changed), selectors=here)
        self._pods = pods
        views = Informer(NodeView.resource, _read, self._of_view, selectors=own)
        node = Informer(Node.resource, _decoder.decode, self._of_node, selectors=own)
        self.informers: Sequence[Informer[Any]] = (views, pods, node)

    async def wait(self) -> None:
        """Wait until the operator has written the view."""
        if not self._known.is_set():
            log.info("the operator has not written the view of this node yet")
        await self._known.wait()

    def rules(self) -> tuple[Ruleset, dict[str, int]]:
        """Return the table of the view, without the addresses that other pods have by now."""
        found = confined(self._content.rules, self._pods.cache)
        counts = {"pods": len(found.pods), "services": len(self._content.services)}
        return table(found, self._guarded), counts

    def report(self) -> None:
        """Report nothing: the operator ignores foreign addresses."""

    def _of_view(self, change: Change[_View]) -> None:
        # Without a view, as after a take-back, the last rules stay in force.
        if change.after is None:
            return
        self._content = change.after.content
        if self._services is not None:
            self._services.update(self._content)
        self._known.set()
        self._changed()

    def _of_node(self, change: Change[Node]) -> None:
        if self._services is not None and change.after is not None:
            self._services.update_node(change.after)


_decoder = msgspec.json.Decoder(Node)
_views = msgspec.json.Decoder(NodeView)


def _read(raw: msgspec.Raw) -> _View:
    """Decode a view.

    Raises:
        msgspec.MsgspecError: It cannot be read.
    """
    found = _views.decode(raw)
    return _View(key=found.key, version=found.version, content=decoded(found.spec))


def noticing(changed: Callable[[], None]) -> Callable[[Change[Any]], None]:
    """Return what an informer calls with each change, and what passes it on unless only unkept fields differ."""

    def notice(change: Change[Any]) -> None:
        if not _is_same(change.before, change.after):
            changed()

    return notice


def _is_same(before: msgspec.Struct | None, after: msgspec.Struct | None) -> bool:
    """Return whether only fields have changed that the agent does not keep, such as a pod's conditions."""
    if before is None or after is None:
        return before is after
    # Kubelets write the status of each pod many times, always with a new version.
    return msgspec.structs.replace(before, version=getattr(after, "version", 0)) == after
