"""`tenantry node contribute`, `join`, `record`, `take-back` and `cleaned`: contributed nodes, and their removal."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import secrets
import string
from contextlib import aclosing, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click
import msgspec
from click.core import ParameterSource

from tenantry.api import contribution, marks
from tenantry.api.cleaning import BY_HAND
from tenantry.api.contributednode import OUTSIDE_NAME, OUTSIDE_PREFIX
from tenantry.api.contribution import Contribution
from tenantry.api.errors import InputError, NotFound, RetryableError
from tenantry.api.kubernetes import ClusterRoleBinding
from tenantry.api.model import Resource
from tenantry.api.nodeview import earlier_bindings
from tenantry.api.policyparameters import PolicyParameters
from tenantry.api.tenant import Tenant
from tenantry.cli import durations, gitmanaged, output, session
from tenantry.cli.local import outsidenode
from tenantry.cli.local.name import name_option
from tenantry.cli.target import Target, takes_target
from tenantry.hosting import versions
from tenantry.local import outsidemachines
from tenantry.local.cluster import LocalCluster
from tenantry.local.real import fleet
from tenantry.local.spec import RealNode, RealNodes
from tenantry.world.quota import node_key
from tenantry.world.shares.amounts import thousandths

if TYPE_CHECKING:
    from tenantry.kube.client import Client

_ALPHABET = string.ascii_lowercase + string.digits
_LONGEST_SECONDS = 86_400
_SECRETS = Resource("", "v1", "secrets", "Secret")
_NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
_SYSTEM = "kube-system"


_capacity_option = click.option(
    "--capacity",
    default="",
    metavar="KEY=AMOUNT,...",
    help="Agreed capacity, as in cpu=4,memory=8Gi: it is added to the tenant's quota inside a claim of the node, and"
    " the claim is not charged. Default: the claim is charged with what the node reports.",
)


@click.command()
@takes_target
@click.option("--tenant", default="", help="Tenant that gets the node first.")
@click.option("--owner", default="", help="Owner of the node, for the label tenantry.dev/owner.")
@click.option("--location", default="", help="Location of the node, for the label tenantry.dev/location.")
@click.option("--device", default="", help="Type of the device, for the label tenantry.dev/device.")
@click.option(
    "--address",
    "addresses",
    multiple=True,
    help="IP address of the node, repeatable. `tenantry node join` records those of local nodes.",
)
@click.option(
    "--pod-cidr",
    "pod_cidrs",
    multiple=True,
    help="Range of the node's pods, repeatable. Omit it if Kubernetes assigns ranges.",
)
@_capacity_option
@click.option(
    "--valid",
    default="1h",
    show_default=True,
    type=durations.DURATION,
    help="Lifetime of the token, at most 24h; with --to, it is 10 minutes.",
)
@click.option(
    "--to",
    default="",
    metavar="NAMESPACE/NAME",
    help="DedicatedCluster that the node serves, as in acme/prod (default: the cluster itself).",
)
@gitmanaged.force_option
@click.pass_context
def contribute(
    context: click.Context,
    target: Target,
    *,
    tenant: str,
    owner: str,
    location: str,
    device: str,
    addresses: tuple[str, ...],
    pod_cidrs: tuple[str, ...],
    capacity: str,
    valid: int,
    to: str,
    forced: bool,
) -> None:
    """Print the command by which one node joins the cluster, with a short-lived token.

    With --to, owners of a tenant contribute a machine to a cluster of their own. With --address and --pod-cidr, a
    kubeconfig is printed instead, for `kubelet --bootstrap-kubeconfig`.
    """
    if to:
        _check_alone(context)
        outsidenode.contribute(target, to, addresses, pod_cidrs, forced=forced)
        return
    if not 0 < valid <= _LONGEST_SECONDS:
        raise InputError(f"--valid {durations.text(valid)} must be from 1s to 24h")
    agreed = _checked(tenant=tenant, owner=owner, location=location, device=device)
    if capacity and not tenant:
        raise InputError("--capacity adds to the quota of a tenant: give --tenant, too")
    given = {"addresses": _addresses(addresses), "pod_cidrs": _ranges(pod_cidrs), "capacity": _capacity(capacity)}
    agreed = msgspec.structs.replace(agreed, **given)
    if target.local_name is not None:
        LocalCluster(target.local_name).real()  # a node could not reach the API server of simulated ones
    token_id, secret = (("".join(secrets.choice(_ALPHABET) for _ in range(size))) for size in (6, 16))
    ends = datetime.now(UTC) + timedelta(seconds=valid)
    session.run(target, lambda client: _offer(client, agreed, token_id, secret, ends))
    named = f" --cluster {target.local_name}" if target.local_name not in {None, "default"} else ""
    click.echo(f"tenantry node join{named} --token {token_id}.{secret}")
    node = contribution.node_of(token_id)
    output.talk(f'the token is valid for {durations.text(valid)} and for the one node "{node}"')


def _check_alone(context: click.Context) -> None:
    """Check that --to has no options that are about nodes of the cluster itself.

    Raises:
        InputError: It has one.
    """
    for key in ("tenant", "owner", "location", "device", "capacity", "valid"):
        if context.get_parameter_source(key) is ParameterSource.COMMANDLINE:
            raise InputError(f"--{key} must not be given with --to: it is about nodes of the host")


def _checked(**values: str) -> Contribution:
    for key, value in values.items():
        try:
            contribution.read({key: value})
        except msgspec.ValidationError as error:
            raise InputError(
                f"--{key} {value!r} must be at most 63 letters, digits, -, _ and ., and begin and end with a letter or"
                " a digit, as labels are"
            ) from error
    return contribution.read(values)


def _addresses(given: tuple[str, ...]) -> str:
    for each in given:
        try:
            ipaddress.ip_address(each)
        except ValueError as error:
            raise InputError(f"--address {each!r} must be an IP address, as in 192.0.2.7 or 2001:db8::7") from error
    return ",".join(given)


def _ranges(given: tuple[str, ...]) -> str:
    for each in given:
        try:
            ipaddress.ip_network(each)
        except ValueError as error:
            raise InputError(f"--pod-cidr {each!r} must be a range without host bits, as in 10.1.2.0/24") from error
        if "/" not in each:
            raise InputError(f"--pod-cidr {each!r} must have the length of its prefix, as in 10.1.2.0/24")
    return ",".join(given)


def _capacity(given: str) -> str:
    """Return an agreed capacity as records have it; see `Contribution.capacity`.

    Raises:
        InputError: A part is no amount, names a resource that quotas do not count, or repeats one.
    """
    found: dict[str, str] = {}
    for each in (part for part in given.split(",") if part):
        key, _, amount = each.partition("=")
        shape = f"--capacity {each!r} must be KEY=AMOUNT with a positive quantity, as in cpu=4 or memory=8Gi"
        try:
            is_amount = thousandths(amount) > 0
            contribution.read({"capacity": f"{key}:{amount}"})
        except (InputError, msgspec.ValidationError) as error:
            raise InputError(shape) from error
        if not is_amount or not key:
            raise InputError(shape)
        if not node_key(key):
            raise InputError(f"--capacity {each!r}: a tenant's quota counts no {key!r} of nodes; name cpu or memory")
        if key in found:
            raise InputError(f"--capacity has {key!r} twice: {found[key]} and {amount}; give one amount")
        found[key] = amount
    return ",".join(f"{key}:{amount}" for key, amount in found.items())


async def _offer(client: Client, agreed: Contribution, token_id: str, secret: str, ends: datetime) -> None:
    if agreed.tenant:
        try:
            await client.get(Tenant, agreed.tenant)
        except NotFound as error:
            raise InputError(f"--tenant {agreed.tenant!r}: there is no such tenant") from error
    node = contribution.node_of(token_id)
    # The record comes first: the operator approves certificates of recorded names only.
    await _write(client, node, agreed)
    name = f"bootstrap-token-{token_id}"
    data = {
        "token-id": token_id,
        "token-secret": secret,
        "expiration": ends.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "usage-bootstrap-authentication": "true",
        "auth-extra-groups": contribution.BOOTSTRAPPERS,
        "description": f"for the node {node}, by `tenantry node contribute`",
    }
    token = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name},
        "type": "bootstrap.kubernetes.io/token",
        "stringData": data,
    }
    await client.apply(_SECRETS, _SYSTEM, name, token)


async def _write(client: Client, node: str, agreed: Contribution | None, version: str = "") -> None:
    """Write the record of a node into the register; None removes it. See `contribution.change`."""
    body = contribution.change(node, agreed, version)
    try:
        await client.merge_patch(PolicyParameters.resource, marks.SYSTEM_NAMESPACE, contribution.REGISTER, body)
    except NotFound as error:
        raise InputError(
            f"the cluster has no register of contributed nodes ({contribution.REGISTER!r} in"
            f" {marks.SYSTEM_NAMESPACE!r}); run `tenantry install`"
        ) from error


@click.command()
@name_option
@click.option("--token", required=True, envvar="TENANTRY_JOIN_TOKEN", help="Token of `tenantry node contribute`.")
@click.option("--node", default="", help="Name of the node in the cluster of a tenant, as `contribute --to` prints it.")
@click.option("--plane", default="", help="Uid of the control plane of that cluster, as `contribute --to` prints it.")
@click.option("--address", default="", help="Address of the node there, as `contribute --to` prints it.")
@click.option("--version", default="", help="Version of that control plane, as `contribute --to` prints it.")
@durations.patience_option
def join(*, name: str, token: str, node: str, plane: str, address: str, version: str, timeout: int) -> None:
    """Run a real node on this machine that joins a cluster with nothing but a token. Prints its name."""
    found = re.fullmatch(contribution.TOKEN, token)
    if found is None:
        raise InputError("--token must be what `tenantry node contribute` prints, as in abcdef.0123456789abcdef")
    if node or plane or address or version:
        _join_plane(name, token, node=node, plane=plane, address=address, version=version, timeout=timeout)
        return
    node = contribution.node_of(found[1])

    def change(real: RealNodes) -> RealNodes:
        if any(each.name == node for each in real.nodes):
            raise InputError(f'the node "{node}" is there: a token is valid for one node')
        new = msgspec.structs.replace(fleet.new(real.nodes), name=node, token=token)
        return msgspec.structs.replace(real, nodes=(*real.nodes, new))

    asyncio.run(LocalCluster(name).change_nodes(change, timeout))
    click.echo(node)


def _join_plane(name: str, token: str, *, node: str, plane: str, address: str, version: str, timeout: int) -> None:
    if not (node and plane and address):
        raise InputError("--node, --plane and --address must be given together, as `contribute --to` prints them")
    if re.fullmatch(OUTSIDE_NAME, node) is None:
        raise InputError(f"--node {node!r} must be the name that `tenantry node contribute --to` has printed")
    if version and versions.minor(version) != version:
        raise InputError(f"--version {version!r} must be a minor version, as in 1.36")
    cluster = LocalCluster(name)
    bridge = outsidenode.bridge_of(cluster.paths, plane)
    machine = RealNode(name=node, number=outsidenode.number_of(bridge, address), token=token)
    asyncio.run(outsidemachines.join(cluster, machine, plane, bridge, version=version, seconds=timeout))
    click.echo(node)


@click.command()
@takes_target
@click.argument("node", metavar="NODE")
@click.option("--address", "addresses", multiple=True, help="IP address of the node, repeatable.")
@click.option("--pod-cidr", "pod_cidrs", multiple=True, help="Range of the node's pods, repeatable.")
@_capacity_option
def record(target: Target, *, node: str, addresses: tuple[str, ...], pod_cidrs: tuple[str, ...], capacity: str) -> None:
    """Record the addresses of a contributed node, the ranges of its pods, or its agreed capacity."""
    given = {"addresses": _addresses(addresses), "pod_cidrs": _ranges(pod_cidrs), "capacity": _capacity(capacity)}
    changes = {key: value for key, value in given.items() if value}
    if not changes:
        raise InputError("--address, --pod-cidr or --capacity must be given, as in --address 192.0.2.7")
    session.run(target, lambda client: _record(client, node, changes))
    output.talk(f'recorded for node "{node}": {", ".join(sorted(changes))}')


async def _record(client: Client, node: str, changes: dict[str, str]) -> None:
    register = await client.get(PolicyParameters, contribution.REGISTER, marks.SYSTEM_NAMESPACE)
    agreed = contribution.recorded(register, node)
    if agreed is None or agreed.ended:
        raise InputError(
            f"node {node!r} has no current record in {contribution.REGISTER!r}; `tenantry node contribute` makes one"
            " for a new node"
        )
    await _write(client, node, msgspec.structs.replace(agreed, **changes), register.metadata.resource_version)


@click.command("take-back")
@takes_target
@click.argument("node", metavar="NODE")
@durations.timeout_option("5m", "Deadline for the eviction of its pods, as in 30s or 5m.")
@click.option(
    "--from",
    "origin",
    default="",
    metavar="NAMESPACE/NAME",
    help="DedicatedCluster that the node serves, as in acme/prod (default: the cluster itself).",
)
@gitmanaged.force_option
def take_back(target: Target, *, node: str, timeout: int, origin: str, forced: bool) -> None:
    """Evict all pods from a contributed node, and wait until the cluster has removed it."""
    if origin:
        outsidenode.take_back(target, origin, node, timeout, forced=forced)
        return
    if node.startswith(OUTSIDE_PREFIX):
        raise InputError(f'"{node}" serves the cluster of a tenant: name it with --from, as in --from acme/prod')
    if not contribution.is_contributed(node):
        raise InputError(
            f'"{node}" was not contributed: only nodes that `tenantry node contribute` let in are taken back'
        )
    session.run(target, lambda client: _take_back(client, node, timeout))
    output.talk(f'node "{node}" is taken back')


async def _take_back(client: Client, node: str, timeout_seconds: int) -> None:
    token = f"bootstrap-token-{node.removeprefix(contribution.PREFIX)}"
    with suppress(NotFound):
        await client.delete(_SECRETS, _SYSTEM, token)
    with suppress(NotFound):
        # The operator would move the record of an earlier version into the register, and so renew it.
        earlier = contribution.earlier_record_of(node)
        await client.delete(contribution.EarlierRecord.resource, marks.SYSTEM_NAMESPACE, earlier)
    register = await client.get(PolicyParameters, contribution.REGISTER, marks.SYSTEM_NAMESPACE)
    agreed = contribution.recorded(register, node)
    if agreed is not None:
        # First, so that the node gets no certificate and does not register again once the cluster forgets it.
        await _write(client, node, msgspec.structs.replace(agreed, ended=True))
    patch = {"metadata": {"annotations": {marks.TAKEN_BACK: datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}}}
    try:
        async with asyncio.timeout(timeout_seconds):
            with suppress(NotFound):
                await client.merge_patch(_NODES, "", node, patch)
                await _until_gone(client, node)
    except TimeoutError as error:
        raise RetryableError(
            f'node "{node}" is still there after {durations.text(timeout_seconds)}: `tenantry node list` shows whose it'
            " is, and its condition TenantryClean what is left on it; then run this again"
        ) from error
    # Last: the programs of the node need the view until the node is gone. The operator deletes it with the record.
    for name in earlier_bindings(node):
        with suppress(NotFound):
            await client.delete(ClusterRoleBinding.resource, "", name)
    await _write(client, node, None)


async def _until_gone(client: Client, node: str) -> None:
    from tenantry.api.node import Node
    from tenantry.cli.following import follow, only

    async with aclosing(follow(client, Node, selectors=only((node,)))) as states:
        async for found in states:
            if not found:
                return


@click.command()
@takes_target
@click.argument("node", metavar="NODE")
def cleaned(target: Target, *, node: str) -> None:
    """Confirm that a node without an agent is clean, so that it returns to the shared pool."""
    patch = {"metadata": {"annotations": {marks.CLEANED: BY_HAND}}}
    session.run(target, lambda client: client.merge_patch(_NODES, "", node, patch))
    output.talk(f'node "{node}" is said to be clean')
