"""`tenantry vcp`: creates, lists and deletes virtual control planes, and prints their kubeconfigs."""

from __future__ import annotations

import base64
import functools
from typing import TYPE_CHECKING

import click
import msgspec

from tenantry.api.clusterapi import KUBECONFIG_VALUE
from tenantry.api.errors import InputError, NotFound
from tenantry.api.model import KubernetesObject, ObjectMeta, Resource
from tenantry.api.virtualcontrolplane import (
    KUBECONFIG_KEY,
    MOST_REPLICAS,
    DatastoreKind,
    PlaneDatastore,
    VirtualControlPlane,
    VirtualControlPlaneSpec,
)
from tenantry.cli import creation, flags, kinds, nouns, output, place, session
from tenantry.cli.auditlog import audit_log
from tenantry.cli.controlplane import read_started
from tenantry.cli.kinds import ObjectSelection
from tenantry.cli.paths import NAMESPACED_NAME
from tenantry.cli.phases import sleep, wake
from tenantry.cli.planesnapshots import restore, snapshot
from tenantry.cli.planeupgrade import upgrade
from tenantry.cli.rotation import rotate
from tenantry.cli.target import Target, takes_target
from tenantry.world.validation import validate_plane

if TYPE_CHECKING:
    from tenantry.api.dedicatedcluster import DedicatedCluster
    from tenantry.kube.client import Client

_VCP = VirtualControlPlane.names.short[0]
_called = click.argument("called", metavar="NAME", type=NAMESPACED_NAME)
_in_tenant = place.takes_namespace("Namespace of the tenant (default: the namespace of the context).")
_SECRETS = Resource("", "v1", "secrets", "Secret")


@click.group()
def vcp() -> None:
    """Create, list and delete virtual control planes, and print their kubeconfigs."""


@vcp.command()
@takes_target
@_called
@_in_tenant
@click.option(
    "--datastore",
    type=click.Choice([each.value for each in DatastoreKind if each is not DatastoreKind.EXTERNAL]),
    default=DatastoreKind.SQLITE.value,
    help="Where the control plane keeps its objects (default: SQLite). An external database needs a manifest.",
)
@click.option(
    "--version", "version", default="", metavar="VERSION", help="Minor version of Kubernetes (default: the latest)."
)
@click.option(
    "--replicas",
    type=click.IntRange(1, MOST_REPLICAS),
    default=1,
    help="Number of processes (default: 1); several need --datastore SharedEtcd or, on a local cluster, OwnEtcd.",
)
@flags.takes_wait("Wait until the API server is usable.", default=True, timeout="2m")
@flags.dry_run_option
@output.output_option("json", "yaml", "name", *output.TEMPLATES)
def create(
    target: Target,
    *,
    called: str,
    namespace: str,
    datastore: str,
    version: str,
    replicas: int,
    seconds: int | None,
    dry_run: bool,
    form: str | None,
) -> None:
    r"""Create a virtual control plane: an API server of its own, whose pods run in the tenant's namespace.

    On a local cluster, the first one builds the program, which takes several minutes.

    \b
      tenantry vcp create web -n acme
      tenantry vcp kubeconfig web -n acme > web.kubeconfig
    """
    where = place.parent(target, namespace)
    spec = VirtualControlPlaneSpec(version=version, replicas=replicas)
    if datastore != DatastoreKind.SQLITE:
        spec = msgspec.structs.replace(spec, datastore=PlaneDatastore(kind=DatastoreKind(datastore)))
    wanted = VirtualControlPlane(metadata=ObjectMeta(name=called, namespace=where), spec=spec)
    wrong = validate_plane(wanted)
    if version and target.local_name is not None:
        from tenantry.local import hostedversions

        hostedversions.product(version)  # raises for a version that there is not
    if not wrong and not dry_run:
        session.run(target, lambda client: creation.check_place(client, where, "control plane"))
        if target.local_name is not None:
            build_program(version)
    make = functools.partial(creation.create, seconds=seconds, verb="vcp")
    flags.make(target, wanted, wrong, make, dry_run=dry_run, form=form)


def build_program(version: str = "") -> None:
    """Build the program of control planes on this machine, unless it is there.

    Args:
        version: The minor version of Kubernetes; "" for the default.

    Raises:
        InputError: There is no such version: the message lists those that there are.
    """
    from tenantry.local import build, hostedversions
    from tenantry.local.progress import StreamProgress

    product = hostedversions.product(version)
    if any(build.built(each) is None for each in (product, *product.beside)):
        with StreamProgress() as progress:
            build.ensure(progress, product)


@vcp.command()
@takes_target
@_called
@_in_tenant
def kubeconfig(target: Target, *, called: str, namespace: str) -> None:
    r"""Print the kubeconfig of a virtual control plane; its user is an administrator inside.

    \b
      tenantry vcp kubeconfig web -n acme > web.kubeconfig
      kubectl --kubeconfig web.kubeconfig get namespaces
    """
    where = place.parent(target, namespace)
    output.write(session.run(target, lambda client: read_kubeconfig(client, called, where)).rstrip("\n"))


async def read_kubeconfig(
    client: Client, name: str, namespace: str, kind: type[KubernetesObject] = VirtualControlPlane
) -> str:
    """Return the kubeconfig in the Secret that the status names; arguments as for `read_started`.

    Raises:
        NotFound: There is no such control plane, or no such Secret.
        InputError: The control plane is not usable yet.
    """
    from tenantry.kube import wire

    found = await read_started(client, name, namespace, kind)
    told = kinds.told(kind, name, namespace)
    where, secret = found.status.kubeconfig_namespace or namespace, found.status.kubeconfig_secret
    try:
        data = await client.request("GET", wire.path(_SECRETS, where, secret))
    except NotFound as error:
        raise NotFound(
            f"{told} names Secret {secret!r} of namespace {where!r}, which is gone: the operator restores it, or"
            " reports why it cannot"
        ) from error
    return base64.b64decode(msgspec.json.decode(data)["data"][KUBECONFIG_KEY]).decode()


async def read_cluster_kubeconfig(client: Client, found: DedicatedCluster) -> str:
    """Return the kubeconfig of a cluster that Cluster API has built.

    Raises:
        InputError: There is none yet.
        ApiError: The API server refuses.
    """
    from tenantry.kube import wire

    where, secret = found.metadata.namespace, found.status.kubeconfig_secret
    if not secret:
        raise InputError(f"Cluster API has not written a kubeconfig of cluster {found.key!r} yet: look at its status")
    data = await client.request("GET", wire.path(_SECRETS, where, secret))
    return base64.b64decode(msgspec.json.decode(data)["data"][KUBECONFIG_VALUE]).decode()


@vcp.command()
@takes_target
@_called
@_in_tenant
@flags.yes_option
@flags.takes_wait("Wait until everything is gone.", default=True, timeout="2m")
def delete(target: Target, *, called: str, namespace: str, yes: bool, seconds: int | None) -> None:
    r"""Delete a virtual control plane with all objects inside, and its pods.

    \b
      tenantry vcp delete web -n acme
    """
    from tenantry.cli.delete import delete_objects

    where = place.parent(target, namespace)
    asked = [ObjectSelection(VirtualControlPlane, (called,), where)]
    session.run(target, lambda client: delete_objects(client, asked, yes=yes, seconds=seconds))


vcp.add_command(snapshot)
vcp.add_command(restore)
vcp.add_command(upgrade)
vcp.add_command(rotate)
vcp.add_command(audit_log)
vcp.add_command(sleep)
vcp.add_command(wake)
nouns.complete(vcp, nouns.Noun(_VCP, "virtual control plane", "virtual control planes", "web"))
