"""What `tenantry node contribute --to` and `take-back --from` do: machines from outside in the cluster of a tenant.

    contribute  ─► spec.contributed of the DedicatedCluster ─► the operator offers a token inside ─► read there, printed
    take-back   ─► the entry goes ─► the operator drains and deletes the Node inside

Both write only what owners of the tenant may write, and read the token as they can: as administrators inside.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import secrets
import string
import tempfile
from collections.abc import Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from tenantry.api import reasons
from tenantry.api.contributednode import OUTSIDE_PREFIX, ContributedNode, ContributedNodeStatus
from tenantry.api.dedicatedcluster import DedicatedCluster
from tenantry.api.errors import Conflict, InputError, RetryableError, TenantryError
from tenantry.api.model import Json, Resource
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.cli import durations, gitmanaged, kinds, output, session
from tenantry.cli.target import Target
from tenantry.hosting import versions
from tenantry.local import hostedfolders, kubeconfigs
from tenantry.local.cluster import LocalCluster
from tenantry.local.paths import ClusterPaths
from tenantry.local.real import planebridges
from tenantry.local.real.network import MAX_NODES

if TYPE_CHECKING:
    from tenantry.kube.client import Client

_SECRETS = Resource("", "v1", "secrets", "Secret")
_SYSTEM = "kube-system"
_LETTERS = string.ascii_lowercase + string.digits
_RANDOM = 6
_WRITES = 10
_TOKEN_SECONDS = 60
_REFUSALS = (reasons.INVALID_SPEC, reasons.NO_NODE_ENDPOINT)
"""The reasons for which a machine gets no token, however long it waits."""

Entries = tuple[ContributedNode, ...]


class OfferedMachine(msgspec.Struct, frozen=True, kw_only=True):
    """A machine that may join now.

    Args:
        name: The name of its node.
        address: Its first address.
        token: Its bootstrap token.
        server: The URL at which it reaches the API server.
        ca: The authorities of the API server, as PEM.
        plane: The uid of the control plane.
        version: Its minor version, as in "1.36"; "" if it reports none.
    """

    name: str
    address: str
    token: str
    server: str
    ca: str
    plane: str
    version: str


def cluster_of(given: str, flag: str) -> tuple[str, str]:
    """Return the namespace and the name of a cluster that a flag names.

    Raises:
        InputError: It names none.
    """
    namespace, slash, name = given.partition("/")
    if not slash or not namespace or not name or "/" in name:
        raise InputError(f"{flag} {given!r} must be NAMESPACE/NAME of a DedicatedCluster, as in acme/prod")
    return namespace, name


def contribute(target: Target, to: str, addresses: Sequence[str], pod_cidrs: Sequence[str], *, forced: bool) -> None:
    """Add a machine to a cluster, and print how it joins.

    Raises:
        InputError: The input is wrong, or the operator refuses the machine.
        TenantryError: The API server refuses, or no token comes in time.
    """
    namespace, name = cluster_of(to, "--to")
    if len(pod_cidrs) > 1:
        raise InputError("--pod-cidr must be given once with --to: a node has one range of pods")
    if bool(addresses) != bool(pod_cidrs) or (target.local_name is None and not addresses):
        raise InputError(
            "--to needs --address and --pod-cidr, both: the address of the machine, and the range of its pods, as in"
            " --address 192.0.2.7 --pod-cidr 10.200.1.0/24; on a local cluster with real nodes, leave both out"
        )

    # One of this machine is plugged into the network of the control plane, and gets its addresses there.
    is_here = target.local_name is not None and not addresses

    async def work(client: Client) -> OfferedMachine:
        found = await client.get(DedicatedCluster, name, namespace)
        plane = await client.get(VirtualControlPlane, name, namespace)
        places = tuple(addresses), "".join(pod_cidrs)
        if target.local_name is not None and is_here:
            places = _local_place(target.local_name, plane.metadata.uid, found.spec.contributed)
        entry = ContributedNode(name=_new_name(), addresses=places[0], pod_range=places[1])
        await _change(client, namespace, name, lambda before: (*before, entry), forced=forced)
        try:
            offered = await _offered(client, namespace, name, entry.name)
            token, ca = await _token(client, namespace, name, offered.token)
        except InputError:
            await _change(client, namespace, name, lambda before: _without(before, entry.name), forced=True)
            raise
        except (TenantryError, OSError) as error:
            raise RetryableError(
                f"no token of node {entry.name!r} can be printed: {error}; its entry stays in spec.contributed until"
                f" `tenantry node take-back {entry.name} --from {namespace}/{name}` ends it"
            ) from error
        return OfferedMachine(
            name=entry.name,
            address=entry.addresses[0],
            token=token,
            server=offered.server,
            ca=ca,
            plane=plane.metadata.uid,
            version=versions.minor(plane.status.version) if plane.status.version else "",
        )

    found = session.run(target, work)
    if is_here:
        named = f" --cluster {target.local_name}" if target.local_name != "default" else ""
        version = f" --version {found.version}" if found.version else ""
        click.echo(
            f"tenantry node join{named} --token {found.token} --node {found.name} --plane {found.plane}"
            f" --address {found.address}{version}"
        )
    else:
        click.echo(kubeconfigs.joining(found.ca, found.name, found.token, found.server).rstrip("\n"))
    output.talk(f'the token is valid for 10 minutes, for one certificate of the node "{found.name}"')


def take_back(target: Target, origin: str, node: str, seconds: int, *, forced: bool) -> None:
    """Remove a machine from a cluster, and wait until its Node inside is gone.

    Raises:
        InputError: The cluster has no such machine.
        TenantryError: The API server refuses, or the machine has not left in time.
    """
    namespace, name = cluster_of(origin, "--from")

    async def work(client: Client) -> None:
        found = await client.get(DedicatedCluster, name, namespace)
        names = {each.name for each in (*found.spec.contributed, *found.status.contributed)}
        if node not in names:
            told = ", ".join(map(repr, sorted(names))) or "none"
            raise InputError(f"{node!r} is no machine from outside of cluster {origin!r}; these are {told}")
        await _change(client, namespace, name, lambda before: _without(before, node), forced=forced)
        try:
            async with asyncio.timeout(seconds):
                await _until(client, namespace, name, lambda seen: _status_of(seen, node) is None)
        except TimeoutError as error:
            raise RetryableError(
                f'node "{node}" has not left after {durations.text(seconds)}: `tenantry cluster describe {name} -n'
                f" {namespace}` shows what it waits for; then run this again"
            ) from error

    session.run(target, work)
    output.talk(f'node "{node}" has left the cluster {origin}: no certificate of its name is renewed or signed')


def _new_name() -> str:
    return OUTSIDE_PREFIX + "".join(secrets.choice(_LETTERS) for _ in range(_RANDOM))


def _without(before: Entries, name: str) -> Entries:
    return tuple(each for each in before if each.name != name)


def _local_place(local: str, plane: str, before: Entries) -> tuple[tuple[str, ...], str]:
    """Return the address and the range of the pods of the next machine of this machine in a control plane.

    Raises:
        InputError: The control plane has no network for real nodes, or no number is free.
    """
    cluster = LocalCluster(local)
    used = {each.number for each in cluster.real().nodes}
    bridge = planebridges.find(hostedfolders.of(cluster.paths, plane))
    if bridge is None:
        raise InputError(
            "the control plane of the cluster has no network for real nodes: start the local cluster with `tenantry up"
            " --runtime real`, or name the machine with --address and --pod-cidr"
        )
    taken = {address for each in before for address in each.addresses}
    for number in range(1, MAX_NODES + 1):
        address = bridge.addresses.node(number)
        if number not in used and address not in taken:
            return (address,), bridge.addresses.pods_of(number)
    raise InputError(f"there may be at most {MAX_NODES} real nodes")


async def _change(
    client: Client, namespace: str, name: str, change: Callable[[Entries], Entries], *, forced: bool
) -> None:
    """Write the entries of a cluster.

    Raises:
        Conflict: Other clients write the object all the time.
        TenantryError: Git decides about the cluster, or the API server refuses.
    """
    for _ in range(_WRITES):
        found = await client.get(DedicatedCluster, name, namespace)
        wanted = change(found.spec.contributed)
        if wanted == found.spec.contributed:
            return
        spec: Json = {"contributed": msgspec.to_builtins(wanted)}
        patch: Json = {"metadata": {"resourceVersion": found.metadata.resource_version}, "spec": spec}
        await gitmanaged.check(client, DedicatedCluster, name, namespace, {"spec": spec}, forced=forced)
        try:
            await client.merge_patch(DedicatedCluster.resource, namespace, name, patch)
        except Conflict:
            continue
        return
    raise Conflict(
        f"{kinds.told(DedicatedCluster, name, namespace)} is not changed, because others write it all the time: try"
        " again",
        status=409,
    )


def _status_of(found: DedicatedCluster, node: str) -> ContributedNodeStatus | None:
    return next((each for each in found.status.contributed if each.name == node), None)


async def _until(
    client: Client, namespace: str, name: str, holds: Callable[[DedicatedCluster], bool]
) -> DedicatedCluster:
    from tenantry.cli.following import follow, only

    async with aclosing(follow(client, DedicatedCluster, selectors=only((name,)), namespace=namespace)) as states:
        async for found in states:
            for each in found.values():
                if each.status.observed_generation == each.metadata.generation and holds(each):
                    return each
    raise RetryableError(f"{kinds.told(DedicatedCluster, name, namespace)} is not watched any more: try again")


async def _offered(client: Client, namespace: str, name: str, node: str) -> ContributedNodeStatus:
    """Return what the status reports of a machine once it has a token.

    Raises:
        InputError: The operator refuses it.
        RetryableError: None comes in time.
    """

    def is_decided(found: DedicatedCluster) -> bool:
        seen = _status_of(found, node)
        return seen is not None and (bool(seen.token) or seen.reason in _REFUSALS)

    try:
        async with asyncio.timeout(_TOKEN_SECONDS):
            seen = _status_of(await _until(client, namespace, name, is_decided), node)
    except TimeoutError as error:
        raise RetryableError(
            f"the cluster has made no token in {_TOKEN_SECONDS} s: `tenantry cluster describe {name} -n {namespace}`"
            " shows why"
        ) from error
    if seen is None or not seen.token:
        raise InputError(seen.message if seen is not None else f"the cluster has no machine {node!r} any more")
    return seen


async def _token(client: Client, namespace: str, name: str, token_id: str) -> tuple[str, str]:
    """Return a token, read inside of the cluster, and the authorities of its API server, as PEM."""
    from tenantry.cli.vcp import read_kubeconfig
    from tenantry.kube import kubeconfig, wire
    from tenantry.kube.client import Client as KubeClient

    text = await read_kubeconfig(client, name, namespace, DedicatedCluster)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "inside.kubeconfig"
        file.touch(mode=0o600)
        file.write_text(text)
        connection = kubeconfig.load([file])
        async with KubeClient(connection) as inside:
            data = await inside.request("GET", wire.path(_SECRETS, _SYSTEM, f"bootstrap-token-{token_id}"))
    content: Json = msgspec.json.decode(data, type=Json)["data"]
    value = base64.b64decode(content["token-secret"]).decode()
    return f"{token_id}.{value}", (connection.ca or b"").decode()


def number_of(bridge: planebridges.PlaneBridge, address: str) -> int:
    """Return the number of the machine that has an address of a bridge.

    Raises:
        InputError: It is none of this bridge.
    """
    try:
        wanted = str(ipaddress.ip_address(address))
    except ValueError:
        wanted = ""
    for number in range(1, MAX_NODES + 1):
        if bridge.addresses.node(number) == wanted:
            return number
    raise InputError(f"--address {address!r} must be the one that `tenantry node contribute --to` has printed")


def bridge_of(paths: ClusterPaths, plane: str) -> planebridges.PlaneBridge:
    """Return the network of a control plane of this machine.

    Raises:
        InputError: There is none.
    """
    found = planebridges.find(hostedfolders.of(paths, plane))
    if found is None or not found.port:
        raise InputError(f"--plane {plane!r} must be what `contribute --to` prints: it has no network here")
    return found
