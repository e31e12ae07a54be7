"""Reads from the caches what decides the views of contributed nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

import msgspec

from tenantry.api.contribution import REGISTER, is_contributed
from tenantry.api.kubernetes import ClusterRole, ClusterRoleBinding
from tenantry.api.marks import MANAGED_BY, MANAGER, SYSTEM_NAMESPACE
from tenantry.api.model import Resource, object_key
from tenantry.api.node import Node
from tenantry.api.nodeview import NodeView
from tenantry.api.policyparameters import PREFIX, PolicyParameters
from tenantry.engine.cluster import Cluster
from tenantry.engine.observed import Observed, observe
from tenantry.engine.plan import Lookup
from tenantry.world.netpol import objects, services
from tenantry.world.netpol.objects import NetworkState, record_of
from tenantry.world.netpol.services import ProxiedEndpoints, ProxiedService

MADE = (ClusterRoleBinding.resource, ClusterRole.resource, NodeView.resource)
"""What is written for a node, in the order in which it is deleted."""

OURS = {"labelSelector": f"{MANAGED_BY}={MANAGER}"}
REGISTERED = {"fieldSelector": f"metadata.namespace={SYSTEM_NAMESPACE},metadata.name={REGISTER}"}

DECODERS = {
    objects.PODS: objects.decode_pod,
    objects.NAMESPACES: objects.decode_space,
    objects.POLICIES: objects.decode_policy,
    services.SERVICES: services.decode_service,
    services.ENDPOINT_SLICES: services.decode_endpoints,
    **{kind: partial(observe, kind) for kind in MADE},
}
"""The kinds that are watched from the first contributed node on, beside nodes."""


class NodeViewInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides the views.

    Args:
        names: The contributed nodes with a record; also nodes that are being taken back.
        nodes: The registered ones of them, by name.
        world: Pods, namespaces, NetworkPolicies and nodes of the cluster.
        services: All Services.
        endpoints: All EndpointSlices.
        made: The views, roles and bindings that exist.
        lookup: What exists, by kind and key.
    """

    names: frozenset[str]
    nodes: Mapping[str, Node]
    world: NetworkState
    services: tuple[ProxiedService, ...]
    endpoints: tuple[ProxiedEndpoints, ...]
    made: tuple[tuple[Resource, Observed], ...]
    lookup: Lookup


def contributed(cluster: Cluster) -> frozenset[str]:
    """Return the contributed nodes that have a record."""
    key = object_key(SYSTEM_NAMESPACE, REGISTER)
    register: PolicyParameters | None = cluster.cache(PolicyParameters.resource).get(key)
    keys = register.metadata.annotations if register is not None else {}
    names = (each.removeprefix(PREFIX) for each in keys if each.startswith(PREFIX))
    return frozenset(name for name in names if is_contributed(name))


def gather(cluster: Cluster, names: frozenset[str]) -> NodeViewInputs:
    """Return the inputs.

    Args:
        cluster: Its caches of all kinds are in step.
        names: See `contributed`.
    """
    nodes: Iterable[Node] = tuple(cluster.cache(Node.resource))
    return NodeViewInputs(
        names=names,
        nodes={each.metadata.name: each for each in nodes if each.metadata.name in names},
        world=NetworkState(
            pods=tuple(cluster.cache(objects.PODS)),
            spaces=tuple(cluster.cache(objects.NAMESPACES)),
            policies=tuple(cluster.cache(objects.POLICIES)),
            nodes=tuple(record_of(each) for each in nodes),
        ),
        services=tuple(cluster.cache(services.SERVICES)),
        endpoints=tuple(cluster.cache(services.ENDPOINT_SLICES)),
        made=tuple((kind, found) for kind in MADE for found in cluster.cache(kind)),
        lookup=cluster.lookup,
    )
