"""Mirrored objects over time: whatever happens on both sides and to the operator, the lower side comes to rest."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from tenantry.api.errors import Conflict, NotFound
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import ObjectMeta
from tenantry.mirror import endpoints, volumes
from tenantry.mirror.endpoints import SLICES
from tenantry.mirror.kinds import budgets, claims, networkpolicies, routes, services, volumesnapshots
from tenantry.mirror.kinds.kind import MirroredKind
from tenantry.mirror.objectmirror import FIRST_SECONDS, ObjectMirror
from tenantry.mirror.refusals import MOST_RETRY_SECONDS
from tenantry.mirror.shapes import NotTranslated
from tenantry.mirror.things import PODS
from testkit import runs
from testkit.examples import examples
from testkit.mirroring import PROFILE
from testkit.mirrorobjects import FOREIGN, GADGET, KINDS, ObjectStory, pod, upper_object, written_slice

Json = dict[str, Any]

NAMES = ("a", "b")
LONG = 2 * MOST_RETRY_SECONDS


DEEDS = (
    "bind",
    "kind",
    "slice",
    "no slice",
    "pod",
    "no pod",
    "create",
    "edit",
    "delete",
    "delete below",
    "edit below",
    "label",
    "first",
    "settle",
)
STORIES = st.lists(
    st.tuples(
        st.sampled_from(DEEDS), st.sampled_from(KINDS), st.sampled_from(NAMES), st.integers(min_value=0, max_value=2)
    ),
    max_size=12,
)


def _do(sides: ObjectStory, deed: str, kind: MirroredKind, name: str, number: int) -> None:
    key, below = f"shop/{name}", sides.lower_key(kind, name)
    match deed:
        case "create":
            sides.create(kind, name, number)
        case "edit":
            made = upper_object(kind, name, number)
            patch: Json = {"metadata": {"labels": {"number": None, f"n{number}": ""}}, "spec": made["spec"]}
            sides.upper.patch(kind.resource, key, patch)
        case "delete":
            sides.upper.delete(kind.resource, key)
        case "delete below":
            sides.lower.delete(kind.resource, below)
        case "edit below":
            # What the lower side's own programs put there is left alone.
            edited: Json = {
                "metadata": {"labels": {"of-below": "1"}},
                "spec": {"selector": {"app": "x"}, "ports": None, "rules": []},
            }
            sides.lower.patch(kind.resource, below, edited)
        case "label":
            team = ["shop", "stock"][number % 2]
            sides.upper.patch(Namespace.resource, "shop", {"metadata": {"labels": {"team": team}}})
        case "first" if kind.chosen is not None:
            # Made first, for an upper object that is never stored.
            meta = {"creationTimestamp": "1970-01-01T00:00:00Z"}
            wanted = sides.mirror(kind).wanted(upper_object(kind, name, number), None)
            sides.lower.put_in(kind.resource, {**wanted, "metadata": {**wanted["metadata"], **meta}})
        case "bind":
            bound = {"phase": "Bound", "capacity": {"storage": f"{number}Gi"}}
            key = sides.lower_key(claims.KIND, name)
            sides.lower.patch(claims.RESOURCE, key, {"spec": {"volumeName": "of-the-host"}, "status": bound})
        case "kind":
            sides.serve(kind)
        case _:
            _do_to_endpoints(sides, deed, name, number)


def _do_to_endpoints(sides: ObjectStory, deed: str, name: str, number: int) -> None:
    match deed:
        case "slice":
            with suppress(NotFound):
                sides.upper.delete(SLICES, f"shop/{name}")
            sides.upper.put_in(SLICES, written_slice(name, number))
        case "no slice":
            sides.upper.delete(SLICES, f"shop/{name}")
        case "pod":
            sides.lower.put_in(PODS, pod(f"pod-{number}", number))
        case "no pod":
            sides.lower.delete(PODS, f"{PROFILE.namespace}/pod-{number}")
        case _:
            sides.settle()


@examples(100)
@given(story=STORIES, faults=st.lists(st.sampled_from(runs.FAULTS), max_size=15))
@example(
    story=[(deed, networkpolicies.KIND, "a", 1) for deed in ("label", "create", "settle")]
    + [("label", networkpolicies.KIND, "a", 0)],
    faults=[],
)
@example(story=[(deed, networkpolicies.KIND, "a", 1) for deed in ("create", "settle", "label")], faults=[])
@example(story=[(deed, services.KIND, "a", 2) for deed in ("create", "slice", "pod", "settle")], faults=[])
@example(story=[(deed, claims.KIND, "a", 1) for deed in ("create", "settle", "bind")], faults=[])
@example(
    story=[(deed, claims.KIND, "a", 1) for deed in ("create", "settle", "bind", "settle", "delete", "create")],
    faults=[],
)
@example(story=[(deed, volumesnapshots.KIND, "a", 1) for deed in ("create", "settle", "kind")], faults=[])
@example(story=[(deed, routes.HTTP_KIND, "a", 1) for deed in ("create", "settle", "kind", "kind")], faults=[])
@example(story=[(deed, services.KIND, "a", 2) for deed in ("create", "slice", "pod", "settle", "no slice")], faults=[])
def test_the_lower_side_follows_the_upper_one_and_comes_to_rest(
    story: list[tuple[str, MirroredKind, str, int]], faults: list[str]
) -> None:
    """A crash between any two writes leaves no orphan; another operator finds nothing to do."""
    sides = ObjectStory(faults)
    sides.play(story, lambda deed: _do(sides, *deed))
    sides.settle(LONG)
    sides.faults.clear()
    sides.settle(LONG + FIRST_SECONDS)
    for kind in KINDS:
        wanted = {each["metadata"]["name"]: each for each in sides.upper.list(kind.resource)}
        assert len(sides.lower.list(kind.resource)) == 1 + len(wanted)
        for name, upper in wanted.items():
            lower = sides.below_of(kind, name)
            assert lower is not None
            labels = {key: value for key, value in lower["metadata"]["labels"].items() if key != "of-below"}
            assert labels == {**upper["metadata"].get("labels", {}), **PROFILE.labels("shop")}
            assert lower["metadata"]["annotations"]["example.dev/uid"] == upper["metadata"]["uid"]
            if kind is claims.KIND and lower.get("status"):
                assert upper["spec"]["volumeName"] == volumes.name(upper["metadata"]["uid"])
                assert upper["status"] == lower["status"]
            if kind is GADGET:
                service = PROFILE.lower_name("Service", "shop", upper["spec"]["service"])
                below = {key: lower["spec"].get(key) for key in ("service", "everywhere", "size", "selector")}
                assert below == {
                    "service": service,
                    "everywhere": None,
                    "size": upper["spec"]["size"],
                    "selector": None,
                }
            if kind is services.KIND:
                _leads_as_written(sides, name, upper, lower)
            if kind is networkpolicies.KIND:
                selected = {
                    value
                    for rule in lower["spec"].get("ingress", ())
                    for peer in rule["from"]
                    for each in peer["podSelector"]["matchExpressions"]
                    if each["key"] == "example.dev/namespace"
                    for value in each["values"]
                }
                is_both = sides.upper.get(Namespace.resource, "shop")["metadata"]["labels"]["team"] == "stock"
                expected = {"shop", "stock"} if is_both else {"stock"}
                assert selected == (expected if upper["spec"]["ingress"] else set())
    _shows_volumes(sides)
    revisions = sides.upper.revision, sides.lower.revision
    sides.restart()
    sides.settle(100.0)
    assert (sides.upper.revision, sides.lower.revision) == revisions, "another operator finds nothing to do"


def _shows_volumes(sides: ObjectStory) -> None:
    """Each is of a claim that exists, and has nothing of the host's; those of users stay."""
    shown = {each["metadata"]["name"]: each for each in sides.upper.list(volumes.RESOURCE)}
    assert shown.pop("first")["spec"] == FOREIGN["spec"]
    known = {each["spec"].get("volumeName"): each for each in sides.upper.list(claims.RESOURCE)}
    for name, each in shown.items():
        assert each["spec"]["claimRef"]["uid"] == known[name]["metadata"]["uid"]
        assert each["status"] == {"phase": "Bound"}
        below = sides.below_of(claims.KIND, known[name]["metadata"]["name"])
        assert below is not None
        if below.get("status"):
            assert each["spec"]["capacity"] == below["status"]["capacity"]
        assert "of-the-host" not in str(each)


def _leads_as_written(sides: ObjectStory, name: str, upper: Json, lower: Json) -> None:
    """OUT-2: a Service without a selector leads to own pods that a slice names, and to no others."""
    mark = endpoints.label(PROFILE, "shop", name)
    serving = {each["metadata"]["name"] for each in sides.lower.list(PODS) if mark in each["metadata"]["labels"]}
    slices = [each for each in sides.upper.list(SLICES) if each["metadata"]["name"] == name]
    if upper["spec"].get("selector"):
        assert lower["spec"]["ports"] == upper["spec"]["ports"]
        assert serving == set()
        return
    assert lower["spec"]["selector"] == {"example.dev/owner": PROFILE.owner_uid, mark: ""}
    targets = [port["targetPort"] for port in lower["spec"]["ports"] if "targetPort" in port]
    assert targets == [each["ports"][0]["port"] for each in slices]
    named = {each["endpoints"][0]["addresses"][0] for each in slices}
    pods = [each for each in sides.lower.list(PODS) if each["metadata"]["name"] != "first"]
    assert serving == {each["metadata"]["name"] for each in pods if each["status"]["podIPs"][0]["ip"] in named}


def test_a_change_that_was_made_first_stays_until_the_upper_object_follows() -> None:
    """H01: the event of the lower change comes first; what is stored on neither side is taken back after a while."""
    sides = ObjectStory()
    sides.upper.put_in(services.RESOURCE, upper_object(services.KIND, "a", 0))
    sides.settle()
    stored = sides.upper.get(services.RESOURCE, "shop/a")
    wanted = {**stored, "spec": {**stored["spec"], "ports": [{"port": 90}]}}
    mirror = sides.mirror(services.KIND)
    asyncio.run(mirror.make_first(wanted, stored, is_dry_run=False))
    sides.settle()

    def ports() -> object:
        found = sides.below_of(services.KIND, "a")
        return found["spec"]["ports"] if found is not None else None

    assert ports() == [{"port": 90}]
    sides.settle(2 * FIRST_SECONDS)
    assert ports() == [{"port": 80}]
    asyncio.run(mirror.make_first(wanted, stored, is_dry_run=False))
    sides.upper.patch(services.RESOURCE, "shop/a", {"spec": wanted["spec"]})
    sides.settle(2 * FIRST_SECONDS)
    assert ports() == [{"port": 90}]


def test_an_object_too_many_or_too_large_hardly_takes_memory() -> None:
    """X03: users choose how many objects there are; one too many goes down as soon as there is room."""
    sides = ObjectStory(profile=replace(PROFILE, most_objects=1))
    sides.upper.put_in(services.RESOURCE, upper_object(services.KIND, "a", 0))
    sides.settle()
    sides.upper.put_in(services.RESOURCE, upper_object(services.KIND, "b", 1))
    large = upper_object(budgets.KIND, "b", 0)
    large["metadata"]["annotations"] = {"a": "x" * 300_000}
    sides.upper.put_in(budgets.RESOURCE, large)
    sides.settle()
    assert sides.below_of(services.KIND, "b") is None
    assert sides.below_of(budgets.KIND, "b") is None
    for kind in (services.KIND, budgets.KIND):
        (kept,) = (each for each in sides.above.cache(kind.resource) if each.key == "shop/b")
        assert len(str(kept.object)) < 300
    told = {key: note for key, _, _, note in sides.above.said}
    assert "256 KiB" in told["shop/b"] or "more than 1 services exist" in told["shop/b"]
    sides.upper.delete(services.RESOURCE, "shop/a")
    sides.settle(LONG)
    below = sides.below_of(services.KIND, "b")
    assert below is not None
    assert below["spec"]["ports"] == [{"port": 81}]


def test_the_service_of_the_api_server_is_left_whatever_users_do_with_their_own() -> None:
    """H01: the lower one is another client's, also while there is no upper one; it never gets an upper spec."""
    sides = ObjectStory()
    sides.upper.create(Namespace(metadata=ObjectMeta(name="default")))
    upper: Json = {**upper_object(services.KIND, "kubernetes", 1)}
    upper["metadata"] = {"name": "kubernetes", "namespace": "default"}
    meta = {
        "name": PROFILE.lower_name("Service", "default", "kubernetes"),
        "namespace": PROFILE.namespace,
        "labels": PROFILE.labels("default"),
        "annotations": {PROFILE.mark("name"): "kubernetes", PROFILE.mark("namespace"): "default"},
        "creationTimestamp": "1970-01-01T00:00:00Z",
    }
    before = sides.lower.put_in(services.RESOURCE, {"metadata": meta, "spec": {"clusterIP": "10.96.0.7"}})
    key = f"{PROFILE.namespace}/{meta['name']}"
    sides.settle(LONG)
    sides.upper.put_in(services.RESOURCE, upper)
    sides.settle(LONG)
    sides.upper.delete(services.RESOURCE, "default/kubernetes")
    sides.settle(LONG)
    mirror = sides.above.lane.controllers["services"]
    assert isinstance(mirror, ObjectMirror)
    assert asyncio.run(mirror.make_first(upper, None, is_dry_run=False)) == upper
    after = sides.lower.get(services.RESOURCE, key)
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


def test_a_service_that_is_created_again_gets_nothing_of_its_predecessor() -> None:
    """H01: the lower one is there for a moment longer; and what a user deletes can go whatever the lower side says."""
    sides = ObjectStory()
    sides.upper.put_in(services.RESOURCE, upper_object(services.KIND, "a", 0))
    sides.settle()
    before = sides.upper.get(services.RESOURCE, "shop/a")
    mirror = sides.mirror(services.KIND)
    # A PUT need not have the uid.
    plain = {**upper_object(services.KIND, "a", 1), "metadata": {"name": "a", "namespace": "shop"}}
    asyncio.run(mirror.make_first(plain, before, is_dry_run=False))
    below = sides.below_of(services.KIND, "a")
    assert below is not None
    assert below["spec"]["ports"] == [{"port": 81}]
    dying = {**plain, "metadata": {**plain["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert asyncio.run(mirror.make_first(dying, before, is_dry_run=False)) == dying
    # Deleted and created before the mirror has seen either.
    sides.upper.delete(services.RESOURCE, "shop/a")
    new = upper_object(services.KIND, "a", 2)
    stored = asyncio.run(mirror.make_first(new, None, is_dry_run=False))
    assert stored["spec"]["ports"] == [{"port": 82}]
    sides.upper.put_in(services.RESOURCE, stored)
    sides.settle(LONG)
    after = sides.below_of(services.KIND, "a")
    assert after is not None
    assert after["spec"]["clusterIP"] == stored["spec"]["clusterIP"]
    assert after["metadata"]["annotations"]["example.dev/uid"] != before["metadata"]["uid"]
    # One that is being deleted gives nothing away.
    sides.upper.delete(services.RESOURCE, "shop/a")
    sides.lower.patch(services.RESOURCE, sides.lower_key(services.KIND, "a"), {"metadata": {"deletionTimestamp": "x"}})
    sides.below.look()
    with pytest.raises(Conflict, match="is being deleted"):
        asyncio.run(mirror.make_first(new, None, is_dry_run=False))


def test_no_service_is_made_first_beyond_the_limit() -> None:
    """X03: its lower object would stay without an upper one."""
    sides = ObjectStory(profile=replace(PROFILE, most_objects=1))
    sides.upper.put_in(services.RESOURCE, upper_object(services.KIND, "a", 0))
    sides.settle()
    with pytest.raises(NotTranslated, match="more than 1 services exist"):
        asyncio.run(sides.mirror(services.KIND).make_first(upper_object(services.KIND, "b", 0), None, is_dry_run=False))
    assert sides.below_of(services.KIND, "b") is None
