"""SQL servers elsewhere, as datastores of control planes in Pods.

    SqlServer, "HOST:PORT" ─► resolved by the operator ─► one address ─► NetworkPolicy: this Pod, this address and port
                                                                      ─► the container that forwards the socket

The Pod resolves no name, so that it needs no way to a DNS server. The operator keeps to the address that it has chosen
for as long as the name leads there. If it does not any more, the control plane has moved: it starts again.

A DNS server may answer with one of several addresses at a time. One answer without the chosen address proves nothing:
the name has moved when all answers of a minute lack it, and of ten minutes if the address has come back before.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from tenantry.api.errors import InputError, LocalError, NotFound
from tenantry.api.model import Json, Resource
from tenantry.api.virtualcontrolplane import PROCESS_NAMESPACE
from tenantry.hostedpods import objects
from tenantry.hostedpods.storeway import StoreWay
from tenantry.hosting import outside, stores
from tenantry.hosting.plane import HostedPlane
from tenantry.kube import wire
from tenantry.kube.client import Client

POLICIES = Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")

LABEL = "hosting.tenantry.dev/sql-client"
"""The label of Pods that reach the server of one control plane: its own ones, and that of the Job of a restore."""

_SECONDS = 10.0
LOOK_SECONDS = 15.0
"""The time between two questions to DNS about one server."""

MOVED_SECONDS, ALTERNATING_SECONDS = 60.0, 600.0
"""How long answers must lack the chosen address: usually, and if it has been lacking and has come back."""

_json: msgspec.json.Decoder[Json] = msgspec.json.Decoder(Json)


class ChosenAddress(msgspec.Struct, frozen=True, kw_only=True):
    """The address of a server that its control plane reaches, and what DNS has answered since: pure.

    Args:
        host: The name of the server.
        address: The address.
        looked: When DNS was asked last, in seconds of a clock that only goes on.
        absent_since: Since when no answer has had the address; None if the last one had it.
        alternates: Whether an answer has had it after one without it.
    """

    host: str
    address: str
    looked: float
    absent_since: float | None = None
    alternates: bool = False

    def seen(self, answer: Iterable[str], now: float) -> ChosenAddress:
        """Return the same with one more answer of DNS."""
        if self.address in answer:
            alternates = self.alternates or self.absent_since is not None
            return replace(self, looked=now, absent_since=None, alternates=alternates)
        return replace(self, looked=now, absent_since=now if self.absent_since is None else self.absent_since)

    @property
    def has_moved(self) -> bool:
        """Whether the name leads elsewhere."""
        needed = ALTERNATING_SECONDS if self.alternates else MOVED_SECONDS
        return self.absent_since is not None and self.looked - self.absent_since >= needed

    def is_kept(self, now: float) -> bool:
        """Return whether one answer without the address is no reason to choose another one."""
        since = self.looked if self.absent_since is None else self.absent_since
        return self.alternates and now - since < ALTERNATING_SECONDS


class SqlServers:
    """Leads the Pods of control planes to their SQL servers, and to nothing else.

    Args:
        client: The operator's, of the cluster.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        # By uid.
        self._chosen: dict[str, ChosenAddress] = {}

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
        known, now = self._chosen.get(uid), asyncio.get_running_loop().time()
        found = await _resolved(host)
        answer = addresses(found)
        if known is not None and known.host == host and known.is_kept(now):
            found = [*found, known.address]
        address = choose(host, found, await self._before(uid), allowed)
        policy = network_policy(uid, address, port)
        await self._client.apply(POLICIES, PROCESS_NAMESPACE, objects.name(uid), policy)
        if known is not None and (known.host, known.address) == (host, address):
            self._chosen[uid] = known.seen(answer, now)
        else:
            alternates = known is not None and known.host == host and known.alternates
            self._chosen[uid] = ChosenAddress(host=host, address=address, looked=now, alternates=alternates)
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
        """Return whether the name of a server leads elsewhere for some time now; False if it is not known."""
        known, now = self._chosen.get(uid), asyncio.get_running_loop().time()
        if known is None or now - known.looked < LOOK_SECONDS:
            return known is not None and known.has_moved
        try:
            answer = addresses(await _resolved(known.host))
        except LocalError:
            return False
        if self._chosen.get(uid) is known:  # it may have been chosen anew meanwhile
            self._chosen[uid] = known = known.seen(answer, now)
        return known.has_moved

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
