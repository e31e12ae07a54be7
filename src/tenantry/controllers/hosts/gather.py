"""Which objects use hosts, and which zone owned each host so far, read from the caches."""

from __future__ import annotations

import msgspec

from tenantry.api.hostregister import HOSTS_MARK
from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import SYSTEM_NAMESPACE, TENANT_UID, ZONE
from tenantry.api.model import Json, Resource, object_key
from tenantry.api.policyparameters import PolicyParameters
from tenantry.api.tenancyrules import OWN_MARK
from tenantry.controllers.hosts.desired import HostInputs
from tenantry.controllers.watched import BY_NAMESPACE
from tenantry.engine.cache import Cache
from tenantry.engine.cluster import Cluster
from tenantry.engine.observed import Observed, ObservedRegister
from tenantry.policy.targets.hosts import EXPERIMENTAL, GATEWAY, NETWORKING, hosts_of, offered_by
from tenantry.world import hosts
from tenantry.world.hosts import HostUse

INGRESSES = Resource(NETWORKING, "v1", "ingresses", "Ingress")
GATEWAY_KINDS = (
    Resource(GATEWAY, "v1", "gateways", "Gateway"),
    Resource(GATEWAY, "v1", "httproutes", "HTTPRoute"),
    Resource(GATEWAY, "v1", "grpcroutes", "GRPCRoute"),
    Resource(GATEWAY, "v1", "tlsroutes", "TLSRoute"),
    Resource(GATEWAY, "v1", "listenersets", "ListenerSet"),
    Resource(EXPERIMENTAL, "v1alpha1", "xlistenersets", "XListenerSet"),
)
KINDS = {resource.kind: resource for resource in (INGRESSES, *GATEWAY_KINDS)}


class HostObject(msgspec.Struct, frozen=True, gc=False):
    """An object that has hosts, as it was last seen.

    Args:
        key: `namespace/name`.
        namespace: Of the object.
        name: Of the object.
        version: The resourceVersion.
        uid: Of the object.
        created: The creation timestamp, as Kubernetes writes it.
        hosts: Its hosts, normalised.
        offered: Those of them that routes of other namespaces may use.
    """

    key: str
    namespace: str
    name: str
    version: int
    uid: str
    created: str
    hosts: tuple[str, ...]
    offered: tuple[str, ...]


_json = msgspec.json.Decoder(Json)


def observe(raw: msgspec.Raw) -> HostObject:
    """Return what the cache keeps of an object."""
    value = _json.decode(raw)
    meta = value["metadata"]
    return HostObject(
        key=object_key(meta["namespace"], meta["name"]),
        namespace=meta["namespace"],
        name=meta["name"],
        version=int(meta["resourceVersion"]),
        uid=meta["uid"],
        created=meta["creationTimestamp"],
        hosts=hosts.normal(hosts_of(value)),
        offered=hosts.normal(offered_by(value)),
    )


def zone_of(namespace: Observed) -> str:
    """Return the network zone of a namespace; "" if it does not belong to a tenant."""
    tenant = namespace.labels.get(TENANT_UID, "")
    return namespace.labels.get(ZONE, tenant) if tenant else ""


def gather(cluster: Cluster) -> HostInputs:
    """Read what decides the register from the caches."""
    namespaces: Cache[Observed] = cluster.cache(Namespace.resource)
    maps: Cache[Observed] = cluster.cache(PolicyParameters.resource)
    uses: list[HostUse] = []
    is_whole = True
    for resource in cluster.observed_caches(KINDS.values()):
        cache: Cache[HostObject] = cluster.cache(resource)
        for each in cache:
            namespace = namespaces.get(each.namespace)
            # Watches of two kinds are not in step: an Ingress may be seen before its namespace.
            is_whole = is_whole and namespace is not None
            if namespace is None or not each.hosts:
                continue
            zone = zone_of(namespace)
            # Tenants' routes may take the hosts that a Gateway of the cluster offers.
            own = each.hosts if zone else tuple(host for host in each.hosts if host not in each.offered)
            uses.append(HostUse(each.created, each.uid, resource.kind, each.namespace, each.name, zone, own))
    registers = tuple(
        each
        for each in maps.by_index(BY_NAMESPACE, SYSTEM_NAMESPACE)
        # The same kind holds rules and approvals, which lie in the same namespace.
        if isinstance(each, ObservedRegister) and each.labels.get(OWN_MARK) == HOSTS_MARK
    )
    return HostInputs(uses=tuple(uses), is_whole=is_whole, registers=registers, lookup=cluster.lookup)
