"""Plans that read first, and writes that are refused: what the caches know afterwards decides, without I/O."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tenantry.api.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound
from tenantry.api.kubernetes import Namespace, ResourceQuota, ResourceQuotaSpec
from tenantry.api.marks import MANAGED_BY, MANAGER
from tenantry.api.model import ObjectMeta
from tenantry.engine import request
from tenantry.engine.apply import Applier, Outcome
from tenantry.engine.observed import Observed
from tenantry.engine.plan import Amendment, DirectWrite, Plan, Read
from testkit.model import World
from testkit.treeworld import operator
from testkit.worldcluster import WorldCluster

OURS = {MANAGED_BY: MANAGER}
READ = Read(resource=Namespace.resource, name="a")


def _scene() -> tuple[World, WorldCluster]:
    world = World()
    world.put_in(Namespace.resource, {"metadata": {"name": "a"}})
    return world, operator(world)


def _seen(cluster: WorldCluster, name: str = "a") -> Observed:
    found: Observed | None = cluster.cache(Namespace.resource).get(name)
    assert found is not None
    return found


def _apply(cluster: WorldCluster, plan: Plan) -> Outcome:
    return asyncio.run(cluster.writer.apply(plan))


def _quota(**labels: str) -> ResourceQuota:
    meta = ObjectMeta(name="q", namespace="a", labels=labels)
    return ResourceQuota(metadata=meta, spec=ResourceQuotaSpec(hard={"pods": "1"}))


def test_a_read_brings_the_cache_up_to_date_before_anything_is_written() -> None:
    world, cluster = _scene()
    world.patch(Namespace.resource, "a", {"metadata": {"labels": {"seen": "yes"}}})
    write = DirectWrite(request=request.create(_quota()))
    outcome = _apply(cluster, Plan(reads=(READ,), writes=(write,)))
    assert [each.name for each in outcome.found] == ["a"]
    assert _seen(cluster).labels == {"seen": "yes"}
    assert (ResourceQuota.resource, "a/q") in world.objects


def test_a_read_of_an_object_that_is_gone_takes_it_out_of_the_cache() -> None:
    world, cluster = _scene()
    world.delete(Namespace.resource, "a")
    world.finish_deletions()
    assert _apply(cluster, Plan(reads=(READ,))).found == ()
    assert cluster.cache(Namespace.resource).get("a") is None


def test_a_list_reads_what_the_selectors_select() -> None:
    world, cluster = _scene()
    world.put_in(Namespace.resource, {"metadata": {"name": "b", "labels": OURS}})
    selected = Read(resource=Namespace.resource, selectors={"labelSelector": f"{MANAGED_BY}={MANAGER}"})
    assert [each.name for each in _apply(cluster, Plan(reads=(selected,))).found] == ["b"]
    assert _seen(cluster, "b").labels == OURS


def _creation(seen: Observed, **fields: Any) -> Plan:  # noqa: ANN401 - of the write
    again = Read(resource=Namespace.resource, name="a", version=seen.version)
    return Plan(writes=(DirectWrite(request=request.create(_quota()), ignores=(), rereads=(again,), **fields),))


def test_a_refusal_that_a_changed_object_explains_is_no_failure() -> None:
    world, cluster = _scene()
    seen = _seen(cluster)
    world.delete(Namespace.resource, "a")
    outcome = _apply(cluster, _creation(seen))
    assert (outcome.written, outcome.error) == ((), None)
    assert _seen(cluster).deleting, "the next plan knows"
    again = _apply(cluster, _creation(_seen(cluster)))
    assert isinstance(again.error, Forbidden), "nothing has changed since: a person should know"


def test_a_refusal_that_is_no_conflict_is_not_explained_by_a_change() -> None:
    world, cluster = _scene()
    seen = _seen(cluster)
    world.delete(Namespace.resource, "a")
    world.finish_deletions()
    write = DirectWrite(request=request.create(_quota()), ignores=())
    assert isinstance(_apply(cluster, Plan(writes=(write,))).error, NotFound)
    assert _apply(cluster, _creation(seen)).error is None


@pytest.mark.parametrize("labels", [{}, OURS])
def test_a_name_that_is_taken_gets_the_labels_and_nothing_else(labels: dict[str, str]) -> None:
    world, cluster = _scene()
    world.put_in(ResourceQuota.resource, {"metadata": {"name": "q", "namespace": "a", "labels": labels}, "spec": {}})
    create = request.create(_quota(**OURS))
    assert isinstance(_apply(cluster, Plan(writes=(DirectWrite(request=create),))).error, AlreadyExists)
    outcome = _apply(cluster, Plan(writes=(DirectWrite(request=create, once=True),)))
    assert (len(outcome.written), outcome.error) == (1, None)
    found = world.get(ResourceQuota.resource, "a/q")
    assert (found["metadata"]["labels"], found["spec"]) == (OURS, {})


def test_a_second_request_follows_from_the_response_of_the_first() -> None:
    """Its resourceVersion is that of the response, so that a change in between is a conflict."""
    world, cluster = _scene()

    def then(found: Observed) -> request.ApiRequest:
        body = {"metadata": {"resourceVersion": str(found.version)}, "status": {"hard": {"pods": "1"}}}
        return request.patch(ResourceQuota.resource, "a", "q", body, subresource="status")

    _apply(cluster, Plan(writes=(DirectWrite(request=request.create(_quota()), then=then),)))
    assert world.get(ResourceQuota.resource, "a/q")["status"] == {"hard": {"pods": "1"}}
    late = {"metadata": {"resourceVersion": "1"}}
    stale = DirectWrite(request=request.patch(ResourceQuota.resource, "a", "q", late), then=then)
    assert isinstance(_apply(cluster, Plan(writes=(stale,))).error, Conflict)


@pytest.mark.parametrize("answer", [b"<html>Sign in</html>", b"{}", b'{"metadata": {"name": 1}}', b"[]", b""])
def test_a_response_that_is_no_object_is_an_error_of_the_api_server(answer: bytes) -> None:
    """A proxy in between may answer anything; the work on other objects, and on other clusters, goes on."""
    _, cluster = _scene()
    amendment = Amendment(resource=Namespace.resource, seen=_seen(cluster), change=lambda _: {"metadata": {}})
    works = (Applier(cluster).own(request.create(_quota())), Applier(cluster).amend(amendment))
    for work in works:
        asked = request.resume(work, None)
        inner = asked.work[0] if isinstance(asked, request.Together) else work
        if inner is not work:
            request.resume(inner, None)
        with pytest.raises(ApiError, match="is no object of its kind"):
            request.resume(inner, answer)


def test_a_plan_whose_first_write_was_ignored_is_not_done() -> None:
    """What follows a finalizer must not look as if it were there: its owner is gone."""
    world, cluster = _scene()
    finalizer = request.patch(ResourceQuota.resource, "a", "gone", {"metadata": {"finalizers": ["x"]}})
    plan = Plan(before=(DirectWrite(request=finalizer),), writes=(DirectWrite(request=request.create(_quota())),))
    outcome = _apply(cluster, plan)
    assert (outcome.is_abandoned, outcome.written, outcome.error) == (True, (), None)
    assert (ResourceQuota.resource, "a/q") not in world.objects
