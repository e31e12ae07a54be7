"""The server from which kube-proxy of a contributed node reads Services, as a client of Kubernetes sees it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from tenantry.api.model import ObjectMeta
from tenantry.api.node import Node
from tenantry.netpol.serviceapi import ServiceApi
from tenantry.world.netpol.view import Content
from testkit.ports import free

Json = dict[str, Any]
PATH = "/api/v1/services"
PROXY = {"labelSelector": "!service.kubernetes.io/service-proxy-name", "fieldSelector": "spec.clusterIP!=None"}


class Served:
    """A server and a client of it."""

    def __init__(self, api: ServiceApi, session: aiohttp.ClientSession) -> None:
        self.api, self.session = api, session

    async def list(self, path: str = PATH) -> Json:
        """List as kube-proxy does."""
        async with self.session.get(path, params={**PROXY, "limit": "500", "resourceVersion": "0"}) as response:
            found: Json = await response.json()
            return found

    async def watch(self, since: str, number: int, **more: str) -> list[Json]:
        """Return the first events of a watch."""
        query = {**PROXY, "watch": "true", "resourceVersion": since, "timeoutSeconds": "30", **more}
        async with self.session.get(PATH, params=query) as response:
            return [json.loads(await response.content.readline()) for _ in range(number)]


@pytest_asyncio.fixture
async def served() -> AsyncIterator[Served]:
    """A server without a view."""
    api, port = ServiceApi(), free(1)[0]
    async with api.serve(port), aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        yield Served(api, session)


def view(**ports: int) -> Content:
    """Return a view with Services."""
    return Content(
        services=tuple(
            {"metadata": {"name": name, "namespace": "acme"}, "spec": {"ports": [{"port": port}]}}
            for name, port in ports.items()
        )
    )


def about(events: list[Json]) -> list[tuple[str, str]]:
    """Return the kinds of events and the names of their objects."""
    return [(each["type"], each["object"]["metadata"].get("name", "")) for each in events]


async def test_a_list_waits_for_the_first_view(served: Served) -> None:
    """E19: an empty list would end all connections to Services after a restart of the agent."""
    listing = asyncio.create_task(served.list())
    done, _ = await asyncio.wait({listing}, timeout=0.2)
    assert not done
    served.api.update(view(web=80))
    found = await listing
    assert found["kind"] == "ServiceList"
    assert [each["metadata"]["name"] for each in found["items"]] == ["web"]
    assert (await served.list("/apis/networking.k8s.io/v1/servicecidrs"))["items"] == []


async def test_a_watch_follows_the_view(served: Served) -> None:
    """E19: from a list, and from events that replace a list; unchanged Services cause none."""
    served.api.update(view(web=80, old=1, same=2))
    since = (await served.list())["metadata"]["resourceVersion"]
    watching = asyncio.create_task(served.watch(since, 3))
    served.api.update(view(web=81, same=2, new=3))
    assert about(await watching) == [("DELETED", "old"), ("MODIFIED", "web"), ("ADDED", "new")]
    # The same for a client that watches later, and for one that begins with a watch.
    assert about(await served.watch(since, 3)) == [("DELETED", "old"), ("MODIFIED", "web"), ("ADDED", "new")]
    *initial, end = await served.watch("", 4, sendInitialEvents="true", allowWatchBookmarks="true")
    assert sorted(about(initial)) == [("ADDED", "new"), ("ADDED", "same"), ("ADDED", "web")]
    assert end["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_a_change_while_a_watch_begins_is_not_lost(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """E19: the view may change while the server writes the headers of the answer."""
    served.api.update(view(web=80))
    since = (await served.list())["metadata"]["resourceVersion"]
    prepare = web.StreamResponse.prepare

    async def slowly(stream: web.StreamResponse, request: web.BaseRequest) -> AbstractStreamWriter | None:
        found = await prepare(stream, request)
        if "watch" in request.query:
            served.api.update(view(web=80, new=1))
        return found

    monkeypatch.setattr(web.StreamResponse, "prepare", slowly)
    assert about(await served.watch(since, 1)) == [("ADDED", "new")]


async def test_a_client_of_an_earlier_server_lists_again(served: Served) -> None:
    """E19: versions of an agent that has ended are gone."""
    served.api.update(view(web=80))
    (event,) = await served.watch("17", 1)
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)


async def test_it_serves_the_node_itself(served: Served) -> None:
    """E19: kube-proxy reads the addresses of its node."""
    served.api.update_node(Node(metadata=ObjectMeta(name="contributed-abc123")))
    assert [each["metadata"]["name"] for each in (await served.list("/api/v1/nodes"))["items"]] == [
        "contributed-abc123"
    ]
