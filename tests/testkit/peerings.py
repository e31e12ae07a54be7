"""Two local clusters, of which one runs pods of the other."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from tenantry.api.model import Json
from tenantry.api.offloading import OFFLOADING, MapPhase, NamespaceMap, NamespaceOffloading
from tenantry.api.peercluster import (
    HOME_NAMESPACE,
    HOME_TENANT,
    PEER,
    PEERS_NAMESPACE,
    VIRTUAL,
    PeerCluster,
    tenant_name,
)
from tenantry.api.peertunnel import Dial
from tenantry.api.reasons import READY
from tenantry.api.subnamespace import Mode, Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.engine import request
from tenantry.engine.writer import Writer
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.kube.kubeconfig import Connection
from tenantry.local.cluster import LocalCluster
from testkit.api import PODS, SECONDS, SERVICE_ACCOUNTS, Api, until
from testkit.tcplink import TcpLink

HOME, BERLIN = "home", "berlin"
UNREACHABLE = "https://127.0.0.1:9"
"""The address of a peer as its home has it: no server listens there. The name is in the certificate of the peer."""

PATIENCE = f"--timeout={4 * SECONDS:.0f}s"
"""A busy machine needs more for a step than a reader wants to wait."""

QUOTA = {"cpu": "40", "memory": "80Gi", "pods": "200"}


class Peering:
    """Both clusters, and the command.

    Args:
        folder: TENANTRY_HOME of both.
        home_name: The cluster whose tenants run pods on the other one.
        peer_name: The cluster that runs them.
    """

    def __init__(self, folder: Path, home_name: str, peer_name: str) -> None:
        self.folder = folder
        self.home_name = home_name
        self.peer_name = peer_name
        self.apis: dict[str, Api] = {}

    @property
    def home(self) -> Api:
        """Return an administrator of the home."""
        return self.apis[self.home_name]

    @property
    def peer(self) -> Api:
        """Return an administrator of the peer."""
        return self.apis[self.peer_name]

    @property
    def tenant(self) -> str:
        """Return the Tenant of the home at the peer, and its core namespace."""
        return tenant_name(self.home_name)

    def cluster(self, name: str) -> LocalCluster:
        """Return one of the clusters."""
        return LocalCluster(name, root=self.folder)

    async def connect(self, dial: Dial = Dial.HOME) -> None:
        """Connect the clusters; one of them connects to the other one."""
        quota = ",".join(f"{key}={value}" for key, value in QUOTA.items())
        await self.run("peer", "create", self.home_name, self.peer_name, "--quota", quota, "--dial", dial, PATIENCE)

    async def end(self, *, at_peer: bool = False) -> None:
        """Delete the peering's object at home, or the one at the peer."""
        other, cluster = (self.home_name, self.peer_name) if at_peer else (self.peer_name, self.home_name)
        await self.run("peer", "delete", other, "--cluster", cluster, "--yes", PATIENCE)

    async def run(self, *arguments: str, checked: bool = True) -> str:
        """Run the command in a process of its own; return its output."""
        done = await self.call(*arguments)
        assert not checked or done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    async def call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the command in a process of its own; return how it ended."""
        hidden = {"KUBECONFIG", "TENANTRY_NAME"}
        variables = {key: value for key, value in os.environ.items() if key not in hidden}
        variables["TENANTRY_HOME"] = str(self.folder)

        def call() -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [sys.executable, "-m", "tenantry", *arguments],
                env=variables,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=6 * SECONDS,
                check=False,
            )

        return await asyncio.to_thread(call)

    async def offload(self, name: str, **hard: str) -> str:
        """Make a tenant whose namespace exists at the peer, too; return the namespace there."""
        await self.home.create(Tenant.resource, federated(name, self.peer_name))
        await self.home.ready(name)
        await self.home.create(NamespaceOffloading.resource, offloading(name, self.peer_name, **hard), name)
        return await self.accepted(name)

    async def accepted(self, namespace: str) -> str:
        """Wait until a namespace exists at the peer; return its name there."""

        async def so() -> str | None:
            found = await self.home.find(NamespaceMap.resource, self.peer_name)
            status: Json = (found or {}).get("status") or {}
            current: Json = status.get("current") or {}
            entry: Json = current.get(namespace) or {}
            return entry.get("peerNamespace") if entry.get("phase") == MapPhase.ACCEPTED else None

        return await until(so, f"namespace {namespace!r} is accepted by the peer")

    async def mapped(self, namespace: str) -> Json:
        """Return the Subnamespace at the peer of a namespace of the home."""
        return await self._noted(HOME_NAMESPACE, namespace)

    async def workspace(self, tenant: str) -> Json:
        """Return the Workspace at the peer of a tenant of the home."""
        return await self._noted(HOME_TENANT, tenant)

    async def _noted(self, note: str, value: str) -> Json:
        found = [
            each
            for each in await self.peer.list(Subnamespace.resource)
            if each["metadata"].get("annotations", {}).get(note) == value
        ]
        assert len(found) == 1, (note, value, [each["metadata"] for each in found])
        return found[0]

    async def team(self, tenant: str, name: str, **more: str) -> str:
        """Make a Workspace of a tenant at home, with more fields; return its namespace."""
        spec = {"mode": Mode.WORKSPACE.value, "owners": [{"kind": "User", "name": "ada"}], **more}
        await self.home.create(Subnamespace.resource, {"metadata": {"name": name}, "spec": spec}, tenant)

        async def so() -> str | None:
            status: Json = (await self.home.get(Subnamespace.resource, name, tenant)).get("status") or {}
            return status.get("namespace")

        return await until(so, f"Subnamespace {name!r} of tenant {tenant!r} has its namespace")

    async def pod(self, name: str, namespace: str, phase: str = "Running") -> Json:
        """Wait until a pod at home has a phase; return it."""
        seen: Json = {}

        async def so() -> Json | None:
            found = await self.home.find(PODS, name, namespace)
            seen["status"] = (found or {}).get("status")
            return found if found is not None and found["status"].get("phase") == phase else None

        return await until(so, f"pod {name!r} of the home is {phase}", seen=lambda: seen)


def federated(name: str, *peers: str) -> Json:
    """Return a Tenant that may use peers."""
    spec = {"owners": [{"kind": "User", "name": "ada"}], "isolation": {"federation": {"peers": list(peers)}}}
    return {"metadata": {"name": name}, "spec": spec}


def offloading(namespace: str, *peers: str, **hard: str) -> Json:
    """Return a NamespaceOffloading with a share of the quota."""
    share = hard or {"cpu": "1", "memory": "1Gi", "pods": "5"}
    return {
        "metadata": {"name": OFFLOADING, "namespace": namespace},
        "spec": {"clusterSelector": selecting(*peers), "quota": {"hard": share}},
    }


def selecting(*peers: str) -> Json:
    """Return a selector of peers by their names."""
    expression = {"key": PEER, "operator": "In", "values": list(peers)}
    return {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}


def placed(namespace: str, name: str, **more: Any) -> Json:  # noqa: ANN401 - fields of a spec
    """Return a pod that runs at a peer."""
    container: Json = {
        "name": "web",
        "image": "registry.example.com/web",
        "resources": {"requests": {"cpu": "100m", "memory": "32Mi"}, "limits": {"cpu": "100m", "memory": "64Mi"}},
        **more.pop("container", {}),
    }
    spec: Json = {
        "nodeSelector": {VIRTUAL: "true"},
        "containers": [container],
        **more,
    }
    return {"metadata": {"name": name, "namespace": namespace, "labels": {"app": name}}, "spec": spec}


async def token_of(peer: Api, account: str, seconds: int) -> str:
    """Return a token of one of the accounts of a home at a peer, as an administrator gets it."""
    asked = request.token(SERVICE_ACCOUNTS, PEERS_NAMESPACE, account, seconds=seconds)
    answer: Json = msgspec.json.decode(await Writer(peer.client).send(asked))
    return answer["status"]["token"]


def connection(cluster: LocalCluster, token: str) -> Connection:
    """Return the API server of a cluster with a token."""
    found = kubeconfig.load([cluster.kubeconfig_path])
    return Connection(server=found.server, source="the guest", ca=found.ca, token=token)


@asynccontextmanager
async def peering(folder: Path, prefix: str, *peer_flags: str) -> AsyncGenerator[Peering]:
    """Start both clusters with their operators, and connect them as a user does.

    Args:
        folder: TENANTRY_HOME.
        prefix: Of the names of the clusters.
        peer_flags: Of `tenantry up` for the peer.
    """
    home, peer = f"{prefix}-{HOME}", f"{prefix}-{BERLIN}"
    found = Peering(folder, home, peer)
    try:
        for name, flags in ((home, ("--nodes", "1")), (peer, peer_flags)):
            await found.run("up", "--cluster", name, "--throwaway", PATIENCE, *flags)
        async with AsyncExitStack() as stack:
            for name in (home, peer):
                path = LocalCluster(name, root=folder).kubeconfig_path
                client = await stack.enter_async_context(Client(kubeconfig.load([path])))
                found.apis[name] = Api(client)
            yield found
    finally:
        for name in (home, peer):
            await found.run("down", "--cluster", name, "--purge", "--yes", checked=False)


@asynccontextmanager
async def linked(found: Peering) -> AsyncGenerator[TcpLink]:
    """Connect the clusters by a link that can be cut, and wait until the Node is ready again."""
    await found.connect()
    half: Json = (await found.home.get(PeerCluster.resource, found.peer_name))["spec"]["host"]
    server: str = half["server"]
    host, _, port = server.removeprefix("https://").rpartition(":")
    async with TcpLink(host, int(port)).running() as link:
        server = f"https://127.0.0.1:{link.port}"
        await found.home.patch(PeerCluster.resource, found.peer_name, {"spec": {"host": {"server": server}}})

        async def is_there() -> bool:
            status: Json = (await found.home.get(PeerCluster.resource, found.peer_name)).get("status") or {}
            conditions = {each["type"]: each["status"] for each in status.get("conditions", ())}
            return conditions.get(READY) == "True" and link.is_used

        await until(is_there, "the peer is reached by the link")
        yield link
