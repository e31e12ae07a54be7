"""Caches that lists and watches keep current, against scripts of watches."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest

from tenantry.api.errors import Interrupted
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import Resource
from tenantry.engine.cache import Change
from tenantry.engine.informer import Informer
from tenantry.engine.observed import Observed, observe
from tenantry.kube import wire
from testkit.model import Json, World
from testkit.watchclient import Ended, Script, WatchClient

GONE: Json = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}


def _namespace(name: str, version: int, **labels: str) -> Json:
    return {"metadata": {"name": name, "uid": name, "resourceVersion": str(version), "labels": labels}}


async def _run(world: World, *scripts: Script) -> tuple[Informer[Observed], list[str], WatchClient]:
    """Return an informer after its watches, what it reported, and the client."""
    reported: list[str] = []

    def report(change: Change[Observed]) -> None:
        before, after = change.before, change.after
        sign = "+" if before is None else "-" if after is None else "~"
        reported.append(f"{sign}{(after or before or observe(Namespace.resource, b'')).name}")

    informer = Informer(Namespace.resource, partial(observe, Namespace.resource), report)
    client = WatchClient(world, *scripts)
    with pytest.raises(Ended):
        await informer.run(client)
    return informer, reported, client


def _world() -> World:
    world = World()
    world.put_in(Namespace.resource, {"metadata": {"name": "a"}})
    world.put_in(Namespace.resource, {"metadata": {"name": "b"}})
    return world


async def test_a_list_and_the_events_after_it_make_the_cache() -> None:
    events: Script = [
        ("ADDED", _namespace("c", 10)),
        ("MODIFIED", _namespace("a", 11)),
        ("DELETED", _namespace("b", 12)),
    ]
    informer, reported, client = await _run(_world(), events, [])
    assert reported == ["+a", "+b", "+c", "~a", "-b"]
    assert sorted(each.key for each in informer.cache) == ["a", "c"]
    assert informer.synced.is_set()
    assert client.versions == ["3", "12"], "a watch that the server ends goes on after its last event"


async def test_a_bookmark_moves_the_watch_on_and_is_no_object() -> None:
    bookmark: Script = [("BOOKMARK", {"metadata": {"resourceVersion": "40"}})]
    informer, reported, client = await _run(_world(), bookmark, [])
    assert (client.versions, reported, len(informer.cache)) == (["3", "40"], ["+a", "+b"], 2)


async def test_a_watch_that_is_too_old_begins_with_a_list_that_reports_what_is_gone() -> None:
    world = _world()
    reported: list[Change[Observed]] = []

    def report(change: Change[Observed]) -> None:
        if not reported:
            world.delete(Namespace.resource, "b")
            world.finish_deletions()  # after the first list
        reported.append(change)

    informer = Informer(Namespace.resource, partial(observe, Namespace.resource), report)
    client = WatchClient(world, [("ERROR", GONE)], [])
    with pytest.raises(Ended):
        await informer.run(client)
    assert [each.key for each in informer.cache] == ["a"]
    assert [each.after for each in reported if each.before is not None] == [None]
    assert client.versions == ["3", str(world.revision)]


async def test_a_broken_connection_goes_on_where_it_was() -> None:
    events: Script = [("ADDED", _namespace("c", 10)), Interrupted("the connection broke")]
    _, reported, client = await _run(_world(), events, [])
    assert client.versions == ["3", "10"]
    assert reported == ["+a", "+b", "+c"], "nothing is listed or reported again"


async def test_an_object_that_does_not_decode_is_left_alone_and_the_others_are_not() -> None:
    broken: Json = {"metadata": {"name": "a", "resourceVersion": "10", "labels": ["no", "map"]}}
    informer, reported, _ = await _run(_world(), [("MODIFIED", broken), ("ADDED", _namespace("c", 11))], [])
    assert reported == ["+a", "+b", "-a", "+c"]
    assert sorted(each.key for each in informer.cache) == ["b", "c"]


class PagingClient(WatchClient):
    """A client that lists one object a page, and reports each further page."""

    def __init__(self, world: World, turned: Callable[[], None], *scripts: Script) -> None:
        super().__init__(world, *scripts)
        self._turned = turned

    async def pages(self, resource: Resource, item: type[Any], **options: Any) -> AsyncIterator[wire.Page[Any]]:  # noqa: ANN401 - see `Client.pages`
        """See `Client.pages`."""
        async for page in super().pages(resource, item, **options):
            for place, each in enumerate(page.items):
                if place:
                    self._turned()
                yield wire.Page(items=[each], metadata=page.metadata)


async def test_a_list_of_restored_data_never_shows_a_part_of_them() -> None:
    """A reconciler that looks between two pages would delete what belongs to objects of later ones."""
    seen: list[list[str]] = []
    informer = Informer(Namespace.resource, partial(observe, Namespace.resource), lambda _: None)

    def look() -> None:
        seen.append(sorted(each.key for each in informer.cache))

    script: Script = [("ADDED", _namespace("c", 99)), ("ERROR", GONE)]
    with pytest.raises(Ended):
        await informer.run(PagingClient(_world(), look, script, []))
    assert seen == [["a"], ["a", "b", "c"]]
    look()
    assert seen[-1] == ["a", "b"]
