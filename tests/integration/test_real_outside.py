"""A real machine from outside, without a route, in the cluster of a tenant; see test_real_nodes.py for where."""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import shlex
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from cryptography import x509

from tenantry.api.node import Node
from tenantry.api.slice import SliceClaim
from tenantry.hosting.selfsigned import self_signed
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local.real import network
from testkit import realhosts
from testkit.api import SECRETS, Api, until
from testkit.kubectl import Kubectl
from testkit.planes import command
from testkit.realpods import CAREFUL, RealPods, connects, missing
from testkit.webhooks import SERVICES, WEBHOOKS, configured, told

pytest_plugins = ["testkit.fixtures"]
pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

Json = dict[str, Any]
CLUSTER = "realoutside"
HOOK_PORT = 8443


@pytest_asyncio.fixture(scope="module")
async def host(tenantry_home: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[RealPods]:
    """A cluster with one real node and the operator."""
    async with realhosts.hosting(CLUSTER, tenantry_home, tmp_path_factory.mktemp("images"), nodes=1) as found:
        yield found


@contextmanager
def without_route(*ranges: str) -> Generator[None]:
    """Drop what this machine itself sends to some addresses, except answers."""
    name = "tenantry-test-outside"
    listed = ", ".join(ranges)
    rules = f"""
table ip {name} {{
    chain out {{
        type filter hook output priority filter; policy accept;
        ip daddr {{ {listed} }} ct state new drop
    }}
}}
"""
    network.load(rules)
    try:
        yield
    finally:
        network.load(f"delete table ip {name}\n")


async def _tenantry(host: RealPods, *arguments: str) -> str:
    code, out, err = await command(host.cluster, *arguments)
    assert not code, f"{arguments}: {err}"
    return out


async def _hook(inside: RealPods, place: str) -> None:
    """Run a webhook in a pod that denies everything, and configure it by its Service."""
    now, life = dt.datetime.now(dt.UTC), dt.timedelta(days=1)
    certificate, key = self_signed("hook", [x509.DNSName("hook.default.svc")], now=now, life=life)
    data = {"tls.crt": base64.b64encode(certificate).decode(), "tls.key": base64.b64encode(key).decode()}
    await inside.api.create(SECRETS, {"metadata": {"name": "hook"}, "data": data}, "default")
    port = {"port": 443, "targetPort": HOOK_PORT}
    service: Json = {"metadata": {"name": "hook"}, "spec": {"selector": {"app": "hook"}, "ports": [port]}}
    await inside.api.create(SERVICES, service, "default")
    files = ("--tls-cert-file=/cert/tls.crt", "--tls-private-key-file=/cert/tls.key")
    container: Json = {
        "args": ["webhook", f"--port={HOOK_PORT}", *files],
        "securityContext": CAREFUL,
        "readinessProbe": {"tcpSocket": {"port": HOOK_PORT}, "periodSeconds": 1},
        "volumeMounts": [{"name": "cert", "mountPath": "/cert"}],
    }
    volumes = [{"name": "cert", "secret": {"secretName": "hook"}}]
    await inside.make("default", "hook", place, "runc", container=container, spec={"volumes": volumes})
    client: Json = {
        "service": {"namespace": "default", "name": "hook", "path": "/always-deny"},
        "caBundle": data["tls.crt"],
    }
    await inside.api.create(WEBHOOKS, configured("hook", client))


async def test_a_machine_without_a_route_answers_logs_exec_and_webhooks(host: RealPods, tmp_path: Path) -> None:
    """H04, X03: the machine reaches the endpoint for nodes, and nothing of the host reaches the machine."""
    await _tenantry(host, "cluster", "create", "acme", "--nodes", "0", "--wait", "--timeout", "240s")
    said = shlex.split(await _tenantry(host, "node", "contribute", "--to", "acme/acme"))
    assert said[:3] == ["tenantry", "node", "join"]
    node, address = said[said.index("--node") + 1], said[said.index("--address") + 1]
    pods = f"{'.'.join(address.split('.')[:2])}.{int(address.rsplit('.', 1)[1]) - 10}.0/24"
    # The command names the cluster, as `command` does.
    await _tenantry(host, *(each for each in said[1:] if each not in {"--cluster", CLUSTER}), "--timeout", "240s")
    file = tmp_path / "acme.kubeconfig"
    file.write_text(await _tenantry(host, "cluster", "kubeconfig", "acme"))
    with without_route(address, pods):
        assert not await asyncio.to_thread(connects, address, 10250)
        async with Client(kubeconfig.load([file])) as client:
            inside = RealPods(host.cluster, Api(client))
            users = Kubectl(file)
            spot = await inside.make("default", "web", node, "runc")
            assert spot.node == node

            async def logged() -> bool:
                return "HTTP server" in (await users.run("logs", "web")).stdout

            await until(logged, "the API server reads logs through the tunnel", seconds=60)
            done = await users.run("exec", "web", "--", "/agnhost", "connect", "--timeout=5s", "127.0.0.1:8080")
            assert not done.returncode, done.stderr
            await _hook(inside, node)
            assert "denies all requests" in await told(inside.api, "hook")
            await inside.api.delete(WEBHOOKS, "hook")
            assert not await host.api.list(SliceClaim.resource, "acme")
            await _tenantry(host, "node", "take-back", node, "--from", "acme/acme", "--timeout", "240s")
            assert await inside.api.find(Node.resource, node) is None
    await _tenantry(host, "node", "delete", node)
    assert not [*(host.cluster.paths.folder / "machines").glob("*.json")]
    assert node not in host.cluster.spec().real_names
