"""Reads how Tenantry was installed in a cluster: which subject is the operator, and whether Helm has the objects."""

from __future__ import annotations

from collections.abc import Sequence

from tenantry.api import marks
from tenantry.api.errors import Forbidden, InputError, NotFound
from tenantry.api.kubernetes import ClusterRoleBinding
from tenantry.api.model import Json
from tenantry.controllers.installation.release import HelmRelease, release_of
from tenantry.controllers.installation.shipment import Shipment
from tenantry.controllers.webhook.mutations import ServedMutation
from tenantry.engine.lease import NAME, Lease
from tenantry.install import fallback, manifests, repairs
from tenantry.install.fallback import MutationForm
from tenantry.install.rights import OPERATOR
from tenantry.kube.client import Client
from tenantry.kube.version import has_mutating_policies


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


async def form(client: Client) -> MutationForm:
    """Return how mutations are carried out in a cluster.

    Raises:
        ConfigError: The API server has no validating policies either: what is needed.
    """
    has_mutating = await has_mutating_policies(client)
    return MutationForm.POLICIES if has_mutating else MutationForm.WEBHOOK


async def mutations(client: Client) -> Sequence[ServedMutation]:
    """Return what the webhook of an operator serves."""
    return fallback.served(await subject(client))


async def shipment(client: Client, form: MutationForm = MutationForm.POLICIES) -> Shipment | None:
    """Return what an operator repairs; None if it may not even read how it was installed."""
    try:
        return repairs.shipment(manifests.foundation(await subject(client), form))
    except Forbidden:
        return None


async def release(client: Client) -> HelmRelease | None:
    """Return the release of Helm that has the installation; None for none.

    An uninstalled release leaves the kinds and namespaces with its marks, and no binding.

    Raises:
        Forbidden: The client may not read the binding.
    """
    try:
        meta = (await client.get(ClusterRoleBinding, OPERATOR)).metadata
    except NotFound:
        return None
    return release_of(meta.labels, meta.annotations)


async def require_no_release(client: Client) -> None:
    """Check that no release of Helm has the installation: its next upgrade would undo what another client changes.

    Raises:
        InputError: A release has it.
        Forbidden: The client may not read the binding.
    """
    found = await release(client)
    if found is not None:
        raise InputError(
            f"{found} has this installation: change it by `helm upgrade`, or remove it first by `helm uninstall"
            f" {found.name} --namespace {found.namespace}`, which leaves tenants, kinds and namespaces"
        )


async def require_none_beside(client: Client) -> None:
    """Check that no operator runs beside the cluster: one inside would take its rights away.

    Raises:
        InputError: One runs there, as that of a local cluster.
        Forbidden: The client may not read the binding, or the Lease.
    """
    if await subject(client) is not manifests.LOCAL_USER:
        return
    try:
        holder = (await client.get(Lease, NAME, marks.SYSTEM_NAMESPACE)).spec.holder_identity
    except NotFound:
        return
    if holder:
        raise InputError(
            f"the operator {holder!r} runs beside this cluster, and one inside would take its rights away: name a local"
            " cluster with --cluster NAME, or end its operator first with `tenantry up --cluster NAME --no-operator`"
        )
