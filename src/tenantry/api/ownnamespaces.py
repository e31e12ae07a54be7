"""The namespaces of Tenantry itself."""

from __future__ import annotations

from tenantry.api.marks import SYSTEM_NAMESPACE
from tenantry.api.peercluster import PEERS_NAMESPACE
from tenantry.api.planecredentials import KUBECONFIGS_NAMESPACE
from tenantry.api.virtualcontrolplane import MIRRORS_NAMESPACE

OWN_NAMESPACES = (SYSTEM_NAMESPACE, MIRRORS_NAMESPACE, KUBECONFIGS_NAMESPACE, PEERS_NAMESPACE)
"""No tenant has a role in them, but for the kubeconfig of its own in `tenantry-kubeconfigs`."""

HOSTED_PREFIX = "tenantry-hosted-"
"""What the names of namespaces with the authorities of one control plane begin with; no tenant has a role there."""
