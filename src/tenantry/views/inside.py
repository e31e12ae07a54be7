"""Whether an API server is that of a virtual control plane, which has none of Tenantry's kinds."""

from __future__ import annotations

from tenantry.api.errors import Forbidden, NotFound
from tenantry.api.model import Resource
from tenantry.api.virtualcontrolplane import OWNERS_INSIDE
from tenantry.kube import wire
from tenantry.kube.client import Client

_CLUSTER_ROLE_BINDINGS = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)


async def is_inside(client: Client) -> bool:
    """Return whether the API server is that of a virtual control plane; False also if the user may not know.

    Args:
        client: The user's.
    """
    try:
        await client.request("GET", wire.path(_CLUSTER_ROLE_BINDINGS, "", OWNERS_INSIDE))
    except (Forbidden, NotFound):
        return False
    return True
