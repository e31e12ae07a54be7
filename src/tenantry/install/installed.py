"""Reads how Tenantry was installed in a cluster: which subject its bindings and policies name as the operator."""

from __future__ import annotations

from tenantry.api.errors import Forbidden, NotFound
from tenantry.api.kubernetes import ClusterRoleBinding
from tenantry.api.model import Json
from tenantry.controllers.installation.shipment import Shipment
from tenantry.install import manifests, repairs
from tenantry.install.rights import OPERATOR
from tenantry.kube.client import Client


async def subject(client: Client) -> Json:
    """Return the operator as the installation names it: a user on a local cluster, else a ServiceAccount.

    Raises:
        Forbidden: The client may not read the binding.
    """
    try:
        subjects = (await client.get(ClusterRoleBinding, OPERATOR)).subjects
    except NotFound:
        return manifests.SERVICE_ACCOUNT
    # Further subjects are differences.
    is_in_cluster = any(each.kind == manifests.SERVICE_ACCOUNT["kind"] for each in subjects)
    return manifests.SERVICE_ACCOUNT if is_in_cluster else manifests.LOCAL_USER


async def shipment(client: Client) -> Shipment | None:
    """Return what an operator repairs; None if it may not even read how it was installed."""
    try:
        return repairs.shipment(manifests.foundation(await subject(client)))
    except Forbidden:
        return None
