"""Where the kubeconfig of a control plane is: pure.

of a Tenant or Subnamespace ─► Secret in `tenantry-kubeconfigs`, called after the namespace of the tenant
any other ─► Secret beside the VirtualControlPlane

Other users may have rights in the namespace of a Tenant or Subnamespace before it gets a control plane. The API server
does not end their watches with their rights. In `tenantry-kubeconfigs`, no user of a tenant ever has a watch.
"""

from __future__ import annotations

from msgspec.structs import replace

from tenantry.api.marks import CONTROL_PLANE
from tenantry.api.planecredentials import KUBECONFIGS_NAMESPACE
from tenantry.api.virtualcontrolplane import VirtualControlPlane, kubeconfig_secret_name
from tenantry.engine.observed import Observed


def is_outside(found: VirtualControlPlane, namespace: Observed | None) -> bool:
    """Return whether the kubeconfig of a control plane is outside of the namespace of the tenant.

    The kubeconfig stays there while the namespace lacks its label, as when an administrator has removed it by mistake.

    Args:
        found: The VirtualControlPlane.
        namespace: Its namespace; None if it is not known.
    """
    is_own = namespace is not None and namespace.labels.get(CONTROL_PLANE) == found.metadata.name
    return is_own or found.status.kubeconfig_namespace == KUBECONFIGS_NAMESPACE


def moves(found: VirtualControlPlane, namespace: Observed) -> bool:
    """Return whether the kubeconfig is still where an earlier version wrote it, and other users may have seen it.

    Args:
        found: The VirtualControlPlane.
        namespace: Its namespace.
    """
    status = found.status
    return is_outside(found, namespace) and bool(status.kubeconfig_secret) and not status.kubeconfig_namespace


def reported(found: VirtualControlPlane, namespace: Observed | None) -> VirtualControlPlane:
    """Return a control plane with the namespace and the name of the Secret in its status; "" for its own namespace.

    Args:
        found: The VirtualControlPlane.
        namespace: As for `is_outside`.
    """
    place, name = "", kubeconfig_secret_name(found.metadata.name)
    if is_outside(found, namespace):
        place, name = KUBECONFIGS_NAMESPACE, found.metadata.namespace
    return replace(found, status=replace(found.status, kubeconfig_namespace=place, kubeconfig_secret=name))
