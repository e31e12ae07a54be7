"""Approves the certificates of contributed nodes, labels the nodes as agreed, and removes withdrawn ones.

The key is "csr/NAME" or "node/NAME".
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

import msgspec

from tenantry.api.contribution import (
    PREFIX,
    REGISTER,
    Contribution,
    EarlierRecord,
    change,
    earlier_record_of,
    is_contributed,
    read,
    recorded,
)
from tenantry.api.errors import NotFound
from tenantry.api.marks import NODE_ADDRESSES, SYSTEM_NAMESPACE, TAKEN_BACK
from tenantry.api.node import Node
from tenantry.api.policyparameters import PREFIX as PARAMETERS
from tenantry.api.policyparameters import PolicyParameters
from tenantry.api.signing import SigningRequest
from tenantry.api.tenancydefaults import NAME as DEFAULTS
from tenantry.api.tenancydefaults import SliceDefaults, TenancyDefaults
from tenantry.controllers import signingrequests, watched
from tenantry.controllers.contributions import apiserver, desired, signing
from tenantry.controllers.contributions.desired import ContributionInputs
from tenantry.controllers.contributions.pods import LeavingPod, on_node
from tenantry.controllers.slices.pods import Pod
from tenantry.controllers.slices.stages import report_departures
from tenantry.engine import request
from tenantry.engine.cache import Cache, Change
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.observed import Observed
from tenantry.engine.plan import DirectWrite, Plan

log = logging.getLogger(__name__)

_CSR, _NODE = "csr/", "node/"


class ContributionController:
    """Reconciles contributed nodes and their certificate requests."""

    name = "contributions"
    kind = SigningRequest

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        return [
            Watch(resource=SigningRequest.resource, decode=signingrequests.bounded, keys=_of_request),
            watched.nodes(_of_node),
            watched.watch(PolicyParameters.resource, _of_register),
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
        agreed, version = await _agreed(cluster, node.metadata.name)
        defaults: TenancyDefaults | None = cluster.cache(TenancyDefaults.resource).get(DEFAULTS)
        decision = desired.plan(
            ContributionInputs(
                node=node,
                agreed=agreed,
                version=version,
                now=cluster.clock.now(),
                pods=await _pods(cluster, node) if desired.is_vacant(node) else (),
                defaults=defaults.spec.slices if defaults is not None else SliceDefaults(),
                reported=await _reported(cluster, node) if desired.is_unrecorded(agreed) else (),
            )
        )
        outcome = await cluster.writer.apply(decision.plan)
        if outcome.error is not None:
            raise outcome.error
        # Events are written after the writes, about those that the API server accepted.
        report_departures(cluster, decision, outcome)
        return 0.0 if decision.goes_on else decision.again

    async def _decide(self, cluster: Cluster, name: str) -> float | None:
        asked: SigningRequest | None = cluster.cache(SigningRequest.resource).get(name)
        if asked is None or not signing.concerned(asked):
            cluster.forget(self.name, _CSR + name)
            return None
        node = signing.concerned(asked)
        # Read for each request: they change when the control plane moves, which no watch of this operator reports.
        reserved = await apiserver.addresses(cluster.live)
        agreed, _ = await _agreed(cluster, node)
        if agreed is None or agreed.ended or not signing.may_have(asked, _addresses(cluster), reserved):
            log.warning("certificate not approved", extra={"key": name, "node": node})
            return None
        outcome = await cluster.writer.apply(signing.approval(asked, node))
        if outcome.error is not None:
            raise outcome.error
        return None if outcome.written else 0.0  # another decision was made in between, or the request is gone


def _addresses(cluster: Cluster) -> dict[str, frozenset[str]]:
    """Return the addresses that each node reports, by its name."""
    nodes: Cache[Node] = cluster.cache(Node.resource)
    return {each.metadata.name: frozenset(a.address for a in each.status.addresses) for each in nodes}


async def _reported(cluster: Cluster, node: Node) -> tuple[str, ...]:
    """Return the addresses that a node reports and that are its own, sorted."""
    if not node.status.addresses:
        return ()
    reserved = await apiserver.addresses(cluster.live)
    return tuple(sorted(signing.own_addresses(node.metadata.name, _addresses(cluster), reserved)))


async def _agreed(cluster: Cluster, node: str) -> tuple[Contribution | None, str]:
    """Return the agreement on a contributed node, None for no readable record; and the version of the register."""
    try:
        # Not cached: the approval of a certificate must not rest on a record that was removed a moment ago.
        register = await cluster.live.get(PolicyParameters, REGISTER, SYSTEM_NAMESPACE)
        found = recorded(register, node)
        version = register.metadata.resource_version
        return (found, version) if found is not None else (await _moved(cluster, node), "")
    except NotFound:
        return None, ""


async def _moved(cluster: Cluster, node: str) -> Contribution | None:
    """Move the record that an earlier version wrote into the register, and return it.

    Raises:
        NotFound: There is none.
    """
    name = earlier_record_of(node)
    earlier = await cluster.live.get(EarlierRecord, name, SYSTEM_NAMESPACE)
    try:
        found = read(earlier.data)
    except msgspec.ValidationError:
        return None
    into = request.patch(PolicyParameters.resource, SYSTEM_NAMESPACE, REGISTER, change(node, found))
    away = request.delete(EarlierRecord.resource, SYSTEM_NAMESPACE, name)
    outcome = await cluster.writer.apply(Plan(writes=(DirectWrite(request=into), DirectWrite(request=away))))
    if outcome.error is not None:
        raise outcome.error
    return found


async def _pods(cluster: Cluster, node: Node) -> tuple[LeavingPod, ...]:
    """Return the pods of a node; listed, because only the cache of slices indexes pods by node."""
    selectors = {"fieldSelector": f"spec.nodeName={node.metadata.name}"}
    return tuple([on_node(raw) async for raw in cluster.live.raw(Pod.resource, selectors=selectors)])


def _of_register(change: Change[Observed]) -> Iterable[str]:
    """Return the nodes whose records have changed."""
    before, after = ({} if side is None or side.name != REGISTER else side.annotations for side in _sides(change))
    names = [key.removeprefix(PARAMETERS) for key in before.keys() | after.keys() if before.get(key) != after.get(key)]
    return [_NODE + name for name in sorted(names) if is_contributed(name)]


def _sides(change: Change[Observed]) -> tuple[Observed | None, Observed | None]:
    return change.before, change.after


def _of_request(change: Change[SigningRequest]) -> Iterable[str]:
    after = change.after
    return [_CSR + after.metadata.name] if after is not None and signing.concerned(after) else []


def _seen(node: Node) -> object:
    noted = tuple(node.metadata.annotations.get(key) for key in (TAKEN_BACK, NODE_ADDRESSES))
    # Addresses are recorded once, for a node that joined before records had them.
    addresses = frozenset(each.address for each in node.status.addresses)
    return node.metadata.labels, noted, node.spec, addresses


def _of_node(change: Change[Node]) -> Iterable[str]:
    before, after = change.before, change.after
    if after is None or not after.metadata.name.startswith(PREFIX):
        return []
    # Heartbeats change only the conditions, of every node, every few seconds.
    if before is not None and _seen(before) == _seen(after):
        return []
    return [_NODE + after.metadata.name]
