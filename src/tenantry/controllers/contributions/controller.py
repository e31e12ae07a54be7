"""Approves the certificates of contributed nodes, labels the nodes with what was agreed on, and takes them back.

The key is "csr/NAME" or "node/NAME".
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

import msgspec

from tenantry.api import marks
from tenantry.api.contribution import PREFIX, Contribution, Record, read, record_of
from tenantry.api.errors import Conflict, NotFound
from tenantry.api.marks import TAKEN_BACK
from tenantry.api.node import Node
from tenantry.controllers import watched
from tenantry.controllers.contributions import apiserver, signing
from tenantry.controllers.contributions.leaving import take_back
from tenantry.controllers.contributions.signing import SigningRequest
from tenantry.engine.cache import Cache, Change
from tenantry.engine.cluster import Cluster, Watch

log = logging.getLogger(__name__)

_CSR, _NODE = "csr/", "node/"


class ContributionController:
    """Reconciles contributed nodes and what they ask for."""

    name = "contributions"
    kind = SigningRequest

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        return [
            Watch(resource=SigningRequest.resource, decode=signing.decode, keys=_of_request),
            watched.nodes(_of_node),
        ]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - the queue counts
        """Decide a request, or label a node; return in how many seconds to look again, None for never.

        Raises:
            ApiError: Something failed; the queue tries again.
        """
        if key.startswith(_CSR):
            return await self._decide(cluster, key.removeprefix(_CSR))
        node: Node | None = cluster.cache(Node.resource).get(key.removeprefix(_NODE))
        if node is None:
            cluster.forget(self.name, key)
            return None
        agreed = await _agreed(cluster, node.metadata.name)
        lacking = _lacking(node, agreed) if agreed is not None else {}
        if lacking:
            await cluster.writer.patch(Node.resource, "", node.metadata.name, {"metadata": {"labels": lacking}})
        if agreed is None or node.metadata.annotations.get(TAKEN_BACK):
            return await take_back(cluster, node, cluster.clock.now())
        return None

    async def _decide(self, cluster: Cluster, name: str) -> float | None:
        request: SigningRequest | None = cluster.cache(SigningRequest.resource).get(name)
        if request is None or not signing.concerned(request):
            cluster.forget(self.name, _CSR + name)
            return None
        node = signing.concerned(request)
        nodes: Cache[Node] = cluster.cache(Node.resource)
        addresses = {each.metadata.name: frozenset(a.address for a in each.status.addresses) for each in nodes}
        reserved = await apiserver.addresses(cluster.live)
        if await _agreed(cluster, node) is None or not signing.may_have(request, addresses, reserved):
            log.warning("certificate not approved", extra={"key": name, "node": node})
            return None
        condition = {
            "type": "Approved",
            "status": "True",
            "reason": "Contributed",
            "message": f"the node {node!r} is contributed",
        }
        patch = {
            "metadata": {"resourceVersion": request.metadata.resource_version},
            "status": {"conditions": [condition]},
        }
        try:
            await cluster.writer.patch(SigningRequest.resource, "", name, patch, subresource="approval")
        except (Conflict, NotFound):
            return 0.0  # somebody else has decided, or it has gone
        return None


async def _agreed(cluster: Cluster, node: str) -> Contribution | None:
    """Return what is written down of a contributed node; None for nothing that can be read."""
    try:
        record = await cluster.live.get(Record, record_of(node), marks.SYSTEM_NAMESPACE)
        return read(record.data)
    except (NotFound, msgspec.ValidationError):
        return None


def _lacking(node: Node, agreed: Contribution) -> dict[str, str | None]:
    """Return which labels of a node are others than agreed on: to what they must change, None for away."""
    wanted: dict[str, str | None] = {**dict.fromkeys(marks.OF_CONTRIBUTIONS), **agreed.labels}
    return {key: value for key, value in wanted.items() if node.metadata.labels.get(key) != value}


def _of_request(change: Change[SigningRequest]) -> Iterable[str]:
    after = change.after
    return [_CSR + after.metadata.name] if after is not None and signing.concerned(after) else []


def _seen(node: Node) -> object:
    return node.metadata.labels, node.metadata.annotations.get(TAKEN_BACK), node.spec.unschedulable


def _of_node(change: Change[Node]) -> Iterable[str]:
    before, after = change.before, change.after
    if after is None or not after.metadata.name.startswith(PREFIX):
        return []
    if before is not None and _seen(before) == _seen(after):
        return []
    return [_NODE + after.metadata.name]
