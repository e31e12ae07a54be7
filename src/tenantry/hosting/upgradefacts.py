"""Reads what stands in the way of an upgrade from a hosted control plane; `obstacles` decides."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping

import msgspec

from tenantry.api.errors import TenantryError
from tenantry.api.model import Json
from tenantry.api.node import Node
from tenantry.hosting.obstacles import DeprecatedUse, NodeFact, UpgradeFacts
from tenantry.kube.client import Client
from tenantry.kube.kubeconfig import Connection

ANSWER_SECONDS = 20.0
"""How long all answers may take: users inside can make an API server slow."""

_METRIC = "apiserver_requested_deprecated_apis{"
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_WEBHOOKS = ("validatingwebhookconfigurations", "mutatingwebhookconfigurations")
_PAGE = "500"
_MOST_PAGES = 20


async def read(connection: Connection) -> UpgradeFacts:
    """Return what a control plane reports.

    Args:
        connection: Of an administrator inside.

    Raises:
        TenantryError: It does not answer, or not in time.
    """
    try:
        async with asyncio.timeout(ANSWER_SECONDS), Client(connection, max_connections=2) as client:
            return await _read(client)
    except (TimeoutError, msgspec.MsgspecError) as error:
        raise TenantryError(
            f"what stands in the way of an upgrade is not known, because the API server inside does not answer: {error}"
        ) from error


async def _read(client: Client) -> UpgradeFacts:
    nodes = [
        NodeFact(
            name=each["metadata"]["name"],
            kubelet=each.get("status", {}).get("nodeInfo", {}).get("kubeletVersion", ""),
            is_ready=msgspec.convert(each, Node, strict=False).is_ready,
        )
        async for each in _items(client, "/api/v1/nodes")
    ]
    metrics = (await client.request("GET", "/metrics")).decode(errors="replace")
    webhooks = [
        text
        for plural in _WEBHOOKS
        async for each in _items(client, f"{_ADMISSION}/{plural}")
        for webhook in each.get("webhooks") or ()
        if (text := await _dead(client, webhook))
    ]
    budgets = [
        f"{each['metadata']['namespace']}/{each['metadata']['name']}"
        async for each in _items(client, "/apis/policy/v1/poddisruptionbudgets")
        if _allows_nothing(each.get("status", {}))
    ]
    return UpgradeFacts(
        nodes=tuple(nodes), deprecated=deprecated(metrics), webhooks=tuple(webhooks), budgets=tuple(budgets)
    )


def deprecated(metrics: str) -> tuple[DeprecatedUse, ...]:
    """Return the deprecated APIs that clients have used, sorted.

    Args:
        metrics: Of an API server, in the text format of Prometheus.
    """
    found: set[tuple[str, str]] = set()
    for line in metrics.splitlines():
        if not line.startswith(_METRIC) or line.rpartition(" ")[2] in ("0", "0.0"):
            continue
        labels: Mapping[str, str] = dict(_LABEL.findall(line))
        group = f"{labels['group']}/" if labels.get("group") else ""
        api = f"{group}{labels.get('version', '')} {labels.get('resource', '')}"
        found.add((api, labels.get("removed_release", "")))
    return tuple(DeprecatedUse(api=api, removed=removed) for api, removed in sorted(found))


async def _dead(client: Client, webhook: Json) -> str:
    """Return a webhook that fails every request, and why; "" if it does not, or if that cannot be seen."""
    service: Json | None = webhook.get("clientConfig", {}).get("service")
    if webhook.get("failurePolicy", "Fail") != "Fail" or not service:
        return ""
    query = {"labelSelector": f"kubernetes.io/service-name={service['name']}"}
    path = f"/apis/discovery.k8s.io/v1/namespaces/{service['namespace']}/endpointslices"
    async for each in _items(client, path, query):
        for endpoint in each.get("endpoints") or ():
            if endpoint.get("conditions", {}).get("ready", True):
                return ""
    return f"{webhook['name']} (Service {service['namespace']}/{service['name']} has no ready endpoint)"


def _allows_nothing(status: Json) -> bool:
    return not status.get("disruptionsAllowed", 0) and bool(status.get("expectedPods", 0))


async def _items(client: Client, path: str, query: Mapping[str, str] = {}) -> AsyncGenerator[Json]:
    """Yield the objects of a list."""
    following = ""
    for _ in range(_MOST_PAGES):
        asked = {**query, "limit": _PAGE, **({"continue": following} if following else {})}
        page: Json = msgspec.json.decode(await client.request("GET", path, query=asked))
        for each in page.get("items") or ():
            yield each
        following = page["metadata"].get("continue", "")
        if not following:
            return
