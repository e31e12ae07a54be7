"""What several commands need of control planes: their program, whether they have started, kubeconfigs of owners."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenantry.api import marks, reasons
from tenantry.api.controlplanechoice import ControlPlaneChoice
from tenantry.api.dedicatedcluster import ClusterProvider, DedicatedCluster
from tenantry.api.errors import Forbidden, InputError, NotFound, TenantryError
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import Json, KubernetesObject
from tenantry.api.virtualcontrolplane import PlanePhase, VirtualControlPlane
from tenantry.cli import kinds, output
from tenantry.cli.kinds import ObjectSelection
from tenantry.cli.wait import READY, WaitCondition, wait_for_all, why
from tenantry.engine.conditions import find

if TYPE_CHECKING:
    from tenantry.cli.target import Target
    from tenantry.kube.client import Client


def prepare(target: Target, choice: str) -> None:
    """Build the program of control planes if a local cluster is about to need it.

    Args:
        target: The cluster.
        choice: The value of --control-plane.
    """
    if choice == ControlPlaneChoice.SHARED or target.local_name is None:
        return
    from tenantry.cli.vcp import build_program

    build_program()


def group_of(kind: type[KubernetesObject]) -> str:
    """Return the commands about a control plane, or about the cluster of its name that it belongs to."""
    return "tenantry cluster" if kind is DedicatedCluster else "tenantry vcp"


async def read_started(
    client: Client, name: str, namespace: str, kind: type[KubernetesObject] = VirtualControlPlane
) -> VirtualControlPlane:
    """Return a control plane that has been usable; one that has not handles no requests.

    Args:
        client: The client of the cluster.
        name: Its name.
        namespace: Its namespace.
        kind: What messages name: the control plane, or the cluster of its name that it belongs to.

    Raises:
        NotFound: It does not exist.
        InputError: It has not started yet, or Cluster API has built the cluster; the message has the reason.
    """
    from tenantry.cli.delete import read_existing

    if kind is DedicatedCluster:
        found = await _read_plane(client, name, namespace)
    else:
        found = await read_existing(client, VirtualControlPlane, name, namespace)
    if not found.status.kubeconfig_secret:
        raise InputError(_unusable(found, kind))
    return found


async def _read_plane(client: Client, name: str, namespace: str) -> VirtualControlPlane:
    """Return the control plane of a cluster.

    Raises:
        NotFound: There is no such cluster.
        InputError: It has no control plane yet, or one of Cluster API.
    """
    from tenantry.cli import refusals
    from tenantry.cli.delete import read_existing

    cluster = await read_existing(client, DedicatedCluster, name, namespace)
    told = kinds.told(DedicatedCluster, name, namespace)
    if is_of_cluster_api(cluster):
        raise InputError(
            f"{told} is built by Cluster API, so that this command cannot be used: `tenantry cluster scale` changes its"
            f" nodes, spec.version upgrades it, and Cluster {name!r} (`kubectl get clusters.cluster.x-k8s.io {name} -n"
            f" {namespace}`) decides the rest"
        )
    try:
        return await client.get(VirtualControlPlane, name, namespace)
    except NotFound as error:
        if refusals.lacks_kind(error):
            raise
        raise InputError(_not_started(told, cluster, DedicatedCluster)) from error


def is_of_cluster_api(found: DedicatedCluster) -> bool:
    """Return whether Cluster API builds a cluster, as far as that is decided."""
    return ClusterProvider.CLUSTER_API in (found.status.provider, found.spec.provider)


def _unusable(found: VirtualControlPlane, kind: type[KubernetesObject]) -> str:
    """Return why a control plane that has no kubeconfig yet is not usable, and what to do."""
    told = kinds.told(kind, found.metadata.name, found.metadata.namespace)
    if READY.is_met(found):
        return (
            f"{told} has no kubeconfig until the objects of its namespace are inside:"
            " status.conversion of its Tenant or Subnamespace shows the progress"
        )
    return _not_started(told, found, kind)


def _not_started(told: str, found: KubernetesObject, kind: type[KubernetesObject]) -> str:
    name, namespace = found.metadata.name, found.metadata.namespace
    return f"{told} has not started yet: {why(found)}; wait with `{group_of(kind)} wait {name} -n {namespace}`"


async def read_asked(
    client: Client, found: VirtualControlPlane, kind: type[KubernetesObject]
) -> VirtualControlPlane | DedicatedCluster:
    """Return what requests about a control plane are written into, as it is now.

    Args:
        client: The client of the cluster.
        found: The control plane.
        kind: The kind of what is returned: the control plane, or the cluster of its name.

    Raises:
        NotFound: It does not exist.
    """
    from tenantry.cli.delete import read_existing

    meta, wanted = found.metadata, DedicatedCluster if kind is DedicatedCluster else VirtualControlPlane
    return await read_existing(client, wanted, meta.name, meta.namespace)


async def write_request(client: Client, kind: type[KubernetesObject], found: VirtualControlPlane, spec: Json) -> None:
    """Write a request into the spec of a control plane, or of the cluster of its name, which the operator brings there.

    Args:
        client: The client of the cluster.
        kind: What has the request.
        found: The control plane.
        spec: The merge patch of the spec.

    Raises:
        TenantryError: It is refused.
    """
    from tenantry.cli.delete import read_existing

    meta = found.metadata
    asked = found if kind is VirtualControlPlane else await read_existing(client, kind, meta.name, meta.namespace)
    patch: Json = {"metadata": {"uid": asked.metadata.uid}, "spec": spec}
    await client.merge_patch(kind.resource, meta.namespace, meta.name, patch)


class RequestHandled(WaitCondition):
    """The status of a control plane has the outcome of a request, or the quota has no room for its process.

    Args:
        done: The outcome in words, as in "rotated".
    """

    def __init__(self, done: str = "done") -> None:
        super().__init__("")
        self._done = done
        self.shortage = ""
        """Why the quota has no room, as the operator reports it; "" if there is room."""

    def is_met(self, value: KubernetesObject | None) -> bool:
        """Return whether the request has an outcome, or can have none until the quota has room."""
        if not isinstance(value, VirtualControlPlane):
            return False
        self.shortage = _shortage(value)
        return self.is_handled(value) or bool(self.shortage)

    def is_handled(self, value: VirtualControlPlane) -> bool:
        """Return whether the status has the outcome."""
        raise NotImplementedError

    def __str__(self) -> str:
        """Return it in words."""
        return self._done


def _shortage(value: VirtualControlPlane) -> str:
    """Return why a control plane waits for room in the quota; "" if it does not, or runs with less than it asks for."""
    ready = find(value.status.conditions, reasons.READY)
    if ready is None or value.status.phase is not PlanePhase.STARTING or ready.reason != reasons.QUOTA_INSUFFICIENT:
        return ""
    return ready.message if ready.observed_generation >= value.metadata.generation else ""


async def wait_for_outcome(
    client: Client, found: VirtualControlPlane, handled: RequestHandled, *, seconds: int
) -> None:
    """Wait until a request of a control plane is handled.

    Raises:
        TenantryError: It is not handled in time, or not before there is room in the quota.
    """
    name, namespace = found.metadata.name, found.metadata.namespace
    asked = [ObjectSelection(VirtualControlPlane, (name,), namespace)]
    await wait_for_all(client, asked, handled, seconds=seconds, quiet=True)
    if handled.shortage:
        told = kinds.told(VirtualControlPlane, name, namespace)
        raise TenantryError(f"{told} cannot wake: {handled.shortage}; try again when there is room")


async def kubeconfig(client: Client, namespace: str) -> str:
    """Return the kubeconfig of the control plane that the owners of a namespace work with; "" if they have none.

    The context is called after the namespace's control plane, which has the name of the Tenant or Subnamespace.

    Args:
        client: Of a user who may read the namespace and the Secret.
        namespace: The namespace.

    Raises:
        InputError: The control plane is not usable yet.
        NotFound: The VirtualControlPlane or its Secret does not exist.
    """
    from tenantry.cli.vcp import read_kubeconfig

    try:
        labels = (await client.get(Namespace, namespace)).metadata.labels
    except (NotFound, Forbidden):
        return ""
    name = labels.get(marks.CONTROL_PLANE, "")
    return renamed(await read_kubeconfig(client, name, namespace), name) if name else ""


def renamed(text: str, name: str) -> str:
    """Return a kubeconfig whose current context has another name.

    Args:
        text: The kubeconfig.
        name: The name.
    """
    import yaml

    config: dict[str, Any] = yaml.safe_load(text)
    contexts = [
        {**each, "name": name} if each["name"] == config["current-context"] else each for each in config["contexts"]
    ]
    return output.to_yaml([{**config, "contexts": contexts, "current-context": name}])
