"""Serves the Services of a node's view to kube-proxy on loopback, as an API server would.

kube-proxy lists and watches all Services and EndpointSlices of a cluster. The certificate of a contributed node cannot.
So the kube-proxy there has a kubeconfig with this server, which has the objects of the view, the node itself, and no
ServiceCIDRs. It only reads. It writes events, which are refused.

    OwnView ─► update(content) ─► objects and versions ─► GET …/services, GET …/services?watch=true ─► kube-proxy

Until the first view, lists wait: an empty list would end all connections to Services. Versions begin with the time, so
that a kube-proxy that watched an earlier server gets "410 Gone", and lists again.

Source: Kubernetes, "API concepts"; k8s.io/client-go/tools/cache, `Reflector`.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
from aiohttp import web

from tenantry.api.model import Json, Resource, object_key
from tenantry.api.node import Node
from tenantry.kube import wire
from tenantry.world.netpol.services import ENDPOINT_SLICES, SERVICES
from tenantry.world.netpol.view import Content

SERVICE_CIDRS = Resource("networking.k8s.io", "v1", "servicecidrs", "ServiceCIDR", namespaced=False)
REMEMBERED = 1000
"""How many changes of a kind a watch can begin before."""

WATCH_SECONDS = 300.0
"""The length of a watch whose client names none."""

_INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class _Kind:
    """The objects of one kind and their last changes."""

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        self.known = asyncio.Event()
        self.changed = asyncio.Event()
        self.version = time.time_ns() // 1_000_000
        self._first = self.version
        self._objects: dict[str, Json] = {}
        self._changes: deque[tuple[int, bytes]] = deque()

    def replace(self, found: Mapping[str, Json]) -> None:
        """Replace all objects, and remember the differences."""
        for key in [key for key in self._objects if key not in found]:
            self._change("DELETED", self._objects.pop(key))
        for key, content in found.items():
            before = self._objects.get(key)
            if before is None or _without_version(before) != content:
                self._objects[key] = self._change("MODIFIED" if before is not None else "ADDED", content)
        self.known.set()

    def listed(self) -> Json:
        """Return the list of all objects."""
        found = self.resource
        return {
            "kind": f"{found.kind}List",
            "apiVersion": found.api_version,
            "metadata": {"resourceVersion": str(self.version)},
            "items": list(self._objects.values()),
        }

    def initial(self) -> list[bytes]:
        """Return the events by which a watch begins with all objects."""
        about = {"resourceVersion": str(self.version), "annotations": {_INITIAL_EVENTS_END: "true"}}
        return [*(_event("ADDED", each) for each in self._objects.values()), self._event_of("BOOKMARK", about)]

    def since(self, version: int) -> list[bytes] | None:
        """Return the events after a version; None if they are not remembered."""
        if not self._first <= version <= self.version:
            return None
        return [line for changed, line in self._changes if changed > version]

    def _change(self, kind: str, content: Json) -> Json:
        self.version += 1
        found = self._stamped(content)
        self._changes.append((self.version, _event(kind, found)))
        if len(self._changes) > REMEMBERED:
            self._first = self._changes.popleft()[0]
        waiting, self.changed = self.changed, asyncio.Event()
        waiting.set()
        return found

    def _event_of(self, kind: str, metadata: Json) -> bytes:
        return _event(kind, {"kind": self.resource.kind, "apiVersion": self.resource.api_version, "metadata": metadata})

    def _stamped(self, content: Json) -> Json:
        own = self.resource
        metadata = {**content["metadata"], "resourceVersion": str(self.version)}
        return {"kind": own.kind, "apiVersion": own.api_version, **content, "metadata": metadata}


class ServiceApi:
    """The objects that kube-proxy reads, and their server."""

    def __init__(self) -> None:
        self._services, self._slices = _Kind(SERVICES), _Kind(ENDPOINT_SLICES)
        self._nodes, self._ranges = _Kind(Node.resource), _Kind(SERVICE_CIDRS)

    def update(self, content: Content) -> None:
        """Replace the Services and their endpoints."""
        # Endpoints first: a Service without any would refuse connections.
        self._slices.replace(_by_key(content.endpoint_slices))
        self._services.replace(_by_key(content.services))
        self._ranges.replace({})

    def update_node(self, node: Node) -> None:
        """Replace the node."""
        meta = {"name": node.metadata.name, "uid": node.metadata.uid, "labels": node.metadata.labels}
        addresses = [{"type": each.type, "address": each.address} for each in node.status.addresses]
        content = {
            "metadata": meta,
            "spec": {"podCIDRs": list(node.spec.pod_cidrs)},
            "status": {"addresses": addresses},
        }
        self._nodes.replace({node.metadata.name: content})

    @asynccontextmanager
    async def serve(self, port: int) -> AsyncGenerator[None]:
        """Serve on 127.0.0.1 while the context is open.

        Raises:
            OSError: The port is taken.
        """
        app = web.Application()
        for kind in (self._services, self._slices, self._nodes, self._ranges):
            app.router.add_get(wire.path(kind.resource), _answering(kind))
        # A watch lasts for minutes: the end of the agent must not wait for it.
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", port, reuse_address=True).start()
            yield
        finally:
            await runner.cleanup()


def _answering(kind: _Kind) -> Any:  # noqa: ANN401 - a handler of aiohttp
    async def answer(request: web.Request) -> web.StreamResponse:
        await kind.known.wait()
        if request.query.get("watch") in {"true", "1"}:
            return await _watch(kind, request)
        return web.Response(body=msgspec.json.encode(kind.listed()), content_type="application/json")

    return answer


async def _watch(kind: _Kind, request: web.Request) -> web.StreamResponse:
    given = request.query.get("resourceVersion", "")
    begins = request.query.get("sendInitialEvents") == "true" or not given.isdigit() or given == "0"
    stream = web.StreamResponse(headers={"Content-Type": "application/json"})
    await stream.prepare(request)
    seconds = float(request.query.get("timeoutSeconds", WATCH_SECONDS))
    # kube-proxy closes its watches without notice.
    with suppress(TimeoutError, ConnectionResetError):
        async with asyncio.timeout(seconds):
            # Read together, after the last wait: no change may come between.
            lines = kind.initial() if begins else kind.since(int(given))
            while True:
                changed, version = kind.changed, kind.version
                if lines is None:
                    await stream.write(_event("ERROR", _gone()))
                    break
                if lines:
                    await stream.write(b"".join(lines))
                await changed.wait()
                lines = kind.since(version)
    with suppress(ConnectionResetError):
        await stream.write_eof()
    return stream


def _gone() -> Json:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": "Expired",
        "code": 410,
        "message": "the changes since this version are not known: list again",
    }


def _event(kind: str, found: Json) -> bytes:
    return msgspec.json.encode({"type": kind, "object": found}) + b"\n"


def _by_key(found: tuple[Json, ...]) -> dict[str, Json]:
    return {object_key(each["metadata"]["namespace"], each["metadata"]["name"]): each for each in found}


def _without_version(found: Json) -> Json:
    metadata = {key: value for key, value in found["metadata"].items() if key != "resourceVersion"}
    return {**{key: value for key, value in found.items() if key not in {"kind", "apiVersion"}}, "metadata": metadata}
