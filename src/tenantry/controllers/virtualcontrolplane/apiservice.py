"""The host objects by which the pods of a control plane and their API server reach each other: pure.

pod ─► KUBERNETES_SERVICE_HOST: clusterIP of the Service ─► EndpointSlice ─► address and port of the API server
└── NetworkPolicy: this address and port, for pods with the mark of this control plane
API server ─► webhook in a pod ─► gate of the operator, which dials no pods of others ─► the pod
                                  └── the same NetworkPolicy: from the operator

The Service is the copy of `kubernetes` in namespace `default` inside, so that DNS finds it. Its clusterIP is in the
server certificate, so it exists before the process starts. The other two objects have no marks of copies: the mirror of
their kinds must not take them for its own.

Source: Kubernetes, "Service" (Services without selectors), "EndpointSlices", "Network Policies".
"""

from __future__ import annotations

import ipaddress

from tenantry.api import marks
from tenantry.api.model import Json, Resource
from tenantry.api.tenant import NetworkIsolation
from tenantry.api.virtualcontrolplane import PLANE, PREFIX, VirtualControlPlane
from tenantry.controllers.virtualcontrolplane import desired, kubeconfigobjects
from tenantry.engine.observed import Observed
from tenantry.hosting.placement import ReachedPlane, ServerEndpoint
from tenantry.mirror import marking
from tenantry.mirror.kinds import networkpolicies, services
from tenantry.mirror.shapes import part
from tenantry.world.netpol.services import ENDPOINT_SLICES

SERVICES = services.RESOURCE
NETWORK_POLICIES = networkpolicies.RESOURCE

PORT = 443
_PORT_NAME = "https"
_INSIDE: Json = {"metadata": {"namespace": services.API_SERVER[0], "name": services.API_SERVER[1]}}


def service(found: VirtualControlPlane, address: str = "") -> tuple[Resource, Json]:
    """Return the Service.

    Args:
        found: The VirtualControlPlane.
        address: The clusterIP that pods and the server certificate have already; "" to have one chosen.
    """
    meta = marking.metadata(SERVICES.kind, _INSIDE, desired.profile_of(found, ""))
    meta["labels"] |= desired.labels(found)
    # No selector: with one, Kubernetes would add pods of the owner's choice as endpoints.
    spec: Json = {
        "type": "ClusterIP",
        "ports": [{"name": _PORT_NAME, "protocol": "TCP", "port": PORT, "targetPort": PORT}],
        "sessionAffinity": "None",
        "internalTrafficPolicy": "Cluster",
    }
    if address:
        spec |= {"clusterIP": address, "clusterIPs": [address]}
    return SERVICES, {"metadata": meta, "spec": spec}


def way(found: VirtualControlPlane, server: ServerEndpoint | None, mode: str) -> tuple[tuple[Resource, Json], ...]:
    """Return the endpoints of the Service, and the NetworkPolicy between its pods, these endpoints and the operator.

    Args:
        found: The VirtualControlPlane.
        server: Where pods reach the API server; None if no pod can.
        mode: The network isolation of the namespace. If it is Open, no policy of Tenantry's selects pods, and this one
            would be the first to restrict them.
    """
    if server is None:
        return ()
    name = service(found)[1]["metadata"]["name"]
    meta: Json = {
        "name": name,
        "namespace": found.metadata.namespace,
        "labels": desired.labels(found),
        "ownerReferences": [desired.owner_of(found)],
    }
    address = ipaddress.ip_address(server.address)
    endpoints: Json = {
        "metadata": {
            **meta,
            "labels": {
                **meta["labels"],
                "kubernetes.io/service-name": name,
                "endpointslice.kubernetes.io/managed-by": marks.MANAGER,
            },
        },
        "addressType": f"IPv{address.version}",
        "endpoints": [{"addresses": [str(address)], "conditions": {"ready": True}}],
        "ports": [{"name": _PORT_NAME, "protocol": "TCP", "port": server.port}],
    }
    if mode == NetworkIsolation.OPEN:
        # It selects no pod. The object stays, because nothing else of a control plane is deleted while it runs.
        selector: Json = {"matchExpressions": [{"key": PLANE, "operator": each} for each in ("Exists", "DoesNotExist")]}
    else:
        selector = {"matchLabels": {f"{PREFIX}/owner": found.metadata.uid}}
    peer: Json = {"ipBlock": {"cidr": str(ipaddress.ip_network(address))}}
    operators: list[Json] = [marks.OPERATOR_PEER, *([peer] if server.is_of_operator else [])]
    policy: Json = {
        "metadata": meta,
        "spec": {
            "podSelector": selector,
            "policyTypes": ["Egress", "Ingress"],
            "egress": [{"to": [peer], "ports": [{"protocol": "TCP", "port": server.port}]}],
            # Webhooks and aggregated APIs.
            "ingress": [{"from": operators}],
        },
    }
    return (ENDPOINT_SLICES, endpoints), (NETWORK_POLICIES, policy)


def reached(
    found: VirtualControlPlane, namespace: Observed, at: ReachedPlane, *, is_withheld: bool = False
) -> tuple[tuple[Resource, Json], ...]:
    """Return the host objects that depend on where a control plane is reached, by pods and by users.

    Args:
        found: The VirtualControlPlane.
        namespace: Its namespace.
        at: Where it is reached.
        is_withheld: Whether its users get no kubeconfig yet.
    """
    mode = namespace.labels.get(marks.NETWORK, "")
    secrets = () if is_withheld else (kubeconfigobjects.secret(found, namespace, at.kubeconfig),)
    return (*way(found, at.from_pods, mode), *secrets)


def address_of(seen: Json) -> str:
    """Return the clusterIP of a Service; "" if it has none, as when its user has made it headless.

    Args:
        seen: The Service.
    """
    try:
        return str(ipaddress.ip_address(part(seen, "spec").get("clusterIP") or ""))
    except ValueError:
        return ""


def is_spoilt(resource: Resource, seen: Json) -> bool:
    """Return whether an object has to be created again, because applying what it should be does not mend it.

    The endpoints that Kubernetes has found for a selector stay without the selector, and end with the Service.

    Args:
        resource: Its kind.
        seen: The object.
    """
    return resource == SERVICES and (bool(part(seen, "spec").get("selector")) or not address_of(seen))
