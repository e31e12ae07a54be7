"""The machines from outside that a DedicatedCluster lists, and the NodeHandover of each: pure.

    spec.contributed   outside-a1b2c3 ─► NodeHandover outside-a1b2c3 ─► status.contributed: its stage, its token's id
    removed, changed                  ─► the NodeHandover is deleted; a changed one is created again when it is gone

They are no pool: no claim has them, no quota counts them, and the cluster is Ready without them, because their owner
may switch them off at any time. An entry that cannot be carried out keeps back no other one.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from msgspec import UNSET

from tenantry.api import reasons
from tenantry.api.contributednode import ContributedMachine, ContributedNode, ContributedNodeStatus
from tenantry.api.marks import MANAGED_BY, MANAGER, POOL
from tenantry.api.model import ObjectMeta
from tenantry.api.nodehandover import HandoverPlane, NodeHandover, NodeHandoverSpec
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers.children import created, deleted
from tenantry.controllers.dedicatedcluster.gather import ClusterInputs
from tenantry.controllers.joining import tokens
from tenantry.engine.conditions import find, is_true
from tenantry.engine.plan import DirectWrite
from tenantry.hosting.outside import canonical
from tenantry.world.addresses import Network, is_overlapping, is_part, is_within, parse, strict

LABEL = "contributed"
"""The value of the label `tenantry.dev/pool` of their Nodes inside."""

_LEAST_PREFIX = {4: 16, 6: 64}
"""The largest ranges of pods: one node has no use for more."""

_MOST_MESSAGE = 1024


def is_outside(found: NodeHandover) -> bool:
    """Return whether a NodeHandover is of a machine from outside."""
    return found.spec.contributed is not UNSET


def writes(inputs: ClusterInputs) -> Iterable[DirectWrite]:
    """Return the next writes of a cluster that stays."""
    of = inputs.own_plane
    wanted = {each.name: each for each in inputs.found.spec.contributed}
    yield from deleted(each for each in _own(inputs) if _is_over(each, wanted.get(each.metadata.name)))
    if of is None or of.metadata.deletion_timestamp:
        return
    for name, each in wanted.items():
        if name not in inputs.handovers and not problem(inputs, each):
            yield created(handover(each, of))


def _own(inputs: ClusterInputs) -> list[NodeHandover]:
    return [each for _, each in sorted(inputs.handovers.items()) if is_outside(each)]


def _is_over(found: NodeHandover, wanted: ContributedNode | None) -> bool:
    return wanted is None or machine(wanted) != found.spec.contributed


def machine(of: ContributedNode) -> ContributedMachine:
    """Return what a NodeHandover repeats of an entry."""
    return ContributedMachine(addresses=of.addresses, pod_range=of.pod_range)


def handover(wanted: ContributedNode, of: VirtualControlPlane) -> NodeHandover:
    """Return the NodeHandover of a machine."""
    meta = of.metadata
    return NodeHandover(
        metadata=ObjectMeta(name=wanted.name, labels={MANAGED_BY: MANAGER}),
        spec=NodeHandoverSpec(
            plane=HandoverPlane(namespace=meta.namespace, name=meta.name, uid=meta.uid),
            slice="",
            contributed=machine(wanted),
            labels={POOL: LABEL},
        ),
    )


def problem(inputs: ClusterInputs, wanted: ContributedNode) -> str:
    """Return why a machine cannot be added, and what to do; "" if it can."""
    path = f"spec.contributed[{wanted.name}]"
    if wanted.name in inputs.taken_outside:
        return f"{path}.name must be another one: a machine of another cluster has it"
    try:
        own = [ipaddress.ip_address(each) for each in wanted.addresses]
    except ValueError as error:
        return f"{path}.addresses must be IP addresses: {error}"
    for each in own:
        if each.is_loopback or each.is_link_local or each.is_multicast or each.is_unspecified:
            return f"{path}.addresses must not have {each}, which is no address of one machine"
    try:
        pods = ipaddress.ip_network(wanted.pod_range)
    except ValueError:
        pods = None
    if pods is None or pods.prefixlen < _LEAST_PREFIX[pods.version]:
        return f"{path}.podRange {wanted.pod_range!r} must be a range without host bits, and at most a /16, or a /64"
    if pods.is_loopback or pods.is_link_local or pods.is_multicast:
        return f"{path}.podRange {wanted.pod_range!r} must not have loopback, link-local or multicast addresses"
    return _elsewhere(inputs, wanted, path) or _overlap(inputs, wanted, path, pods)


def _elsewhere(inputs: ClusterInputs, wanted: ContributedNode, path: str) -> str:
    """Return why a machine does not fit the addresses of its cluster; "" if it does, or those are not known."""
    server = urlsplit(inputs.own_plane.status.endpoint).hostname if inputs.own_plane is not None else None
    if server and canonical(server) in map(canonical, wanted.addresses):
        return f"{path}.addresses must not have {server}, at which users reach the cluster: give another one"
    network = inputs.found.spec.network
    if network.pod_range and not is_within(wanted.pod_range, network.pod_range):
        told = f"be within spec.network.podRange, {network.pod_range}, which does not change"
        return f"{path}.podRange {wanted.pod_range!r} must {told}: give the machine a part of it"
    mine, services = strict(wanted.pod_range), strict(network.service_range)
    if mine is not None and services is not None and is_overlapping(mine, services):
        told = f"not overlap spec.network.serviceRange, {network.service_range}, which does not change"
        return f"{path}.podRange {wanted.pod_range!r} must {told}: give the machine another range"
    for each in wanted.addresses:
        own = parse(str(canonical(each)))
        if own is not None and services is not None and is_part(own, services):
            told = f"spec.network.serviceRange, {network.service_range}, has it"
            return f"{path}.addresses must not have {each}: {told}: give another one"
    return ""


def _overlap(inputs: ClusterInputs, wanted: ContributedNode, path: str, pods: Network) -> str:
    """Return with which other machine a machine shares addresses, by which a stream would reach either of both."""
    mine = {str(canonical(each)) for each in wanted.addresses}
    if any(ipaddress.ip_address(each) in pods for each in mine):
        return f"{path}.podRange {wanted.pod_range!r} must not have the node's own address"
    for other, addresses, range_ in _others(inputs, wanted):
        theirs = strict(range_)
        shared = mine & {str(canonical(each)) for each in addresses}
        if theirs is not None:
            shared |= {each for each in mine if ipaddress.ip_address(each) in theirs}
        shared |= {
            str(found) for each in addresses if (found := canonical(each)) is not None and _has(pods, str(found))
        }
        if shared or (theirs is not None and theirs.version == pods.version and pods.overlaps(theirs)):
            told = ", ".join(sorted(shared)) or wanted.pod_range
            return f"{path} must not have {told}: node {other!r} of the cluster has it"
    return ""


def _has(pods: Network, address: str) -> bool:
    return ipaddress.ip_address(address) in pods


def _others(inputs: ClusterInputs, wanted: ContributedNode) -> Iterable[tuple[str, Iterable[str], str]]:
    """Return name, addresses and range of the machines whose addresses count before those of another one."""
    precedes = True
    for each in inputs.found.spec.contributed:
        if each.name == wanted.name:
            precedes = False
        elif precedes or (each.name in inputs.handovers and wanted.name not in inputs.handovers):
            yield each.name, each.addresses, each.pod_range
    for name, found in sorted(inputs.handovers.items()):
        if name != wanted.name and found.spec.contributed is UNSET:
            yield name, found.status.addresses, found.status.pod_range


def shown(inputs: ClusterInputs) -> tuple[ContributedNodeStatus, ...]:
    """Return what the status reports of machines from outside: those of the spec, then those that leave."""
    listed = [each.name for each in inputs.found.spec.contributed]
    leaving = [each.metadata.name for each in _own(inputs) if each.metadata.name not in listed]
    problems = {each.name: problem(inputs, each) for each in inputs.found.spec.contributed}
    return tuple(_shown(inputs, name, problems.get(name, "")) for name in (*listed, *leaving))


def _shown(inputs: ClusterInputs, name: str, wrong: str) -> ContributedNodeStatus:
    found = inputs.handovers.get(name)
    if found is None or not is_outside(found):
        reason = reasons.INVALID_SPEC if wrong else reasons.NODE_JOINING
        message = (wrong or "its token is being made")[:_MOST_MESSAGE]
        return ContributedNodeStatus(name=name, reason=reason, message=message)
    join, (reason, message) = found.status.join, _told(found)
    return ContributedNodeStatus(
        name=name,
        stage=found.status.stage.value,
        token=tokens.id_of(found),
        server=join.server if join is not UNSET else "",
        reason=reasons.INVALID_SPEC if wrong else reason,
        message=(wrong or message)[:_MOST_MESSAGE],
    )


def _told(found: NodeHandover) -> tuple[str, str]:
    """Return the reason and the message of the condition that a person needs; "" for each if there is none yet."""
    conditions = found.status.conditions
    name = reasons.JOIN_REFUSED if is_true(conditions, reasons.JOIN_REFUSED) else reasons.READY
    told = find(conditions, name)
    return (told.reason, told.message) if told is not None else ("", "")
