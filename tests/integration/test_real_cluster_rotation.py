"""The credentials of a cluster with real nodes are replaced in phases (H04).

`make test-release` runs it; `make test` skips it (TENANTRY_TEST_REAL=0), as test_real_nodes.py.
"""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import shutil
import tempfile
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tenantry.api.dedicatedcluster import DedicatedCluster
from tenantry.api.errors import ApiError, Unauthorized
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.hosting.certificates import CertificateUse, LeafCertificate
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local import x509
from tenantry.local.real import memberships
from testkit import realhosts
from testkit.api import CONFIG_MAPS, PODS, SECRETS, Api, until
from testkit.kubectl import Kubectl
from testkit.load import Load
from testkit.planes import command
from testkit.realpods import PORT, RealPods, missing
from testkit.traces import traces
from testkit.webhooks import SERVICES, WEBHOOKS, configured

pytest_plugins = ["testkit.fixtures"]
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(bool(missing()), reason=missing()),
    pytest.mark.timeout(1500),
]

Json = dict[str, Any]
SECONDS = 300.0
LIMIT = "300s"
HOOK, HOOK_PORT = "hook", 8443
CLUSTERS, PLANES = DedicatedCluster.resource, VirtualControlPlane.resource


@pytest_asyncio.fixture(scope="module")
async def host(tenantry_home: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[RealPods]:
    """A cluster with three real nodes and the operator: one node stays shared."""
    async with realhosts.hosting("realrotation", tenantry_home, tmp_path_factory.mktemp("images"), nodes=3) as found:
        yield found


async def cluster(host: RealPods, verb: str, name: str, *arguments: str) -> str:
    """Run a command about a cluster, and return what it prints."""
    code, out, err = await command(host.cluster, "cluster", verb, name, *arguments)
    assert not code, f"{verb} {arguments}: {err}"
    return out + err


def _served(folder: Path) -> tuple[Json, str]:
    """Return the data of a Secret with the certificate of a webhook, and the authority of it in base64."""
    now = dt.datetime.now(dt.UTC)
    end = now + dt.timedelta(days=1)
    x509.write_authority(folder, "ca", now, end)
    name = f"{HOOK}.default.svc"
    leaf = LeafCertificate(ca="ca", user=name, use=CertificateUse.SERVER, names=(name,))
    x509.write_leaf(folder, "tls", leaf, now, end)

    def text(file: str) -> str:
        return base64.b64encode((folder / file).read_bytes()).decode()

    return {"tls.crt": text("tls.crt"), "tls.key": text("tls.key")}, text("ca.crt")


async def _configure(inside: RealPods, place: str, folder: Path) -> None:
    """Run a webhook that refuses everything, in a pod behind a Service."""
    data, authority = await asyncio.to_thread(_served, folder)
    await inside.api.create(SECRETS, {"metadata": {"name": HOOK}, "data": data}, "default")
    files = "--tls-cert-file=/tls/tls.crt", "--tls-private-key-file=/tls/tls.key"
    container = {
        "args": ["webhook", *files, f"--port={HOOK_PORT}"],
        "readinessProbe": {"tcpSocket": {"port": HOOK_PORT}, "periodSeconds": 1},
        "volumeMounts": [{"name": "tls", "mountPath": "/tls"}],
    }
    volumes = [{"name": "tls", "secret": {"secretName": HOOK}}]
    await inside.make("default", HOOK, place, "runc", container=container, spec={"volumes": volumes})
    ports = [{"port": 443, "targetPort": HOOK_PORT}]
    spec = {"selector": {"app": HOOK}, "ports": ports}
    await inside.api.create(SERVICES, {"metadata": {"name": HOOK}, "spec": spec}, "default")
    service = {"namespace": "default", "name": HOOK, "path": "/always-deny"}
    await inside.api.create(WEBHOOKS, configured(HOOK, {"service": service, "caBundle": authority}))


async def _works(inside: RealPods, users: Kubectl, when: str) -> None:
    """Check exec, logs, a webhook and the proxy of a node, each of which goes through the gate."""
    said = await users.run("exec", "web", "--", "/agnhost", "connect", "--timeout=5s", f"127.0.0.1:{PORT}")
    assert not said.returncode, (when, said.stderr)
    said = await users.run("logs", "web")
    assert "HTTP server" in said.stdout, (when, said.stderr)
    told: list[str] = []

    async def is_refused() -> bool:
        value: Json = {"metadata": {"generateName": "m-", "labels": {"hook": HOOK}}}
        try:
            await inside.api.create(CONFIG_MAPS, value, "default")
        except ApiError as error:
            told[:] = [str(error)]
        # The words of the webhook itself.
        return "this webhook denies all requests" in "".join(told)

    await until(is_refused, f"the webhook answers {when}", seconds=SECONDS, seen=lambda: told)


async def _ready_nodes(host: RealPods, name: str, many: int) -> bool:
    found = await host.api.get(CLUSTERS, name, name)
    return found["status"].get("readyNodes") == f"{many}/{many}" and found["spec"]["nodes"] == many


async def test_a_rotation_in_phases_breaks_nothing_and_nodes_join_in_each(host: RealPods, tmp_path: Path) -> None:
    """H04: a client under load, exec, logs, webhooks and a join in every phase; then nothing is left of the cluster."""
    name = "rota"
    before = await traces(host.cluster, host.api)
    await cluster(host, "create", name, "--nodes", "1", "--wait", "--timeout", LIMIT)
    uid = (await host.api.get(PLANES, name, name))["metadata"]["uid"]
    (first,) = memberships.away(host.cluster.paths)
    file, later = tmp_path / "former", tmp_path / "present"
    file.write_text(await cluster(host, "kubeconfig", name))
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    async with Client(kubeconfig.load([file])) as client:
        inside, users, load = RealPods(host.cluster, Api(client)), Kubectl(file), Load(client)
        await inside.make("default", "web", first, "runc")
        await _configure(inside, first, folder)
        await _works(inside, users, "before")
        async with load.going_on():
            for phase in ("prepare", "issue"):
                await cluster(host, "rotate", name, "--phase", phase, "--timeout", LIMIT)
                await _works(inside, users, f"in phase {phase}")
                await cluster(host, "scale", name, "--nodes", "2", "--wait", "--timeout", LIMIT)
                assert await _ready_nodes(host, name, 2), phase
                if phase == "prepare":
                    await cluster(host, "scale", name, "--nodes", "1", "--wait", "--timeout", LIMIT)
        assert (load.failed, load.reads > 0) == ([], True)
        # Both nodes have certificates of the new authority, or are named by the list of its users.
        later.write_text(await cluster(host, "kubeconfig", name))
        await cluster(host, "rotate", name, "--phase", "complete", "--force", "--yes", "--timeout", LIMIT)
        with pytest.raises(Unauthorized):
            await Api(client).list(CONFIG_MAPS, "default")
    async with Client(kubeconfig.load([later])) as client:
        inside, users = RealPods(host.cluster, Api(client)), Kubectl(later)
        await cluster(host, "scale", name, "--nodes", "1", "--wait", "--timeout", LIMIT)
        if not [each for each in await inside.api.list(PODS, "default") if each["metadata"]["name"] == "web"]:
            (first,) = memberships.away(host.cluster.paths)
            await inside.make("default", "web", first, "runc")
        await cluster(host, "scale", name, "--nodes", "2", "--wait", "--timeout", LIMIT)
        assert await _ready_nodes(host, name, 2)
        said = await users.run("exec", "web", "--", "/agnhost", "connect", "--timeout=5s", f"127.0.0.1:{PORT}")
        assert not said.returncode, said.stderr
    await cluster(host, "delete", name, "--yes", "--timeout", LIMIT)
    await host.api.delete(DedicatedCluster.resource, name, name)
    seen: list[str] = []

    async def as_before() -> bool:
        now = await traces(host.cluster, host.api, uid)
        # The command has made the tenant, which stays.
        seen[:] = [each for each in before.added(now) if not each.startswith("objects: ") or "/rota" in each]
        seen[:] = [each for each in seen if "Namespace /rota" not in each]
        return not seen

    await until(as_before, "nothing is left of the cluster", seconds=SECONDS, seen=lambda: seen)
    await asyncio.to_thread(shutil.rmtree, folder)
