"""What the operator keeps inside a control plane with nodes of its own (H04): pure."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Mapping
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.clusteraddons import AddOnMode, AddOnName, ClusterAddOn
from tenantry.api.marks import ADD_ON, FIELD_MANAGER
from tenantry.api.model import ObjectMeta, Resource
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers.clustercontents import bounded, desired, reverts, status
from tenantry.controllers.clustercontents.controller import ContentController
from tenantry.controllers.clustercontents.desired import ContentInputs, changer, created_once, differs, outdated, plan
from tenantry.controllers.clustercontents.gather import gather
from tenantry.controllers.clustercontents.objects import (
    CONFIG_MAPS,
    KINDS,
    RIGHTS,
    ContentFacts,
    ContentObject,
    objects,
)
from tenantry.controllers.clustercontents.reverts import MOST_REVERTS, PERIOD, RevertRecord
from tenantry.engine.cluster import Cluster
from tenantry.hosting.noderuntime import NodeRuntime
from tenantry.mirror import things
from tenantry.mirror.cachedpods import MOST_BYTES, Kept

Json = dict[str, Any]

NOW = dt.datetime(2026, 11, 28, 12, tzinfo=dt.UTC)
RUNTIME = NodeRuntime(
    handlers={"gvisor": "runsc", "runc": "runc"},
    dns_image="tenantry.local/coredns:1",
    storage_class="local",
    provisioner="local.tenantry.dev/folder",
    storage_user="tenantry:local-storage",
)
ALL = objects(ContentFacts(service_range="10.96.0.0/16", runtime=RUNTIME))
ROLE = "ClusterRole tenantry:netpol-agent"


def inputs(
    seen: Mapping[str, Json] | None = None,
    *given: ClusterAddOn,
    created: frozenset[AddOnName] = frozenset(),
    records: Mapping[str, RevertRecord] | None = None,
) -> ContentInputs:
    """Return the inputs; without objects, all are there as they should be."""
    there = {each.key: each.body for each in ALL} if seen is None else seen
    return ContentInputs(wanted=ALL, given=given, seen=there, created=created, records=records or {}, now=NOW)


def only(key: str) -> ContentObject:
    """Return one object."""
    (found,) = [each for each in ALL if each.key == key]
    return found


def without(*keys: str) -> dict[str, Json]:
    """Return all objects but some."""
    return {each.key: each.body for each in ALL if each.key not in keys}


def test_dns_has_the_tenth_address_of_the_primary_range() -> None:
    for range_, address in (
        ("10.96.0.0/16", "10.96.0.10"),
        ("10.7.4.0/24,fd00::/112", "10.7.4.10"),
        ("fd00::/112", "fd00::a"),
    ):
        found = objects(ContentFacts(service_range=range_, runtime=RUNTIME))
        (service,) = [each for each in found if each.key == "Service kube-system/kube-dns"]
        assert service.body["spec"]["clusterIP"] == address


def test_without_real_nodes_there_are_rights_and_the_network_policy() -> None:
    found = objects(ContentFacts(service_range="10.96.0.0/16"))
    assert {each.add_on for each in found} == {RIGHTS, AddOnName.NETWORK_POLICY}
    bare = objects(ContentFacts(service_range="10.96.0.0/16", runtime=NodeRuntime()))
    assert bare == found


def test_every_object_has_the_mark_and_a_kind_that_is_watched_and_a_name_of_its_own() -> None:
    assert all(each.body["metadata"]["labels"][ADD_ON] == each.add_on for each in ALL)
    assert {each.resource for each in ALL} <= {*KINDS}
    assert len({each.key for each in ALL}) == len(ALL)


def test_a_second_plan_is_empty_and_the_first_one_makes_everything() -> None:
    assert plan(inputs(), {}).apply == ()
    assert plan(inputs({}), {}).apply == ALL


def test_no_node_gets_rights_on_secrets_or_on_other_rights() -> None:
    bound = [each.body for each in ALL if each.resource.kind == "ClusterRoleBinding"]
    given_to = {subject["name"] for each in bound for subject in each["subjects"] if subject["kind"] == "Group"}
    assert given_to == {"system:nodes", "system:bootstrappers:tenantry"}
    made = {each.body["metadata"]["name"]: each.body for each in ALL if each.resource.kind == "ClusterRole"}
    rules = [rule for each in made.values() for rule in each["rules"]]
    assert not {"secrets", "*"} & {resource for rule in rules for resource in rule["resources"]}
    written = {(each, verb) for rule in rules for each in rule["resources"] for verb in rule["verbs"]}
    assert {(each, verb) for each, verb in written if verb not in {"list", "watch", "get"}} == {
        ("persistentvolumes", "create"),
        ("persistentvolumes", "delete"),
        ("events", "create"),
        ("events", "patch"),
    }


@pytest.mark.parametrize(
    ("wanted", "found", "is_other"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({"a": 1}, {}, True),
        ({"a": {"b": 1}}, {"a": "text"}, True),
        ({"a": [1]}, {"a": [1, 2]}, True),
        ({"a": [{"name": "x", "v": 1}]}, {"a": [{"name": "y"}, {"name": "x", "v": 1, "w": 2}]}, False),
        ({"a": [{"name": "x"}]}, {"a": [{"name": "y"}]}, True),
        ({"s": [{"kind": "User", "name": "x"}]}, {"s": [{"kind": "User", "name": "x"}, {"kind": "User"}]}, True),
        ({"a": []}, {"a": []}, False),
        ({"a": []}, {}, False),
    ],
)
def test_only_fields_of_the_operator_are_compared(wanted: Json, found: Json, *, is_other: bool) -> None:
    assert differs(wanted, found) is is_other


def test_the_last_writer_has_changed_it_and_writes_of_a_status_do_not_count() -> None:
    own: Json = {"manager": FIELD_MANAGER, "time": "2026-11-28T12:00:00Z"}
    other: Json = {"manager": "argocd", "time": "2026-11-28T12:00:00Z"}
    later: Json = {"manager": "kubectl-edit", "time": "2026-11-28T12:00:09Z"}
    assert changer([own]) == FIELD_MANAGER
    assert changer([own, other]) == "argocd"
    assert changer([own, other, later]) == "kubectl-edit"
    assert changer([own, {**later, "subresource": "status"}]) == FIELD_MANAGER
    assert changer([]) == FIELD_MANAGER


def test_after_three_reverts_against_one_manager_the_object_is_left() -> None:
    records: Mapping[str, RevertRecord] = {}
    for number in range(MOST_REVERTS):
        found = plan(
            replace(inputs(without(ROLE), records=records), now=NOW + dt.timedelta(minutes=number)), {ROLE: "argocd"}
        )
        assert [each.key for each in found.apply] == [ROLE]
        records = found.records
    now = NOW + dt.timedelta(minutes=9)
    left = plan(replace(inputs(without(ROLE), records=records), now=now), {ROLE: "argocd"})
    assert left.apply == ()
    told = status.condition(inputs(without(ROLE)), {}, left.records)
    assert (told.holds, told.reason) == (False, reasons.DRIFTED)
    for word in (ROLE, "'argocd'", "delete the object", "NetworkPolicy", "None"):
        assert word in told.message
    # Others are still brought back.
    other = "ClusterRoleBinding tenantry:node-proxiers"
    both = plan(inputs(without(ROLE, other), records=left.records), {ROLE: "argocd", other: reverts.DELETION})
    assert [each.key for each in both.apply] == [other]


def test_a_quarrel_ends_when_the_object_is_deleted_or_is_as_it_should_be_or_is_the_users() -> None:
    stopped = {ROLE: RevertRecord(manager="argocd", times=(NOW,) * 3, stopped=True)}
    deleted = plan(inputs(without(ROLE), records=stopped), {ROLE: reverts.DELETION})
    assert [each.key for each in deleted.apply] == [ROLE]
    assert not deleted.records[ROLE].stopped
    assert plan(inputs(records=stopped), {}).records == {}
    theirs = ClusterAddOn(name=AddOnName.NETWORK_POLICY, mode=AddOnMode.NONE)
    assert plan(inputs(without(ROLE), theirs, records=stopped), {ROLE: "argocd"}).records == {}
    # What deletes it again and again is no person.
    again = {ROLE: RevertRecord(manager=reverts.DELETION, times=(NOW,) * 3, stopped=True)}
    found = plan(inputs(without(ROLE), records=again), {ROLE: reverts.DELETION})
    assert found.apply == ()
    assert "is deleted again and again" in status.condition(inputs(), {}, found.records).message


@given(st.lists(st.tuples(st.sampled_from(["a", "b", ""]), st.integers(0, 400)), max_size=30))
def test_no_more_than_three_reverts_in_ten_minutes_stand_against_one_manager_in_a_row(
    changes: list[tuple[str, int]],
) -> None:
    record, now = None, NOW
    brought: list[tuple[str, dt.datetime]] = []
    for manager, seconds in changes:
        now += dt.timedelta(seconds=seconds)
        record = reverts.changed(record, manager, now)
        if record.stopped:
            continue
        brought.append((manager, now))
        row = [when for who, when in brought[-MOST_REVERTS - 1 :] if who == manager and now - when < PERIOD]
        assert len(row) <= MOST_REVERTS


def test_an_add_on_of_mode_once_is_created_and_then_left() -> None:
    once = ClusterAddOn(name=AddOnName.CORE_DNS, mode=AddOnMode.ONCE)
    keys = [each.key for each in ALL if each.add_on == AddOnName.CORE_DNS]
    first = inputs(without(*keys), once)
    assert [each.key for each in outdated(first)] == keys
    # Only part of it is there: it is not recorded before all of it is.
    assert created_once(inputs(without(keys[0]), once)) is None
    record = created_once(inputs(None, once))
    assert record is not None
    assert record.body["data"] == {"CoreDNS": "Once"}
    done = inputs(without(keys[0]), once, created=frozenset({AddOnName.CORE_DNS}))
    assert outdated(done) == ()
    assert created_once(done) is None
    # With another mode in between, it is created again.
    managed = inputs(None, created=frozenset({AddOnName.CORE_DNS}))
    forgotten = created_once(managed)
    assert forgotten is not None
    assert forgotten.body["data"] == {}


def test_an_add_on_of_mode_once_without_objects_is_not_recorded() -> None:
    once = ClusterAddOn(name=AddOnName.CORE_DNS, mode=AddOnMode.ONCE)
    early = objects(ContentFacts(service_range="10.96.0.0/16"))
    assert not [each for each in early if each.add_on == AddOnName.CORE_DNS]
    assert created_once(replace(inputs(None, once), wanted=early)) is None


def test_a_mode_of_none_leaves_what_is_there_and_rights_have_no_mode() -> None:
    none = tuple(ClusterAddOn(name=each, mode=AddOnMode.NONE) for each in AddOnName)
    assert {each.add_on for each in outdated(inputs({}, *none))} == {RIGHTS}
    told = status.condition(inputs(None, *none), {}, {})
    assert (told.holds, told.message) == (True, "add-ons are in place: none")


def test_a_refusal_inside_is_reported_with_the_object() -> None:
    told = status.condition(inputs(), {ROLE: "admission webhook denied the request"}, {})
    assert (told.holds, told.reason) == (False, reasons.REFUSED)
    assert f"{ROLE}: admission webhook denied" in told.message


def test_an_own_wish_that_changes_is_no_drift() -> None:
    before = {each.key: each.body for each in objects(ContentFacts(service_range="10.7.0.0/16", runtime=RUNTIME))}
    found = plan(inputs(before), {})
    assert [each.key for each in found.apply] == ["Service kube-system/kube-dns"]
    assert found.records == {}
    assert desired.outdated(inputs()) == ()


def stored(name: str, namespace: str, size: int) -> msgspec.Raw:
    """Return a ConfigMap with the label of the operator."""
    meta = {"name": name, "namespace": namespace, "uid": "u-1", "resourceVersion": "7", "labels": {ADD_ON: "CoreDNS"}}
    return msgspec.Raw(msgspec.json.encode({"metadata": meta, "data": {"Corefile": "x" * size}}))


def test_of_objects_that_users_give_the_label_only_heads_are_cached() -> None:
    wanted: set[tuple[Resource, str]] = {*bounded.ALWAYS}
    decode = bounded.decoder(CONFIG_MAPS, wanted)
    own = decode(stored("coredns", "kube-system", 1000))
    assert (own.kept, len(own.object["data"]["Corefile"])) == (Kept.WHOLE, 1000)
    for data in (stored("other", "kube-system", 100_000), stored("coredns", "default", 100_000)):
        found = decode(data)
        assert (found.kept, found.version, found.uid) == (Kept.TOO_MANY, 7, "u-1")
        assert len(found.text) < 200
    large = decode(stored("coredns", "kube-system", MOST_BYTES))
    assert (large.kept, len(large.text) < 200) == (Kept.TOO_LARGE, True)
    # One that the nodes make wanted later is kept when it is decoded again.
    wanted.add((CONFIG_MAPS, "default/coredns"))
    assert decode(stored("coredns", "default", 10)).kept is Kept.WHOLE


def test_objects_whose_names_do_not_depend_on_nodes_are_always_kept() -> None:
    names = {(each.resource, each.object_key) for each in ALL}
    depending = {each.kind for each, _ in names - bounded.ALWAYS}
    assert depending == {"RuntimeClass", "StorageClass"}


def test_a_wanted_object_that_was_cached_as_a_head_counts_as_it_was_read() -> None:
    """Its name was not known when it was decoded."""
    body = only("RuntimeClass runc").body
    cached = things.head(msgspec.Raw(msgspec.json.encode(body)), Kept.TOO_MANY)
    found = cast("Cluster", _Inside({"runc": cached}, body))
    facts = ContentFacts(service_range="10.96.0.0/16", runtime=RUNTIME)
    made = ContentController(found, "acme/prod", "p-1", lambda: facts)
    read = asyncio.run(made.read(found, facts))
    plane = VirtualControlPlane(metadata=ObjectMeta(name="prod", namespace="acme"))
    assert gather(found, plane, facts, {}, read).seen == {"RuntimeClass runc": body}


class _Inside:
    """As much of a cluster as is read."""

    def __init__(self, cached: dict[str, things.Thing], body: Json) -> None:
        self._cached = cached
        self._body = body
        self.live = self.clock = self

    def cache(self, _: Resource) -> dict[str, things.Thing]:
        return self._cached

    def now(self) -> dt.datetime:
        return NOW

    async def find(self, *_: str) -> bytes:
        return msgspec.json.encode(self._body)


def test_the_controller_caches_no_object_of_users_whole() -> None:
    facts = ContentFacts(service_range="10.96.0.0/16", runtime=RUNTIME)
    home = cast("Cluster", _Inside({}, {}))
    watches = {each.resource: each for each in ContentController(home, "acme/prod", "p-1", lambda: facts).watches()}
    assert watches[CONFIG_MAPS].decode(stored("other", "kube-system", 10)).kept is Kept.TOO_MANY
    assert watches[CONFIG_MAPS].decode(stored("coredns", "kube-system", 10)).kept is Kept.WHOLE
