"""The ports of control planes in Pods at their endpoint proxy: one each, for its life, and another one for machines.

ConfigMap hosted-ports ─► uid: port, uid.nodes: port ─► the next free one, written at the resourceVersion that was read

A replica of the operator that serves other control planes takes ports at the same time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

from tenantry.api import marks
from tenantry.api.errors import AlreadyExists, Conflict, LocalError, NotFound
from tenantry.api.model import Json, Resource
from tenantry.api.virtualcontrolplane import PROCESS_NAMESPACE
from tenantry.install.planeproxy import FIRST_PORT, LAST_PORT
from tenantry.kube import wire
from tenantry.kube.client import Client

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
NAME = "hosted-ports"

_NODES = ".nodes"
_TRIES = 20
_json: msgspec.json.Decoder[Json] = msgspec.json.Decoder(Json)


def free(uid: str, taken: Iterable[int]) -> int | None:
    """Return a port for a control plane; None if all are taken.

    A port that has just become free is not the next one to be taken: old clients of it may be left.

    Args:
        uid: Of the control plane.
        taken: The ports of others.
    """
    used, many = set(taken), LAST_PORT - FIRST_PORT + 1
    first = int.from_bytes(hashlib.sha256(uid.encode()).digest()[:8]) % many
    found = (FIRST_PORT + (first + step) % many for step in range(many))
    return next((each for each in found if each not in used), None)


class ProxyPorts:
    """The ports of all control planes of one cluster.

    Args:
        client: The operator's, of the cluster.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        # By key; a port does not change.
        self._known: dict[str, int] = {}

    async def of(self, uid: str) -> int:
        """Return the port of the clients of a control plane, which takes one if it has none yet.

        Raises:
            LocalError: All are taken.
            ApiError: The ConfigMap cannot be written.
        """
        return await self._of(uid)

    async def of_nodes(self, uid: str) -> int:
        """Return the port of the machines of a control plane; see `of`."""
        return await self._of(uid + _NODES)

    async def find_of_nodes(self, uid: str) -> int:
        """Return the port of the machines of a control plane; 0 if it has taken none.

        Raises:
            ApiError: The ConfigMap cannot be read.
        """
        key = uid + _NODES
        if key not in self._known and (port := _ports(await self._find()).get(key)):
            self._known[key] = port
        return self._known.get(key, 0)

    async def _of(self, key: str) -> int:
        tries = 0
        while key not in self._known:
            found = await self._find()
            ports = _ports(found)
            port = ports.get(key) or free(key, ports.values())
            if port is None:
                raise LocalError(f"all {LAST_PORT - FIRST_PORT + 1} ports of the endpoint proxy are taken")
            try:
                if key not in ports:
                    await self._take(key, port, found)
                self._known[key] = port
            except (AlreadyExists, Conflict):
                # Another replica was first.
                tries += 1
                if tries == _TRIES:
                    raise
        return self._known[key]

    async def give_back(self, uid: str) -> None:
        """Give back the ports of a control plane that is deleted; one without needs nothing.

        Raises:
            ApiError: The ConfigMap cannot be written.
        """
        keys = (uid, uid + _NODES)
        for key in keys:
            self._known.pop(key, None)
        ports = _ports(await self._find())
        if given := [key for key in keys if key in ports]:
            await self._client.merge_patch(CONFIG_MAPS, PROCESS_NAMESPACE, NAME, {"data": dict.fromkeys(given)})

    async def _find(self) -> Json | None:
        try:
            return _json.decode(await self._client.request("GET", wire.path(CONFIG_MAPS, PROCESS_NAMESPACE, NAME)))
        except NotFound:
            return None

    async def _take(self, key: str, port: int, found: Json | None) -> None:
        data = {key: str(port)}
        if found is None:
            meta = {"name": NAME, "namespace": PROCESS_NAMESPACE, "labels": {marks.MANAGED_BY: marks.MANAGER}}
            made: Json = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}
            await self._client.request("POST", wire.path(CONFIG_MAPS, PROCESS_NAMESPACE), body=wire.encode_json(made))
            return
        patch = {"metadata": {"resourceVersion": found["metadata"]["resourceVersion"]}, "data": data}
        await self._client.merge_patch(CONFIG_MAPS, PROCESS_NAMESPACE, NAME, patch)


def _ports(found: Json | None) -> dict[str, int]:
    data: dict[str, str] = (found or {}).get("data") or {}
    ports = {key: int(port) for key, port in data.items() if port.isdecimal()}
    return {key: port for key, port in ports.items() if FIRST_PORT <= port <= LAST_PORT}
