"""Own writes to kinds that are watched in places."""

from __future__ import annotations

from functools import partial

import msgspec

from tenantry.api.errors import Forbidden, NotFound
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import Resource
from tenantry.engine.cache import Cache, Change
from tenantry.engine.observed import observe
from tenantry.engine.scope import By
from testkit.model import Json

SECRETS = Resource("", "v1", "secrets", "Secret")
COLOUR = "tenantry.dev/colour"
GONE: Json = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
FORBIDDEN = Forbidden("secrets is forbidden", status=403)
NOT_SERVED = NotFound("the server could not find the requested resource", status=404)

_decode = partial(observe, SECRETS)
_decode_namespace = partial(observe, Namespace.resource)


# -- own writes -----------------------------------------------------------------------------------


class Thing(msgspec.Struct, frozen=True):
    """An object of a cache."""

    key: str
    version: int


def _cache(*places: str) -> Cache[Thing]:
    cache: Cache[Thing] = Cache(place_of=By.NAMESPACE.place_of)
    for place in places:
        cache.open(place)
    return cache


def test_the_progress_of_one_watch_hides_no_late_response_of_another_place() -> None:
    cache = _cache("acme", "umbra")
    cache.advance(50, "acme")
    assert cache.put(Thing("acme/a", 40)) is None, "its watch has reported the deletion"
    assert cache.put(Thing("umbra/a", 40)) is not None


def test_a_list_of_another_place_does_not_bring_back_what_a_response_reported_missing() -> None:
    cache = _cache("acme", "umbra")
    cache.put(Thing("acme/a", 40))
    cache.forget("acme/a", 40)
    cache.finish_list(set(), 60, "umbra")
    assert cache.put(Thing("acme/a", 39), listed=60) is None
    assert cache.get("acme/a") is None


def test_the_answer_to_a_write_in_a_place_is_stored_without_a_change() -> None:
    cache = _cache("acme")
    cache.expect("acme/a")
    assert cache.settle("acme/a", Thing("acme/a", 10)) is None
    assert cache.get("acme/a") == Thing("acme/a", 10)


def test_the_answer_to_a_write_outside_of_the_places_is_not_stored_and_is_no_deletion() -> None:
    cache = _cache("acme")
    cache.expect("umbra/a")
    assert cache.settle("umbra/a", Thing("umbra/a", 10)) is None
    assert cache.put(Thing("umbra/a", 11)) is None
    assert len(cache) == 0


def test_a_place_that_is_closed_during_a_write_shows_the_deletion_after_it() -> None:
    cache = _cache("acme")
    cache.put(Thing("acme/a", 10))
    cache.expect("acme/a")
    assert cache.close("acme") == []
    assert cache.settle("acme/a", Thing("acme/a", 11)) == Change(Thing("acme/a", 10), None)
    assert len(cache) == 0
