"""Kinds that are watched in places, for clients that may not list them everywhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec
import pytest

from tenantry.api.errors import ApiError, Forbidden, NotFound, Unreachable
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import Resource
from tenantry.engine import informer
from tenantry.engine.cache import Change
from tenantry.engine.cluster import HOME, Cluster, Lane, Watch
from tenantry.engine.metrics import Metrics
from tenantry.engine.observed import Observed, observe
from tenantry.engine.runtime import Runtime
from tenantry.engine.scope import By, WatchScope
from tenantry.engine.tasks import in_background
from testkit.clock import ManualClock
from testkit.model import Json, World
from testkit.placeclient import PlaceClient
from testkit.worldcluster import WorldCluster

SECRETS = Resource("", "v1", "secrets", "Secret")
COLOUR = "tenantry.dev/colour"
GONE: Json = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
FORBIDDEN = Forbidden("secrets is forbidden", status=403)
NOT_SERVED = NotFound("the server could not find the requested resource", status=404)

_decode = partial(observe, SECRETS)
_decode_namespace = partial(observe, Namespace.resource)


def _by_colour(found: Observed) -> list[str]:
    colour = found.labels.get(COLOUR)
    return [colour] if colour else []


class Listening:
    """A controller that records the changes that it learns.

    Args:
        scope: The places of its Secrets.
        others: What it watches besides.
        fields: Of the watch of Secrets.
    """

    kind = Observed

    def __init__(self, scope: WatchScope | None, *others: Watch, name: str = "listening", **fields: Any) -> None:  # noqa: ANN401 - any field of a Watch
        self.name = name
        self.changes: list[str] = []
        self.react: Callable[[str], None] = lambda _: None
        watch = Watch(resource=SECRETS, decode=_decode, keys=self._keys, indexes={COLOUR: _by_colour}, scope=scope)
        self._watches = [msgspec.structs.replace(watch, **fields), *others]

    def watches(self) -> Sequence[Watch]:
        """Return what it listens to."""
        return self._watches

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:
        """Do nothing."""

    def _keys(self, change: Change[Observed]) -> list[str]:
        value = change.after or change.before
        assert value is not None
        sign = "+" if change.before is None else "-" if change.after is None else "~"
        self.changes.append(f"{sign}{value.key}")
        self.react(self.changes[-1])
        return []


class Serving:
    """A cluster with a World behind it, and a controller that listens to Secrets.

    Args:
        scope: The places of the Secrets.
        others: What the controller watches besides.
        fields: Of the watch of Secrets.
    """

    def __init__(self, scope: WatchScope | None, *others: Watch, **fields: Any) -> None:  # noqa: ANN401 - any field of a Watch
        self.world = World()
        self.client = PlaceClient(self.world)
        self.cluster = Cluster(HOME, self.client, clock=ManualClock(), instance="test")
        self.controller = Listening(scope, *others, **fields)
        self.runtime = Runtime(clock=ManualClock(), metrics=Metrics())
        self.runtime.add(self.cluster, [self.controller])

    def secret(self, key: str, colour: str = "", *, version: int = 0) -> Json:
        """Store a Secret in the World, also in place of an older one, and return it; its watch reports nothing."""
        namespace, _, name = key.partition("/")
        labels = {COLOUR: colour} if colour else {}
        if (Namespace.resource, namespace) not in self.world.objects:
            self.world.put_in(Namespace.resource, {"metadata": {"name": namespace}})
        if version:
            self.world.revision = version - 1
        self.world.objects.pop((SECRETS, key), None)
        return self.world.put_in(SECRETS, {"metadata": {"namespace": namespace, "name": name, "labels": labels}})

    def lose(self, key: str) -> None:
        """Remove a Secret from the World; the watch of its place reports nothing."""
        self.world.delete(SECRETS, key)
        self.world.finish_deletions()

    @property
    def lane(self) -> Lane:
        """Return the lane of the cluster in the runtime."""
        return self.cluster._joined()  # pyright: ignore[reportPrivateUsage] - as `require` does

    @property
    def keys(self) -> list[str]:
        """Return the keys in the cache."""
        return sorted(each.key for each in self.cluster.cache(SECRETS))

    @asynccontextmanager
    async def run(self, *, watches: int) -> AsyncGenerator[None]:
        """Run the cluster until it is in step and a number of watches is open."""
        async with asyncio.timeout(10), in_background(self.cluster.run(lambda: None)):
            await until(lambda: self.cluster.is_synced and len(self.client.watches) == watches)
            yield


async def until(condition: Callable[[], bool]) -> None:
    """Let all tasks go on until a condition is met."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - no event tells of what many tasks do; no time passes
            await asyncio.sleep(0)


def _scope(*places: str, by: By = By.NAMESPACE) -> WatchScope:
    scope = WatchScope(by)
    scope.set(places)
    return scope


@pytest.fixture(autouse=True)
def _no_delays(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction] - pytest uses it
    monkeypatch.setattr(informer, "FIRST_DELAY_SECONDS", 0.0)
    monkeypatch.setattr(informer, "LAST_DELAY_SECONDS", 0.0)


# -- namespaces -----------------------------------------------------------------------------------


async def test_two_namespaces_fill_one_cache_and_no_other_is_asked_for() -> None:
    serving = Serving(_scope("acme", "umbra"))
    for key, colour in (("umbra/a", "red"), ("acme/b", "red"), ("acme/c", ""), ("other/d", "red")):
        serving.secret(key, colour)
    async with serving.run(watches=2):
        cache = serving.cluster.cache(SECRETS)
        assert serving.keys == ["acme/b", "acme/c", "umbra/a"]
        assert [each.key for each in cache.by_index(COLOUR, "red")] == ["acme/b", "umbra/a"]
        assert cache.count(COLOUR, "red") == 2
        assert sorted(serving.client.lists) == ["acme", "umbra"]
        assert serving.cluster.is_listed(SECRETS)


async def test_events_of_each_place_reach_the_cache() -> None:
    serving = Serving(_scope("acme", "umbra"))
    serving.secret("umbra/a")
    async with serving.run(watches=2):
        serving.client.send("acme", ("ADDED", serving.secret("acme/b")))
        serving.client.send("umbra", ("MODIFIED", serving.secret("umbra/a")))
        serving.client.send("umbra", ("DELETED", serving.secret("umbra/a")))
        await until(lambda: serving.keys == ["acme/b"])
        assert serving.controller.changes[0] == "+umbra/a"
        assert sorted(serving.controller.changes[1:]) == ["+acme/b", "-umbra/a", "~umbra/a"]


async def test_a_place_that_is_added_is_listed_and_watched() -> None:
    scope = _scope("acme")
    serving = Serving(scope)
    serving.secret("umbra/a", "red")
    async with serving.run(watches=1):
        assert not serving.cluster.is_listed_in(SECRETS, "umbra")
        scope.add("umbra")
        await serving.cluster.listed_in(SECRETS, "umbra")
        assert serving.keys == ["umbra/a"]
        assert serving.cluster.is_listed_in(SECRETS, "umbra")
        await until(lambda: set(serving.client.watches) == {"acme", "umbra"})
        assert serving.client.lists == ["acme", "umbra"], "the other place is not listed again"


async def test_a_place_that_is_removed_takes_its_objects_and_its_watch_with_it() -> None:
    scope = _scope("acme", "umbra")
    serving = Serving(scope)
    serving.secret("acme/a", "red")
    serving.secret("umbra/b", "red")
    async with serving.run(watches=2):
        serving.controller.changes.clear()
        scope.discard("umbra")
        assert serving.controller.changes == ["-umbra/b"]
        assert serving.keys == ["acme/a"]
        assert serving.cluster.cache(SECRETS).count(COLOUR, "red") == 1
        await until(lambda: set(serving.client.watches) == {"acme"})
        scope.add("umbra")
        await serving.cluster.listed_in(SECRETS, "umbra")
        assert serving.keys == ["acme/a", "umbra/b"]


async def test_a_new_set_of_places_changes_only_the_difference() -> None:
    scope = _scope("acme", "umbra")
    serving = Serving(scope)
    async with serving.run(watches=2):
        kept = serving.client.watches["umbra"]
        scope.set(["umbra", "third"])
        await until(lambda: set(serving.client.watches) == {"umbra", "third"})
        assert serving.client.watches["umbra"] is kept
        assert scope.places == {"umbra", "third"}


async def test_a_change_may_end_the_place_that_it_comes_from() -> None:
    scope = _scope("acme", "umbra")
    serving = Serving(scope)
    serving.secret("acme/a")
    serving.secret("acme/b")
    serving.controller.react = lambda _: scope.discard("acme")
    async with serving.run(watches=1):
        assert serving.controller.changes == ["+acme/a", "-acme/a"], "the rest of the list is ignored"
        assert serving.keys == []
        assert set(serving.client.watches) == {"umbra"}


async def test_a_change_may_begin_the_place_that_it_comes_from_anew() -> None:
    scope = _scope("acme")
    serving = Serving(scope)
    serving.secret("acme/a")
    serving.secret("acme/b")

    def react(change: str) -> None:
        if change == "-acme/a":
            scope.add("acme")
        elif serving.controller.changes == ["+acme/a"]:
            scope.discard("acme")

    serving.controller.react = react
    async with serving.run(watches=1):
        await serving.cluster.listed_in(SECRETS, "acme")
        assert serving.keys == ["acme/a", "acme/b"]
        assert serving.client.lists == ["acme", "acme"]


# -- single objects -------------------------------------------------------------------------------


async def test_single_objects_are_listed_and_watched_by_their_names() -> None:
    scope = _scope("acme/a", "umbra/b", by=By.KEY)
    serving = Serving(scope)
    serving.secret("acme/a")
    serving.secret("acme/hidden")
    async with serving.run(watches=2):
        assert sorted(serving.client.lists) == ["acme/a", "umbra/b"]
        assert serving.keys == ["acme/a"]
        serving.client.send("umbra/b", ("ADDED", serving.secret("umbra/b")))
        await until(lambda: serving.keys == ["acme/a", "umbra/b"])
        scope.discard("acme/a")
        assert serving.keys == ["umbra/b"]


def test_the_name_is_selected_beside_other_fields() -> None:
    namespace, selectors = By.KEY.selection("acme/a", {"fieldSelector": "type=Opaque", "labelSelector": "b=c"})
    assert namespace == "acme"
    assert selectors == {"fieldSelector": "type=Opaque,metadata.name=a", "labelSelector": "b=c"}
    assert By.KEY.selection("node-1", None) == ("", {"fieldSelector": "metadata.name=node-1"})


# -- refusals and relists -------------------------------------------------------------------------


@pytest.mark.parametrize("refusal", [FORBIDDEN, NOT_SERVED])
async def test_a_refused_place_keeps_no_other_from_being_in_step_and_works_once_it_is_granted(
    refusal: ApiError,
) -> None:
    serving = Serving(_scope("acme", "umbra"))
    serving.client.refused["umbra"] = refusal
    serving.secret("acme/a")
    serving.secret("umbra/b")
    async with serving.run(watches=1):
        assert serving.keys == ["acme/a"]
        assert serving.cluster.is_listed_in(SECRETS, "acme")
        assert not serving.cluster.is_listed_in(SECRETS, "umbra")
        await until(lambda: serving.client.lists.count("umbra") > 3)
        assert serving.client.lists.count("acme") == 1
        del serving.client.refused["umbra"]
        await serving.cluster.listed_in(SECRETS, "umbra")
        assert serving.keys == ["acme/a", "umbra/b"]


async def test_a_place_that_does_not_answer_keeps_the_kind_from_being_in_step() -> None:
    serving = Serving(_scope("acme", "umbra"))
    serving.client.refused["umbra"] = Unreachable("no connection")
    async with asyncio.timeout(10), in_background(serving.cluster.run(lambda: None)):
        await until(lambda: serving.client.lists.count("umbra") > 1)
        await serving.cluster.listed_in(SECRETS, "acme")
        assert not serving.cluster.is_synced
        del serving.client.refused["umbra"]
        await until(lambda: serving.cluster.is_synced)


async def test_a_new_list_of_one_place_leaves_the_objects_of_others() -> None:
    serving = Serving(_scope("acme", "umbra"))
    serving.secret("acme/a")
    serving.secret("acme/lost")
    serving.secret("umbra/b")
    async with serving.run(watches=2):
        serving.controller.changes.clear()
        serving.lose("acme/lost")
        serving.client.send("acme", ("ERROR", GONE))
        await until(lambda: serving.client.lists.count("acme") == 2 and "acme" in serving.client.watches)
        assert serving.controller.changes == ["-acme/lost"]
        assert serving.keys == ["acme/a", "umbra/b"]
        assert serving.client.lists.count("umbra") == 1


async def test_restored_data_of_one_place_leaves_the_objects_of_others() -> None:
    serving = Serving(_scope("acme", "umbra"))
    serving.secret("acme/a", version=90)
    serving.secret("umbra/b", version=100)
    async with serving.run(watches=2):
        serving.controller.changes.clear()
        serving.secret("acme/a", version=20)
        serving.client.send("acme", ("ERROR", GONE))
        await until(lambda: serving.client.lists.count("acme") == 2 and "acme" in serving.client.watches)
        assert serving.controller.changes == ["-acme/a", "+acme/a"]
        assert serving.keys == ["acme/a", "umbra/b"]


async def test_a_cluster_that_is_served_again_lists_its_places_again() -> None:
    serving = Serving(_scope("acme"))
    async with serving.run(watches=1):
        assert serving.cluster.is_listed_in(SECRETS, "acme")
    assert not serving.cluster.is_listed_in(SECRETS, "acme")
    serving.secret("acme/a")
    async with serving.run(watches=1):
        assert serving.keys == ["acme/a"]


async def test_a_kind_that_is_watched_again_reports_a_change_of_its_places_once() -> None:
    scope = _scope("acme")
    serving = Serving(scope)
    serving.secret("acme/a")
    async with serving.run(watches=1):
        serving.cluster.leave(HOME)
        await until(lambda: not serving.client.watches)
        again = Listening(scope, name="again")
        serving.cluster.listen(serving.lane.listener("again", again.watches()[0]))
        await serving.cluster.listed_in(SECRETS, "acme")
        again.changes.clear()
        scope.discard("acme")
        assert again.changes == ["-acme/a"]


async def test_a_kind_without_places_is_in_step() -> None:
    serving = Serving(_scope())
    async with serving.run(watches=0):
        assert serving.cluster.is_listed(SECRETS)
        assert serving.client.lists == []


# -- waiting for a place --------------------------------------------------------------------------


async def test_the_wait_for_a_place_has_a_limit() -> None:
    serving = Serving(_scope("acme", "umbra"))
    serving.client.refused["umbra"] = FORBIDDEN
    async with serving.run(watches=1):
        await serving.cluster.listed_in(SECRETS, "acme", seconds=0)
        with pytest.raises(TimeoutError):
            await serving.cluster.listed_in(SECRETS, "umbra", seconds=0)


async def test_the_wait_for_a_place_ends_when_it_leaves_the_scope() -> None:
    scope = _scope("acme", "umbra")
    serving = Serving(scope)
    serving.client.refused["umbra"] = FORBIDDEN
    async with serving.run(watches=1):
        asyncio.get_running_loop().call_soon(scope.discard, "umbra")
        with pytest.raises(TimeoutError, match="'umbra' was not listed before it left the scope of secrets"):
            await serving.cluster.listed_in(SECRETS, "umbra")


async def test_the_wait_for_a_place_that_the_scope_does_not_have_is_an_error() -> None:
    serving = Serving(_scope("acme"))
    async with serving.run(watches=1):
        with pytest.raises(KeyError):
            await serving.cluster.listed_in(SECRETS, "umbra")
        with pytest.raises(KeyError):
            await serving.cluster.listed_in(Namespace.resource, "umbra")


async def test_a_kind_without_a_scope_is_listed_in_every_place() -> None:
    serving = Serving(None)
    serving.client.refused.clear()
    async with serving.run(watches=1):
        await serving.cluster.listed_in(SECRETS, "acme", seconds=0)
        assert serving.cluster.is_listed_in(SECRETS, "acme")


# -- probes ---------------------------------------------------------------------------------------


async def test_a_probe_asks_where_the_client_has_been_granted_a_list() -> None:
    serving = Serving(_scope("acme", "umbra"))
    serving.client.refused["acme"] = FORBIDDEN
    async with serving.run(watches=1):
        serving.client.lists.clear()
        await serving.cluster._probe()  # pyright: ignore[reportPrivateUsage] - as an outage does
        assert serving.client.lists[-1] == "umbra"


async def test_a_probe_names_the_selection_of_the_kind() -> None:
    fields = {"fieldSelector": "metadata.name=own"}
    own = Watch(resource=Namespace.resource, decode=_decode_namespace, keys=lambda _: (), selectors=fields)
    serving = Serving(_scope("acme"), own)
    await serving.cluster._probe()  # pyright: ignore[reportPrivateUsage] - as an outage does
    assert serving.client.lists == ["own"]


async def test_a_client_without_places_sends_no_probe() -> None:
    serving = Serving(_scope())
    await serving.cluster._probe()  # pyright: ignore[reportPrivateUsage] - as an outage does
    assert serving.client.lists == []


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize("other", [None, _scope("acme")])
def test_listeners_with_different_scopes_are_refused(other: WatchScope | None) -> None:
    cluster = Cluster(HOME, PlaceClient(World()), clock=ManualClock(), instance="test")
    runtime = Runtime(clock=ManualClock(), metrics=Metrics())
    one, two = Listening(_scope("acme"), name="one"), Listening(other, name="two")
    with pytest.raises(ValueError, match="controllers 'one' and 'two' want different scopes of secrets"):
        runtime.add(cluster, [one, two])


def test_listeners_with_the_same_scope_share_it() -> None:
    scope = _scope("acme")
    cluster = Cluster(HOME, PlaceClient(World()), clock=ManualClock(), instance="test")
    controllers = [Listening(scope, name="one"), Listening(scope, name="two")]
    Runtime(clock=ManualClock(), metrics=Metrics()).add(cluster, controllers)
    assert len(cluster.cache(SECRETS)) == 0


def test_a_kind_without_namespaces_has_no_scope_of_namespaces() -> None:
    with pytest.raises(ValueError, match="namespaces has no namespaces"):
        Serving(_scope("acme"), resource=Namespace.resource)


@pytest.mark.parametrize(
    ("by", "place"),
    [(By.NAMESPACE, ""), (By.NAMESPACE, "acme/a"), (By.KEY, ""), (By.KEY, "acme/"), (By.KEY, "/a"), (By.KEY, "a/b/c")],
)
def test_what_is_no_place_is_refused(by: By, place: str) -> None:
    scope = WatchScope(by)
    with pytest.raises(ValueError, match="is no"):
        scope.add(place)
    with pytest.raises(ValueError, match="is no"):
        scope.set(["acme", place])
    assert scope.places == frozenset()


# -- the cluster of tests ---------------------------------------------------------------------------


def test_the_cluster_of_tests_looks_only_into_places() -> None:
    scope = _scope("acme")
    world = World()
    for name in ("acme", "umbra"):
        world.put_in(Namespace.resource, {"metadata": {"name": name}})
        world.put_in(SECRETS, {"metadata": {"namespace": name, "name": "a"}})
    cluster = WorldCluster(world, [Listening(scope)])
    assert [each.key for each in cluster.cache(SECRETS)] == ["acme/a"]
    scope.set(["umbra"])
    assert not cluster.is_listed_in(SECRETS, "umbra")
    cluster.look()
    assert [each.key for each in cluster.cache(SECRETS)] == ["umbra/a"]
    assert cluster.is_listed_in(SECRETS, "umbra")
