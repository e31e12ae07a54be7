"""What helps others to find out what is wrong with a cluster: objects, events, logs and metrics, without Secrets.

    Tenantry's kinds, Namespaces, Nodes, ResourceQuotas of tenants   ─► objects/KIND.json
    Events about Tenantry's kinds, and of the namespace of the operator ─► events.json
    logs of the pods of the operator                                  ─► logs/POD.log
    installed objects that differ from those of this version          ─► installation.txt
    what could not be read, and why                                   ─► problems.txt

Secrets, ConfigMaps, pods' environments and arguments are never read. Of objects, managed fields and the copy of
kubectl's last apply are left out: the copy may hold what the object does not have any more.
"""

from __future__ import annotations

import heapq
import json
import platform
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import msgspec

from tenantry import __version__
from tenantry.api import marks
from tenantry.api.errors import NotFound, TenantryError
from tenantry.api.kinds import KINDS
from tenantry.api.kubernetes import Namespace, ResourceQuota
from tenantry.api.model import Json, Resource
from tenantry.controllers.watched import OURS
from tenantry.kube import wire
from tenantry.kube.client import Client
from tenantry.views import installation

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
_PODS = Resource("", "v1", "pods", "Pod")
_EVENTS = Resource("events.k8s.io", "v1", "events", "Event")
_LINES = "5000"
MOST_EVENTS = 5000
"""Of each log, the last ones."""

Fetch = Callable[[], Awaitable[bytes]]


class BundleFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the bundle.

    Args:
        name: Its path in the archive.
        data: Its content.
    """

    name: str
    data: bytes


async def bundle(client: Client, fetches: Sequence[tuple[str, Fetch]]) -> AsyncIterator[BundleFile]:
    """Yield the files of a bundle, `problems.txt` at the end if something could not be read.

    Args:
        client: An administrator's.
        fetches: Further files by name, as the metrics of the operator; a TenantryError becomes a problem.
    """
    problems: list[str] = []
    files: list[tuple[str, Fetch]] = [
        ("version.json", lambda: _versions(client)),
        ("installation.txt", lambda: _installation(client)),
        *((f"objects/{kind.resource.plural}.json", _lister(client, kind.resource)) for kind in KINDS),
        ("objects/namespaces.json", _lister(client, Namespace.resource)),
        ("objects/nodes.json", _lister(client, _NODES)),
        ("objects/resourcequotas.json", _lister(client, ResourceQuota.resource, selectors=OURS)),
        ("events.json", lambda: _events(client)),
        *fetches,
    ]
    try:
        pods = await _operator_pods(client)
    except TenantryError as error:
        pods = []
        problems.append(f"logs: {error}")
    for pod in pods:
        files += [
            (f"logs/{pod}.log", _log(client, pod, previous=False)),
            (f"logs/{pod}.previous.log", _log(client, pod, previous=True)),
        ]
    for name, fetch in files:
        try:
            data = await fetch()
        except TenantryError as error:
            # A container that did not restart has no previous log.
            if not name.endswith(".previous.log"):
                problems.append(f"{name}: {error}")
        else:
            yield BundleFile(name=name, data=data)
    if problems:
        yield BundleFile(name="problems.txt", data=("\n".join(problems) + "\n").encode())


async def _versions(client: Client) -> bytes:
    server = msgspec.json.decode(await client.request("GET", "/version"), type=Json)
    told = {"tenantry": __version__, "python": platform.python_version(), "platform": platform.platform()}
    return json_text({**told, "kubernetes": server.get("gitVersion", "")})


async def _installation(client: Client) -> bytes:
    found = await installation.differences(client)
    if found is None:
        return b"the caller may not compare the installed objects\n"
    return ("\n".join(found or ["the installed objects are those of this version"]) + "\n").encode()


def _lister(client: Client, resource: Resource, selectors: dict[str, str] | None = None) -> Fetch:
    async def fetch() -> bytes:
        try:
            return json_text([bare(each) async for each in _each(client, resource, selectors=selectors)])
        except NotFound:
            # An older installation does not have the kind.
            return b"[]\n"

    return fetch


async def _each(
    client: Client, resource: Resource, *, namespace: str = "", selectors: dict[str, str] | None = None
) -> AsyncIterator[Json]:
    async for page in client.pages(resource, Json, namespace=namespace, selectors=selectors):
        for each in page.items:
            yield each


async def _events(client: Client) -> bytes:
    found: list[Json] = []
    async for each in _each(client, _EVENTS):
        if concerns(each):
            found.append(bare(each))
        if len(found) == 2 * MOST_EVENTS:
            found = newest(found)
    return json_text(newest(found))


def newest(events: Sequence[Json]) -> list[Json]:
    """Return the `MOST_EVENTS` events that changed last, the last one first: tenants may write such events, too."""
    return heapq.nlargest(MOST_EVENTS, events, key=lambda each: int(each["metadata"].get("resourceVersion") or 0))


def concerns(event: Json) -> bool:
    """Return whether an event is about an object of Tenantry, or in the namespace of the operator."""
    meta: Json = event.get("metadata") or {}
    regarding: Json = event.get("regarding") or {}
    is_ours = str(regarding.get("apiVersion", "")).startswith(f"{marks.GROUP}/")
    return is_ours or bool(meta.get("namespace") == marks.SYSTEM_NAMESPACE)


def bare(value: Json) -> Json:
    """Return an object without managed fields and the copy of kubectl's last apply."""
    meta: Json = dict(value.get("metadata") or {})
    meta.pop("managedFields", None)
    if _LAST_APPLIED in (meta.get("annotations") or {}):
        meta["annotations"] = {key: text for key, text in meta["annotations"].items() if key != _LAST_APPLIED}
    return {**value, "metadata": meta}


async def _operator_pods(client: Client) -> list[str]:
    selectors = {"labelSelector": "app.kubernetes.io/name=tenantry,app.kubernetes.io/component=operator"}
    found = _each(client, _PODS, namespace=marks.SYSTEM_NAMESPACE, selectors=selectors)
    return [each["metadata"]["name"] async for each in found]


def _log(client: Client, pod: str, *, previous: bool) -> Fetch:
    query = {"container": "operator", "tailLines": _LINES, **({"previous": "true"} if previous else {})}
    path = f"{wire.path(_PODS, marks.SYSTEM_NAMESPACE, pod)}/log"
    return lambda: client.request("GET", path, query=query)


def json_text(value: object) -> bytes:
    """Return JSON in ASCII: a text of a tenant must not control the terminal that shows a file."""
    return json.dumps(msgspec.to_builtins(value), indent=1).encode() + b"\n"
