"""`tenantry operator`: the process that the Deployment and local clusters run."""

from __future__ import annotations

import gc
import ipaddress
import logging
import os
import socket
import tempfile
import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import click
import uvloop
from msgspec.structs import replace

from tenantry.api import marks
from tenantry.api.errors import ConfigError, InputError
from tenantry.controllers.installation.shipment import Shipment
from tenantry.controllers.operator import METRICS_TENANTS, OperatorOptions, operate
from tenantry.controllers.webhook.mutations import WebhookPlace
from tenantry.engine.jsonlines import log_to
from tenantry.engine.tasks import in_background
from tenantry.hostedpods import versionimages
from tenantry.hostedpods.objects import PodSettings
from tenantry.hostedpods.placement import PodPlacement
from tenantry.install import installed
from tenantry.install.fallback import MutationForm
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.kube.kubeconfig import Connection
from tenantry.local.hosted import LocalPlacement
from tenantry.local.machines import LocalMachines
from tenantry.local.paths import ClusterPaths


@click.command()
@click.option(
    "--kubeconfig",
    "path",
    type=click.Path(path_type=Path),
    help="Path to the kubeconfig (default: the pod's service account).",
)
@click.option("--context", help="Context of the kubeconfig.")
@click.option(
    "--metrics-address",
    default="127.0.0.1:8080",
    show_default=True,
    help="HOST:PORT of /metrics, /healthz and /readyz.",
)
@click.option(
    "--secure-metrics-address",
    default="",
    metavar="HOST:PORT",
    help="HOST:PORT of /metrics with TLS, which has the series of tenants, too. Clients need a token with the right to"
    " get /metrics (default: none).",
)
@click.option(
    "--metrics-tenants",
    type=click.IntRange(0, 10_000),
    default=METRICS_TENANTS,
    show_default=True,
    help="Number of tenants, the largest, that have series of their own; the others are summed.",
)
@click.option(
    "--tunnel-address",
    default="",
    metavar="HOST:PORT",
    help="IP address and port at which peers open tunnels to this cluster (default: none).",
)
@click.option(
    "--webhook-address",
    default="",
    metavar="HOST:PORT",
    help="IP address and port of the webhook that carries out mutations, for API servers without"
    " MutatingAdmissionPolicy v1 (default: none).",
)
@click.option(
    "--webhook-service",
    default="",
    metavar="NAME",
    help=f"Service of namespace {marks.SYSTEM_NAMESPACE} by which the API server reaches that address (default: the"
    " address itself).",
)
@click.option("--namespace", default=marks.SYSTEM_NAMESPACE, show_default=True, help="Namespace of the Lease.")
@click.option(
    "--hosted-in",
    type=click.Path(path_type=Path),
    help="Folder of the local cluster that runs the control planes of VirtualControlPlanes.",
)
@click.option(
    "--hosted-image",
    multiple=True,
    metavar="[VERSION=]IMAGE",
    help="Image of the Pods in which the control planes of VirtualControlPlanes run; see `tenantry image build`. Repeat"
    " it with VERSION= for other versions of Kubernetes.",
)
@click.option("--hosted-storage-class", default="", help="StorageClass of the volumes of these Pods.")
@click.option(
    "--hosted-service",
    type=click.Choice(["ClusterIP", "LoadBalancer"]),
    default="ClusterIP",
    show_default=True,
    help="Type of the Services by which users reach these control planes.",
)
@click.option(
    "--hosted-shards",
    type=click.IntRange(1, 16),
    default=1,
    show_default=True,
    help="Number of parts in which replicas divide these control planes; the same for all replicas.",
)
@click.option("--hosted-etcd", is_flag=True, help="Keep the certificates of an etcd that these control planes share.")
@click.option(
    "--hosted-scratch",
    type=click.Path(path_type=Path),
    help="Folder with room for snapshots of these control planes on their way (default: a temporary one).",
)
@click.option("--log-level", type=click.Choice(["debug", "info", "warning"]), default="info", show_default=True)
def operator(  # noqa: PLR0917 - click gives them by name
    path: Path | None,
    context: str | None,
    metrics_address: str,
    secure_metrics_address: str,
    metrics_tenants: int,
    tunnel_address: str,
    webhook_address: str,
    webhook_service: str,
    namespace: str,
    hosted_in: Path | None,
    hosted_image: tuple[str, ...],
    hosted_storage_class: str,
    hosted_service: str,
    hosted_shards: int,
    hosted_etcd: bool,  # noqa: FBT001 - click gives it by name
    hosted_scratch: Path | None,
    log_level: str,
) -> None:
    """Run the operator until SIGTERM."""
    log_to(logging.StreamHandler(), log_level.upper())
    connection = kubeconfig.in_cluster() if path is None else kubeconfig.load([path], context)
    if connection is None:
        raise ConfigError("this is no pod with a service account; name the cluster with --kubeconfig")
    pod = os.environ.get("POD_NAME", socket.gethostname())
    # Unique, as in client-go: a restarted container must not take the Lease of its predecessor for its own.
    identity = f"{pod}_{uuid.uuid4()}"
    images = versionimages.read(hosted_image)
    if hosted_in is not None and images is not None:
        raise InputError("--hosted-in and --hosted-image exclude each other: control planes run in one place")
    placement = LocalPlacement(ClusterPaths(hosted_in)) if hosted_in is not None else None
    options = OperatorOptions(
        metrics_address=metrics_address,
        secure_metrics_address=secure_metrics_address,
        metrics_tenants=metrics_tenants,
        namespace=namespace,
        identity=identity,
        placement=placement,
        machines=LocalMachines(ClusterPaths(hosted_in)) if hosted_in is not None else None,
        shards=hosted_shards if images is not None else 1,
        kubelet_address=os.environ.get("POD_IP", "127.0.0.1"),
        tunnel_address=_place("--tunnel-address", tunnel_address) if tunnel_address else None,
        webhook=_webhook(webhook_address, webhook_service),
    )
    form = MutationForm.POLICIES if options.webhook is None else MutationForm.WEBHOOK
    shipped = partial(installed.shipment, form=form)
    _collect_seldom()
    if images is None:
        uvloop.run(operate(connection, options, shipped, installed.mutations))
    else:
        pods = PodSettings(
            image=images.default,
            others=images.others,
            storage_class=hosted_storage_class,
            service_type=hosted_service,
            has_etcd=hosted_etcd,
        )
        uvloop.run(_operate_in_pods(connection, options, shipped, pods, hosted_scratch))


def _webhook(address: str, service: str) -> WebhookPlace | None:
    """Return where the webhook is served; None if it is not.

    Raises:
        InputError: The address is none, or a Service is named without one.
    """
    if not address:
        if service:
            raise InputError("--webhook-service needs --webhook-address: add it, or leave both out")
        return None
    _place("--webhook-address", address)
    return WebhookPlace(address=address, service=service)


def _place(flag: str, text: str) -> tuple[str, int]:
    """Return the IP address and the port of a flag.

    Raises:
        InputError: The text is none.
    """
    host, _, port = text.rpartition(":")
    try:
        return str(ipaddress.ip_address(host.strip("[]"))), int(port)
    except ValueError as error:
        raise InputError(f"{flag} {text!r} must be an IP address and a port, as in 0.0.0.0:6447") from error


async def _operate_in_pods(
    connection: Connection,
    options: OperatorOptions,
    shipped: Callable[[Client], Awaitable[Shipment | None]],
    pods: PodSettings,
    scratch: Path | None,
) -> None:
    with tempfile.TemporaryDirectory(prefix="tenantry-") as folder:
        # Its waits must not take connections from the controllers.
        async with Client(connection, field_manager=marks.FIELD_MANAGER) as client:
            placement = PodPlacement(client, pods, Path(folder), scratch)
            async with in_background(placement.keep()):
                await operate(connection, replace(options, placement=placement), shipped, installed.mutations)


def _collect_seldom() -> None:
    """Run the cyclic garbage collector less often, and never over imported modules.

    The objects in the caches are untracked or acyclic, and freed by reference counts. Searching them for cycles at the
    default pace took an eighth of the operator's CPU while 512 tenants were created.
    """
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
