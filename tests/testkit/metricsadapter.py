"""A source of metrics for tests: an aggregated API server for metrics.k8s.io, which a cluster's API server asks.

It is what metrics-server is to the cluster, and reports the same values for every container. The API server reaches it
by HTTPS through its aggregator, as the name `localhost` of an ExternalName Service.
"""

from __future__ import annotations

import base64
import datetime as dt
import socket
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from tenantry.api.model import Resource
from tenantry.hosting.certificates import CertificateUse, LeafCertificate
from tenantry.local import x509
from testkit.api import PODS, Api, until

Json = dict[str, Any]

API_SERVICES = Resource("apiregistration.k8s.io", "v1", "apiservices", "APIService", namespaced=False)
SERVICES = Resource("", "v1", "services", "Service")
NAME = "v1beta1.metrics.k8s.io"
ROOT = "/apis/metrics.k8s.io/v1beta1"
SERVICE = {"namespace": "kube-system", "name": "metrics-adapter"}
USAGE = {"cpu": "7m", "memory": "64Mi", "example.com/secret": "1"}


class MetricsAdapter:
    """The server.

    Args:
        host: Reads the pods of the cluster.
    """

    def __init__(self, host: Api) -> None:
        self._host = host
        self.asked: list[tuple[str, str]] = []
        """The user and the path of each read of metrics."""

    async def answer(self, request: web.BaseRequest) -> web.Response:
        """Answer a request."""
        path = request.path.rstrip("/")
        if path == ROOT:
            names = {"nodes": "NodeMetrics", "pods": "PodMetrics"}
            kinds = [
                {"name": name, "singularName": "", "namespaced": name == "pods", "kind": kind, "verbs": ["get", "list"]}
                for name, kind in names.items()
            ]
            found: Json = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": NAME, "resources": kinds}
            return web.json_response(found | {"groupVersion": "metrics.k8s.io/v1beta1"})
        namespace, _, rest = path.removeprefix(f"{ROOT}/namespaces/").partition("/")
        if rest != "pods" or "/" in rest:
            return web.json_response({"kind": "Status", "apiVersion": "v1", "code": 404}, status=404)
        self.asked.append((request.headers.get("X-Remote-User", ""), path))
        items = [self._measured(each) for each in await self._host.list(PODS, namespace)]
        kind: Json = {"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": items}
        return web.json_response(kind)

    @staticmethod
    def _measured(pod: Json) -> Json:
        meta, boxes = pod["metadata"], pod["spec"]["containers"]
        return {
            "metadata": {"name": meta["name"], "namespace": meta["namespace"], "labels": meta.get("labels", {})},
            "timestamp": dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "window": "15s",
            "containers": [{"name": each["name"], "usage": USAGE} for each in boxes],
        }


@asynccontextmanager
async def measured(host: Api, folder: Path) -> AsyncGenerator[MetricsAdapter]:
    """Give a cluster metrics while the context is open.

    Args:
        host: An administrator of the cluster, whose API server is on this machine.
        folder: Where the certificates are written.
    """
    now = dt.datetime.now(dt.UTC)
    names = (f"{SERVICE['name']}.{SERVICE['namespace']}.svc",)
    leaf = LeafCertificate(ca="metrics", user=names[0], use=CertificateUse.SERVER, names=names)
    x509.write_authority(folder, "metrics", now, now + dt.timedelta(hours=1))
    x509.write_leaf(folder, "server", leaf, now, now + dt.timedelta(hours=1))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    adapter = MetricsAdapter(host)
    runner = web.ServerRunner(web.Server(adapter.answer))
    await runner.setup()
    bound = socket.create_server(("127.0.0.1", 0))
    await web.SockSite(runner, bound, ssl_context=context).start()
    try:
        port = bound.getsockname()[1]
        authority = base64.b64encode((folder / "metrics.crt").read_bytes()).decode()
        await _register(host, port, authority)
        yield adapter
    finally:
        await host.delete(API_SERVICES, NAME)
        await host.delete(SERVICES, SERVICE["name"], SERVICE["namespace"])
        await runner.cleanup()


async def _register(host: Api, port: int, authority: str) -> None:
    external = {"type": "ExternalName", "externalName": "localhost"}
    await host.create(SERVICES, {"metadata": {"name": SERVICE["name"]}, "spec": external}, SERVICE["namespace"])
    spec = {"group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100}
    spec |= {"service": {**SERVICE, "port": port}, "caBundle": authority}
    await host.create(API_SERVICES, {"metadata": {"name": NAME}, "spec": spec})
    seen: list[Json] = []

    async def available() -> bool:
        conditions = (await host.get(API_SERVICES, NAME)).get("status", {}).get("conditions", [])
        seen[:] = conditions
        return any(each["type"] == "Available" and each["status"] == "True" for each in conditions)

    await until(available, "the cluster has metrics", seen=lambda: seen)
