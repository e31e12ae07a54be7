"""`tenantry vcp rotate`: requests that credentials are replaced by a field, and waits until that is done."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import click

from tenantry.api.model import KubernetesObject
from tenantry.api.planecredentials import RotationScope
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.cli import durations, flags, kinds, output, place, session
from tenantry.cli.controlplane import RequestHandled, group_of, read_started, wait_for_outcome
from tenantry.cli.delete import confirm
from tenantry.cli.target import Target, takes_target

if TYPE_CHECKING:
    from tenantry.kube.client import Client

_LOST = {
    RotationScope.USERS: "kubeconfigs that were handed out, and certificates that were requested inside",
    RotationScope.ALL: "kubeconfigs that were handed out, certificates that were requested inside, its authorities, and"
    " in a day all tokens of ServiceAccounts that exist now",
}


class _Rotated(RequestHandled):
    """The status has the outcome of a request."""

    def __init__(self, value: str) -> None:
        super().__init__("rotated")
        self._value = value

    def is_handled(self, value: VirtualControlPlane) -> bool:
        """Return whether it has."""
        return value.status.last_rotation.requested == self._value


@click.command()
@takes_target
@click.argument("called", metavar="NAME")
@place.takes_namespace("Namespace of the tenant (default: the namespace of the context).")
@click.option("--all", "whole", is_flag=True, help="Also replace its authorities and the key of its tokens.")
@flags.yes_option
@durations.timeout_option("2m", "Deadline for the outcome, as in 30s or 5m.")
def rotate(target: Target, *, called: str, namespace: str, whole: bool, yes: bool, timeout: int) -> None:
    r"""Replace the credentials of a virtual control plane; kubeconfigs handed out before are worth nothing afterwards.

    Its process starts anew, which ends requests and watches that are open. Pods keep working: with --all, for a day,
    in which their tokens are renewed and programs have to read the authority of the API server again.

    \b
      tenantry vcp rotate web -n acme
      tenantry vcp kubeconfig web -n acme > web.kubeconfig
    """
    replace(target, called, place.parent(target, namespace), whole=whole, yes=yes, seconds=timeout)


def replace(
    target: Target,
    called: str,
    where: str,
    *,
    whole: bool,
    yes: bool,
    seconds: int,
    kind: type[KubernetesObject] = VirtualControlPlane,
) -> None:
    """Replace the credentials of a control plane, and wait until that is done.

    Args:
        target: The cluster.
        called: The name of the control plane.
        where: Its namespace.
        whole: Also replace its authorities and the key of its tokens.
        yes: Do not ask.
        seconds: The deadline.
        kind: The kind that messages name: the control plane, or the cluster of its name that it belongs to.

    Raises:
        TenantryError: They are not replaced, or not in time: why.
    """
    scope = RotationScope.ALL if whole else RotationScope.USERS

    async def work(client: Client) -> None:
        found = await read_started(client, called, where)
        told = kinds.told(kind, called, where)
        output.talk(f"{told}: {_LOST[scope]}")
        if not yes:
            confirm("Replace them? This cannot be undone.", refused="nothing was replaced")
        value = f"{scope}@{secrets.token_hex(8)}"
        patch = {"metadata": {"uid": found.metadata.uid}, "spec": {"rotation": {"request": value}}}
        await client.merge_patch(found.resource, where, called, patch)
        await wait_for_outcome(client, found, _Rotated(value), seconds=seconds)
        output.talk(f"{told} has new credentials: `{group_of(kind)} kubeconfig {called} -n {where}` prints them")

    session.run(target, work)
