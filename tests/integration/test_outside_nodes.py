"""Machines from outside in the cluster of a tenant: tokens, certificates, and the tunnel, with a program as machine."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from msgspec.structs import replace

from tenantry.api.dedicatedcluster import DedicatedCluster
from tenantry.api.errors import ApiError, Forbidden
from tenantry.api.node import Node
from tenantry.api.nodehandover import NodeHandover
from tenantry.api.slice import SliceClaim
from tenantry.hosting import tunnelapi
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local.cluster import LocalCluster
from testkit.api import SECRETS, Api, until
from testkit.nodecsrs import CLIENT_USAGES, csr
from testkit.outsidemachine import OutsideMachine, decided, kubelet
from testkit.planes import Planes, command

pytest_plugins = ["testkit.fixtures", "testkit.planefixtures"]

Json = dict[str, Any]
CLUSTERS = DedicatedCluster.resource
ADDRESS, PODS, ELSEWHERE = "192.168.77.5", "10.200.7.0/24", "198.51.100.9"
CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"


async def raw(inside: Api, path: str) -> bytes:
    """Return what the API server inside answers."""
    return await inside.client.request("GET", path, attempts=1)


async def test_a_machine_joins_by_a_token_and_answers_through_its_tunnel_alone(  # noqa: PLR0915 - one story
    plane_cluster: LocalCluster, planes: Planes, name: str, tmp_path: Path
) -> None:
    """H04, X03: an owner contributes it, one certificate comes of the token, and no address of it is dialled."""
    host = planes.host
    await host.make_tenant(name, owners=[{"kind": "User", "name": f"ada-{name}"}])
    code, _, err = await command(plane_cluster, "cluster", "create", name, "--nodes", "0", "--wait", "--timeout", "3m")
    assert code == 0, err
    to = ("--to", f"{name}/{name}", "--address", ADDRESS, "--pod-cidr", PODS)
    code, text, err = await command(plane_cluster, "node", "contribute", *to)
    assert code == 0, err
    assert "valid for 10 minutes, for one certificate" in err
    file = tmp_path / "bootstrap.kubeconfig"
    file.write_text(text)
    token = kubeconfig.load([file])
    node = yaml.safe_load(text)["current-context"].removeprefix("tenantry-")
    assert node.startswith("outside-")

    # Owners of other tenants write no entry; the owner does.
    entry: Json = {"spec": {"contributed": []}}
    async with Client(replace(host.client.connection, impersonate="mallory")) as client:
        with pytest.raises(Forbidden):
            await Api(client).patch(CLUSTERS, name, entry, name)
    async with Client(replace(host.client.connection, impersonate=f"ada-{name}")) as client:
        await Api(client).patch(CLUSTERS, name, {"spec": {"nodes": 0}}, name)

    # The token is worth the one certificate of this name.
    async with Client(token) as client:
        other = csr("system:node:outside-other1", "system:nodes")
        verdict, _ = await decided(Api(client), f"other-{node}", other, CLIENT, CLIENT_USAGES)
        assert verdict == "Denied", "another name"
    machine = await OutsideMachine.join(token, node, ADDRESS)
    async with Client(token) as client:
        again = csr(f"system:node:{node}", "system:nodes")
        verdict, _ = await decided(Api(client), f"again-{node}", again, CLIENT, CLIENT_USAGES)
        assert verdict == "Denied", "used twice"
    assert await machine.serving(tmp_path, ELSEWHERE) is None, "an address of another machine"

    async with (
        planes.entered(name, name) as inside,
        Client(machine.connection) as own,
        kubelet(machine, tmp_path) as port,
    ):
        kubelets = Api(own)
        await kubelets.create(Node.resource, {"metadata": {"name": node}})

        async def report(address: str) -> None:
            status: Json = {
                "addresses": [{"type": "InternalIP", "address": address}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
                "conditions": [{"type": "Ready", "status": "True"}],
            }
            await inside.client.merge_patch(Node.resource, "", node, {"status": status}, subresource="status")

        await report(ADDRESS)

        async def joined() -> bool:
            found = (await host.get(CLUSTERS, name, name))["status"].get("contributed", [])
            return [(each["name"], each["stage"]) for each in found] == [(node, "Joined")]

        await until(joined, "the status of the cluster reports the machine")
        assert not await host.list(SliceClaim.resource, name), "no claim, and so no quota, has it"
        _, told, _ = await command(plane_cluster, "cluster", "describe", name)
        assert node in told

        path = f"/api/v1/nodes/{node}/proxy/healthz"
        with pytest.raises(ApiError, match="tunnel is not open"):
            await raw(inside, path)

        async def available() -> bool:
            found: Json = msgspec.json.decode(
                await raw(inside, f"/apis/apiregistration.k8s.io/v1/apiservices/v1.{tunnelapi.GROUP}")
            )
            return any(
                (each["type"], each["status"]) == ("Available", "True")
                for each in found.get("status", {}).get("conditions", [])
            )

        await until(available, "the aggregated API is available")
        # A user inside, an administrator even, is not the node.
        stranger = OutsideMachine(node, inside.client.connection, ADDRESS)
        with pytest.raises(ApiError, match="only node"):
            async with stranger.tunnel(port):
                pass
        with pytest.raises(ApiError):
            async with machine.tunnel(port, node="outside-other1"):
                pass
        async with machine.tunnel(port) as running:

            async def answered() -> bool:
                return await raw(inside, path) == b"through"

            await until(answered, "the kubelet answers through the tunnel")
            assert set(machine.dialled) == {(ADDRESS, 10250)}
            # An address that is not of the machine is not asked for, neither here nor through the tunnel.
            await report(ELSEWHERE)

            async def refused() -> bool:
                try:
                    await raw(inside, path)
                except ApiError as error:
                    return "not an address of this cluster" in str(error)
                return False

            await until(refused, "the gate refuses the foreign address")
            assert set(machine.dialled) == {(ADDRESS, 10250)}
            with pytest.raises(ApiError):
                async with machine.tunnel(port):
                    pass

            code, _, err = await command(
                plane_cluster, "node", "take-back", node, "--from", f"{name}/{name}", "--timeout", "3m"
            )
            assert code == 0, err
            async with asyncio.timeout(60):
                await running
        assert await host.find(NodeHandover.resource, node) is None
        assert await inside.find(Node.resource, node) is None
        # Its certificate is of no more use: a Node that it makes again is deleted, and it opens no tunnel.
        with pytest.raises(ApiError):
            async with machine.tunnel(port):
                pass
        await kubelets.create(Node.resource, {"metadata": {"name": node}})
        await inside.gone(Node.resource, node)
        # The API server remembers for ten seconds whom a token stood for.
        assert await inside.find(SECRETS, f"bootstrap-token-{token.token.partition('.')[0]}", "kube-system") is None
    code, _, err = await command(plane_cluster, "cluster", "delete", name, "--yes", "--timeout", "3m")
    assert code == 0, err
