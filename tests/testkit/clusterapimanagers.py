"""The managers of Cluster API as processes beside a local cluster: its core, and both kubeadm providers.

    manifests of the module ─► kubectl kustomize ─► CRDs without conversion, webhooks by URL ─► API server
                                                                                         ▲
    three managers ── webhooks on loopback, with a certificate of their own ──────────────┘

A manager that starts before its kinds are served ends: they start last.
"""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import ipaddress
import os
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import yaml
from cryptography import x509

from tenantry.api.kubernetes import Namespace
from tenantry.api.model import Resource
from tenantry.hosting.selfsigned import self_signed
from tenantry.local import build
from tenantry.local.cluster import LocalCluster
from tenantry.local.progress import SilentProgress
from testkit import clusterapi, ports
from testkit.api import CRDS, SECONDS, Api, until

Json = dict[str, Any]
FEATURES = "ClusterTopology=true,MachinePool=false"
_WEBHOOKS = {
    kind: Resource("admissionregistration.k8s.io", "v1", f"{kind.lower()}s", kind, namespaced=False)
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
}


@asynccontextmanager
async def running(local: LocalCluster, host: Api, folder: Path) -> AsyncGenerator[None]:
    """Run the managers until the context ends.

    Args:
        local: The cluster.
        host: Its administrator.
        folder: For certificates and logs.
    """
    binaries = await asyncio.to_thread(build.ensure, SilentProgress(), build.CLUSTER_API)
    programs = {
        "core": binaries.cluster_api,
        "bootstrap/kubeadm": binaries.cluster_api_kubeadm,
        "controlplane/kubeadm": binaries.cluster_api_kubeadm_control_plane,
    }
    authority = await asyncio.to_thread(_certificate, folder)
    chosen = dict(zip(programs, ports.free(len(programs)), strict=True))
    for part, port in chosen.items():
        await _install(host, part, port, authority)
    async with AsyncExitStack() as stack:
        for part, program in programs.items():
            log = folder / f"{part.replace('/', '-')}.log"
            await stack.enter_async_context(_process(program, local.kubeconfig_path, chosen[part], folder, log))
        yield


def _certificate(folder: Path) -> str:
    names = [x509.IPAddress(ipaddress.IPv4Address("127.0.0.1"))]
    now = dt.datetime.now(tz=dt.UTC)
    certificate, key = self_signed("webhooks", names, now=now, life=dt.timedelta(days=1))
    (folder / "tls.crt").write_bytes(certificate)
    (folder / "tls.key").write_bytes(key)
    return base64.b64encode(certificate).decode()


async def _install(host: Api, part: str, port: int, authority: str) -> None:
    text = await asyncio.to_thread(clusterapi.manifests, part)
    objects: list[Json] = [each for each in yaml.safe_load_all(text) if each]
    definitions: list[str] = []
    for value in objects:
        if value["kind"] == "Namespace":
            await host.create(Namespace.resource, value)
        if value["kind"] == "CustomResourceDefinition":
            # The API server converts by itself: only the versions' names differ in what these tests use.
            value["spec"]["conversion"] = {"strategy": "None"}
            value["metadata"].pop("annotations", None)
            await host.create(CRDS, value)
            definitions.append(value["metadata"]["name"])
    for name in definitions:
        await until(lambda name=name: _is_served(host, name), f"{name} is served", seconds=SECONDS)
    for value in objects:
        if value["kind"] in _WEBHOOKS:
            for webhook in value["webhooks"]:
                path = webhook["clientConfig"]["service"]["path"]
                webhook["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": authority}
            await host.create(_WEBHOOKS[value["kind"]], value)


async def _is_served(host: Api, name: str) -> bool:
    found = await host.get(CRDS, name)
    conditions: list[Json] = found.get("status", {}).get("conditions") or []
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


@asynccontextmanager
async def _process(program: Path, config: Path, port: int, folder: Path, log: Path) -> AsyncGenerator[None]:
    health, diagnostics = ports.free(2)
    arguments = (
        *("--kubeconfig", str(config), "--webhook-port", str(port), "--webhook-cert-dir", str(folder)),
        *("--health-addr", f"127.0.0.1:{health}", "--diagnostics-address", f"127.0.0.1:{diagnostics}"),
        *("--insecure-diagnostics", "--feature-gates", FEATURES),
    )
    environment = {**os.environ, "POD_NAMESPACE": clusterapi.NAMESPACE, "POD_NAME": program.name, "POD_UID": "none"}
    with log.open("wb") as output:
        child = await asyncio.create_subprocess_exec(
            str(program), *arguments, env=environment, stdout=output, stderr=output
        )
        try:
            await until(lambda: _answers(child, health, log), f"{program.name} is ready", seconds=SECONDS)
            yield
        finally:
            if child.returncode is None:
                child.kill()
            await child.wait()


async def _answers(child: asyncio.subprocess.Process, port: int, log: Path) -> bool:
    assert child.returncode is None, f"the manager has ended; see {log}"
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.write(b"GET /readyz HTTP/1.0\r\n\r\n")
    line = await reader.readline()
    writer.close()
    return b" 200 " in line
