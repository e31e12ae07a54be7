"""What several commands need of control planes: their program, whether they have started, kubeconfigs of owners."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenantry.api import marks
from tenantry.api.controlplanechoice import ControlPlaneChoice
from tenantry.api.errors import Forbidden, InputError, NotFound
from tenantry.api.kubernetes import Namespace
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.cli import kinds, output
from tenantry.cli.wait import why

if TYPE_CHECKING:
    from tenantry.cli.target import Target
    from tenantry.kube.client import Client


def prepare(target: Target, choice: str) -> None:
    """Build the program of control planes if a local cluster is about to need it.

    Args:
        target: The cluster.
        choice: The value of --control-plane.
    """
    if choice != ControlPlaneChoice.VIRTUAL or target.local_name is None:
        return
    from tenantry.cli.vcp import build_program

    build_program()


async def read_started(client: Client, name: str, namespace: str) -> VirtualControlPlane:
    """Return a control plane that has been usable: another one handles no requests, so that waiting is in vain.

    Raises:
        NotFound: It does not exist.
        InputError: It has not started yet: why.
    """
    from tenantry.cli.delete import read_existing

    found = await read_existing(client, VirtualControlPlane, name, namespace)
    if not found.status.kubeconfig_secret:
        told = kinds.told(VirtualControlPlane, name, namespace)
        raise InputError(f"{told} has not started yet: {why(found)}; `tenantry vcp wait {name} -n {namespace}` waits")
    return found


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
