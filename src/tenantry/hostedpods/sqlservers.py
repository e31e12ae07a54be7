"""SQL servers elsewhere, as datastores of control planes in Pods.

    SqlServer, "HOST:PORT" ─► resolved by the operator ─► one address ─► NetworkPolicy: this Pod, this address and port
                                                                      ─► the container that forwards the socket

The Pod resolves no name, so that it needs no way to a DNS server. The operator keeps to the address that it has chosen
for as long as the name leads there. If it does not any more, the control plane has moved: it starts again.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterable

import msgspec

from tenantry.api.errors import InputError, LocalError, NotFound
from tenantry.api.model import Json, Resource
from tenantry.api.virtualcontrolplane import PROCESS_NAMESPACE
from tenantry.hostedpods import objects
from tenantry.hostedpods.objects import StoreWay
from tenantry.hosting import outside, stores
from tenantry.hosting.plane import HostedPlane
from tenantry.kube import wire
from tenantry.kube.client import Client

POLICIES = Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")

LABEL = "hosting.tenantry.dev/sql-client"
"""The label of Pods that reach the server of one control plane: its own ones, and that of the Job of a restore."""

_SECONDS = 10.0

_json: msgspec.json.Decoder[Json] = msgspec.json.Decoder(Json)


class SqlServers:
    """Leads the Pods of control planes to their SQL servers, and to nothing else.

    Args:
        client: The operator's, of the cluster.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        # By uid: the name of the server, and the address that it had.
        self._chosen: dict[str, tuple[str, str]] = {}

    async def attach(self, plane: HostedPlane) -> StoreWay:
        """Open the way of a control plane to its server.

        Raises:
            InputError: The Secret has what does not work in a Pod.
            LocalError: The server has no address, or one that is refused.
        """
        server, uid = plane.store.sql, plane.uid
        if server is None:
            raise InputError("a datastore of the kind sql must have a server")
        where = stores.remote(server.address)
        if where is None:
            raise InputError('the key address of the Secret must be "HOST:PORT" where control planes run in Pods')
        if not server.ca:
            raise InputError(
                "the Secret must have the key ca where control planes run in Pods: their image has no authorities"
            )
        host, port = where
        allowed = tuple(each.strip() for each in server.allowed.split(",") if each.strip())
        address = choose(host, await _resolved(host), await self._before(uid), allowed)
        policy = network_policy(uid, address, port)
        await self._client.apply(POLICIES, PROCESS_NAMESPACE, objects.name(uid), policy)
        self._chosen[uid] = host, address
        files = {stores.PASSWORD_FILE: server.password.encode(), f"{stores.ETCD_AUTHORITY}.crt": server.ca.encode()}
        return StoreWay(
            socket=stores.SQL_SOCKETS[server.driver],
            address=objects.at_port(address, port),
            allowed=allowed,
            labels=client_labels(uid),
            files=files,
        )

    async def detach(self, uid: str) -> None:
        """Close the way; a second time does nothing. What is in the database stays."""
        self._chosen.pop(uid, None)
        try:
            await self._client.delete(POLICIES, PROCESS_NAMESPACE, objects.name(uid))
        except NotFound:
            return

    async def has_moved(self, uid: str) -> bool:
        """Return whether the name of a server leads elsewhere now; False if it is not known."""
        host, address = self._chosen.get(uid, ("", ""))
        if not host:
            return False
        try:
            return address not in addresses(await _resolved(host))
        except LocalError:
            return False

    async def _before(self, uid: str) -> str:
        """Return the address that the NetworkPolicy opens; "" if there is none."""
        try:
            found = await self._client.request("GET", wire.path(POLICIES, PROCESS_NAMESPACE, objects.name(uid)))
        except NotFound:
            return ""
        return opened(_json.decode(found))


async def _resolved(host: str) -> list[str]:
    """Return the addresses of a name, or an address itself.

    Raises:
        LocalError: It has none.
    """
    if outside.canonical(host) is not None:
        return [host]
    try:
        async with asyncio.timeout(_SECONDS):
            found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, TimeoutError) as error:
        raise LocalError(f"the SQL server {host!r} has no address: {error or 'no answer in time'}") from error
    return [str(each[4][0]) for each in found]


def addresses(found: Iterable[str]) -> list[str]:
    """Return addresses in the one form that `choose` returns; what is no address is left out."""
    return [str(address) for text in found if (address := outside.canonical(text)) is not None]


def choose(host: str, found: Iterable[str], before: str, allowed: Iterable[str]) -> str:
    """Return the address of a server that its control plane reaches.

    Args:
        host: The name, for messages.
        found: Its addresses.
        before: The one that was chosen before; it stays if it is one of these.
        allowed: CIDRs of addresses that are refused otherwise.

    Raises:
        LocalError: All are refused: loopback, link-local, metadata and multicast addresses.
    """
    opened_by_admin = outside.networks(allowed)
    good: list[str] = []
    for text in found:
        address = outside.canonical(text)
        if address is None:
            continue
        is_named = any(address in each for each in opened_by_admin)
        if is_named or not any(form in each for form in outside.forms(address) for each in outside.NEVER):
            good.append(str(address))
    if before in good:
        return before
    if not good:
        raise LocalError(
            f"the SQL server {host!r} has only addresses that are refused: an administrator can allow them by the key"
            " allowed of the Secret"
        )
    return min(good, key=lambda each: (":" in each, ipaddress.ip_address(each).packed))


def client_labels(uid: str) -> dict[str, str]:
    """Return the labels of Pods that reach the server of a control plane."""
    return {LABEL: uid}


def network_policy(uid: str, address: str, port: int) -> Json:
    """Return the NetworkPolicy that opens one address and port to the Pods of one control plane."""
    bits = 128 if ":" in address else 32
    to = {"to": [{"ipBlock": {"cidr": f"{address}/{bits}"}}], "ports": [{"protocol": "TCP", "port": port}]}
    spec: Json = {
        "podSelector": {"matchLabels": client_labels(uid)},
        "policyTypes": ["Egress"],
        "egress": [to],
    }
    return {
        "apiVersion": POLICIES.api_version,
        "kind": POLICIES.kind,
        "metadata": objects.meta(uid, objects.name(uid)),
        "spec": spec,
    }


def opened(policy: Json) -> str:
    """Return the address that such a NetworkPolicy opens; "" if it opens none."""
    rules: list[Json] = policy.get("spec", {}).get("egress") or []
    blocks = [peer["ipBlock"]["cidr"] for rule in rules for peer in rule.get("to") or () if "ipBlock" in peer]
    return str(blocks[0]).partition("/")[0] if blocks else ""
