"""From any world, with faults between any two writes and two operators at once, a tenant becomes what it should be."""

from __future__ import annotations

import copy

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tenantry.api import reasons
from tenantry.api.errors import Unreachable
from tenantry.api.kubernetes import (
    ClusterNetworkPolicy,
    LimitRange,
    Namespace,
    NetworkPolicy,
    ResourceQuota,
    RoleBinding,
)
from tenantry.api.marks import SUSPENDED_SUBJECTS
from tenantry.api.model import Resource
from tenantry.api.tenant import NetworkIsolation, Tenant
from tenantry.controllers import tenantnamespace
from tenantry.controllers.conclusion import PATIENCE
from tenantry.controllers.tenant import desired, status
from tenantry.controllers.tenant.desired import whole
from tenantry.controllers.tenant.gather import CHILD_KINDS, TenantInputs, gather
from tenantry.engine.apply import Outcome
from tenantry.engine.conditions import is_true
from tenantry.engine.plan import Plan
from testkit import runs
from testkit.examples import examples
from testkit.model import Caches, Json, Running, World, is_labelled, operate
from testkit.worlds import CLUSTER_UID, group, service_account, tenant, user

KINDS = tuple(kind.resource for kind in CHILD_KINDS)
NOW = "2026-01-01T00:00:00Z"
# It is asked what it knows of how servers store things, and sends nothing.


def _inputs(value: Tenant, caches: Caches) -> TenantInputs:
    return gather(value, caches, cluster_uid=CLUSTER_UID)


def _plan(world: World, value: Tenant) -> Plan:
    return whole(_inputs(value, world.caches(*KINDS)))


def _reconcile(world: World, value: Tenant, caches: Caches) -> Running:
    return operate(whole(_inputs(value, caches)), caches, world)


def _run(world: World, value: Tenant) -> Outcome:
    """One reconcile in which nothing goes wrong."""
    running = _reconcile(world, value, world.caches(*KINDS))
    try:
        request = next(running)
        while True:
            request = runs.carried_out(running, request)
    except StopIteration as stop:
        outcome: Outcome = stop.value
        return outcome


# -- worlds ---------------------------------------------------------------------------------------

QUOTAS: st.SearchStrategy[dict[str, str | int]] = st.dictionaries(
    st.sampled_from(["cpu", "limits.memory", "pods", "count/secrets"]), st.sampled_from(["1", "2", "64Mi"]), max_size=3
)
OWNERS = st.lists(
    st.sampled_from([user("alice"), user("bob"), group("devs"), service_account("ci", "robot")]),
    min_size=1,
    max_size=3,
    unique_by=lambda owner: owner.name,
)
TENANTS = st.builds(
    tenant,
    st.just("acme"),
    owners=OWNERS,
    quota=QUOTAS,
    network=st.sampled_from(NetworkIsolation),
    cluster_policy=st.booleans(),
    suspended=st.booleans(),
)
SUBJECTS: st.SearchStrategy[list[Json]] = st.lists(
    st.sampled_from([{"kind": "User", "name": "carol"}, {"kind": "Group", "name": "g"}]), max_size=2
)
EDITS = st.sampled_from(["as it is", "absent", "without our labels", "other content", "surplus mark", "other role"])
OTHER: dict[Resource, Json] = {
    ResourceQuota.resource: {"spec": {"hard": {"pods": "999"}, "scopes": ["BestEffort"]}},
    LimitRange.resource: {"spec": {"limits": []}},
    NetworkPolicy.resource: {"spec": {"podSelector": {"matchLabels": {"a": "b"}}, "policyTypes": ["Egress"]}},
    RoleBinding.resource: {"subjects": [{"kind": "User", "name": "mallory"}]},
    ClusterNetworkPolicy.resource: {"spec": {"tier": "Baseline"}},
}


@st.composite
def worlds(draw: st.DrawFn, *, with_namespace: bool | None = None) -> World:
    """What an earlier spec of the same tenant left behind, as people and crashes changed it, beside others' objects."""
    world = World()
    _furnish_others(world)
    earlier = draw(TENANTS)
    has_namespace = draw(st.booleans()) if with_namespace is None else with_namespace
    for child in desired.children(earlier, CLUSTER_UID, has_cluster_policies=True):
        resource = child.object.resource
        value: Json = msgspec.to_builtins(child.object)
        edit = draw(EDITS)
        if not has_namespace and (value["metadata"].get("namespace") or resource == Namespace.resource):
            continue
        if edit == "absent" and resource != Namespace.resource:
            continue
        world.put_in(resource, _edited(resource, value, edit))
    if has_namespace:
        for name in ("theirs", "old"):
            value = {"metadata": {"name": name, "namespace": "acme"}, "roleRef": {"kind": "Role", "name": "r"}}
            subjects = draw(SUBJECTS)
            world.put_in(RoleBinding.resource, {**value, "subjects": subjects} if subjects else value)
        if draw(st.booleans()):
            world.delete(Namespace.resource, "acme")
    return world


def _edited(resource: Resource, value: Json, edit: str) -> Json:
    metadata: Json = value["metadata"]
    match edit:
        case "without our labels":
            metadata["labels"] = {"team": "x"}
        case "surplus mark":
            metadata["labels"]["tenantry.dev/suspended"] = "true"
            metadata["annotations"] = {"tenantry.dev/suspended-subjects": "[]", "note": "theirs"}
        case "other content":
            return {**value, **OTHER.get(resource, {})}
        case "other role" if resource == RoleBinding.resource:
            value["roleRef"] = {"kind": "ClusterRole", "name": "cluster-admin"}
        case _:
            pass
    return value


def _furnish_others(world: World) -> None:
    for name in ("globex", "default"):
        labels = {"app.kubernetes.io/managed-by": "tenantry", "tenantry.dev/tenant": "acme"}
        world.put_in(Namespace.resource, {"metadata": {"name": name, "labels": labels}})
        value: Json = {"metadata": {"name": "tenantry-owner", "namespace": name, "labels": labels}}
        world.put_in(RoleBinding.resource, {**value, "roleRef": {}, "subjects": [{"kind": "User", "name": "dave"}]})
        world.put_in(ResourceQuota.resource, {"metadata": {"name": "q", "namespace": name, "labels": labels}})


def _of_others(world: World, *names: str) -> dict[tuple[Resource, str], Json]:
    return copy.deepcopy(
        {
            (resource, key): value
            for (resource, key), value in world.objects.items()
            if value["metadata"].get("namespace", key) in names
        }
    )


# -- properties -----------------------------------------------------------------------------------


def _assert_is_desired(world: World, value: Tenant) -> None:
    assert _plan(world, value).is_empty, "the next plan is empty"
    children = desired.children(value, CLUSTER_UID, has_cluster_policies=True)
    for child in children:
        live = world.get(child.object.resource, child.object.key)
        wanted: Json = msgspec.to_builtins(child.object)
        for field in child.object.resource.owned:
            assert live.get(field) == wanted.get(field)
        labels: dict[str, str] = live["metadata"]["labels"]
        assert {key: text for key, text in labels.items() if key != "team"} == wanted["metadata"]["labels"]
    ours = {(child.object.resource, child.object.key) for child in children}
    for (resource, key), live in world.objects.items():
        # An object that lost our label meanwhile must not be deleted.
        if (key.startswith("acme/tenantry-") or key == "tenantry-acme") and is_labelled(live):
            assert (resource, key) in ours, "nothing of an earlier spec is left"
    for (resource, key), live in world.objects.items():
        if resource == RoleBinding.resource and key.startswith("acme/"):
            closed = SUSPENDED_SUBJECTS in (live["metadata"].get("annotations") or {})
            assert not (value.spec.suspended and live.get("subjects")), "no binding of a suspended tenant has subjects"
            assert value.spec.suspended or not closed, "all subjects are restored"


def _settle(world: World, value: Tenant) -> int:
    """Reconcile until nothing is to be done; return how many rounds it took."""
    for rounds in range(8):
        outcome = _run(world, value)
        if outcome.blocked:
            assert all(each.passing for each in outcome.blocked)
            world.finish_deletions()
        elif outcome.error is None and _plan(world, value).is_empty:
            return rounds
    raise AssertionError("it does not settle")


@given(TENANTS, worlds())
def test_from_any_world_one_pass_reaches_what_should_be(value: Tenant, world: World) -> None:
    """E01, E02, E03: hand edits are put back, what is not wanted any more goes, others' objects stay."""
    others = _of_others(world, "globex", "default")
    rounds = _settle(world, value)
    assert rounds <= 2, "one pass, or one more once a namespace that was going is gone"
    _assert_is_desired(world, value)
    assert _of_others(world, "globex", "default") == others


FAULTS = st.sampled_from(runs.FAULTS)


@examples(100)
@given(TENANTS, worlds(with_namespace=None), st.data())
def test_faults_and_two_operators_end_in_the_same_world(value: Tenant, world: World, data: st.DataObject) -> None:
    """E01, E02, E03: a write lost, an answer lost, a crash between any two writes, caches that lag, two operators."""
    others = _of_others(world, "globex", "default")
    seen = [world.caches(*KINDS)]
    running: runs.Operators = {}
    for _ in range(data.draw(st.integers(0, 25))):
        who = data.draw(st.integers(0, 1))
        if who not in running:
            lag = data.draw(st.integers(1, min(3, len(seen))))
            runs.begin(running, who, _reconcile(world, value, copy.deepcopy(seen[-lag])))
        if who in running:
            runs.go_on(running, who, data.draw(FAULTS))
        seen.append(world.caches(*KINDS))
        if data.draw(st.integers(0, 9)) == 0:
            world.finish_deletions()
    _settle(world, value)
    _assert_is_desired(world, value)
    assert _of_others(world, "globex", "default") == others


@given(TENANTS, st.data())
def test_the_owners_binding_is_never_made_before_what_limits_and_isolates(value: Tenant, data: st.DataObject) -> None:
    """E01, B03: whatever is lost on the way, people come last."""
    world = World()
    _furnish_others(world)
    for _ in range(40):
        work = _reconcile(world, value, world.caches(*KINDS))
        running: runs.Operators = {}
        runs.begin(running, 0, work)
        while 0 in running:
            runs.go_on(running, 0, data.draw(FAULTS))
            if (RoleBinding.resource, "acme/tenantry-owner") in world.objects:
                for child in desired.children(value, CLUSTER_UID, has_cluster_policies=True):
                    if child.wave < tenantnamespace.WAVE_PEOPLE:
                        world.get(child.object.resource, child.object.key)
        if _plan(world, value).is_empty:
            return
    raise AssertionError("it does not settle")


@given(TENANTS, SUBJECTS, st.sampled_from(["no owner", "another tenant"]))
def test_a_foreign_namespace_is_never_changed(value: Tenant, subjects: list[Json], owner: str) -> None:
    """E01: not even where its labels claim to be ours; the condition says why, and it resolves itself."""
    world = World()
    namespace: Json = {"metadata": {"name": "acme", "labels": {"tenantry.dev/tenant": "acme"}}}
    if owner == "another tenant":
        reference = {"apiVersion": "tenantry.dev/v1alpha1", "kind": "Tenant", "name": "acme", "controller": True}
        namespace["metadata"]["ownerReferences"] = [{**reference, "uid": "older"}]
    world.put_in(Namespace.resource, namespace)
    for name in ("tenantry-owner", "theirs"):
        labels = {"app.kubernetes.io/managed-by": "tenantry", "tenantry.dev/tenant": "acme"}
        binding: Json = {"metadata": {"name": name, "namespace": "acme", "labels": labels}, "roleRef": {}}
        world.put_in(RoleBinding.resource, {**binding, "subjects": subjects})
    before = _of_others(world, "acme")
    for _ in range(3):
        outcome = _run(world, value)
        assert outcome.blocked[0].reason == reasons.NAMESPACE_EXISTS
        assert _of_others(world, "acme") == before
    world.delete(Namespace.resource, "acme")
    world.finish_deletions()
    _settle(world, value)
    _assert_is_desired(world, value)


@given(TENANTS, worlds(with_namespace=True), st.data())
def test_a_suspension_gives_back_every_binding_exactly(value: Tenant, world: World, data: st.DataObject) -> None:
    """E02: nothing is lost, whatever fails in between."""
    value = msgspec.structs.replace(value, spec=msgspec.structs.replace(value.spec, suspended=False))
    _settle(world, value)
    before = _bindings(world)
    suspended = msgspec.structs.replace(value, spec=msgspec.structs.replace(value.spec, suspended=True))
    for wanted in (suspended, value):
        for _ in range(data.draw(st.integers(0, 3))):
            running: runs.Operators = {}
            runs.begin(running, 0, _reconcile(world, wanted, world.caches(*KINDS)))
            while 0 in running:
                runs.go_on(running, 0, data.draw(FAULTS))
        _settle(world, wanted)
        _assert_is_desired(world, wanted)
    assert _bindings(world) == before


def _bindings(world: World) -> dict[str, tuple[object, object]]:
    return {
        key: (value.get("subjects"), value.get("roleRef"))
        for (resource, key), value in world.objects.items()
        if resource == RoleBinding.resource
    }


@given(TENANTS, worlds(), st.lists(FAULTS, max_size=30))
def test_conditions_do_not_flap_while_things_go_wrong_for_a_moment(
    value: Tenant, world: World, faults: list[str]
) -> None:
    """E01: once Ready, a tenant stays Ready through a few failures in a row; the last status is a fixed point."""
    attempt = 0
    ready: list[bool] = []
    rest = list(faults)
    for _ in range(60):
        running: runs.Operators = {}
        work = _reconcile(world, value, world.caches(*KINDS))
        outcome: Outcome | None = None
        try:
            request = next(work)
            while True:
                # More failures in a row are reported, also of a write that follows Ready, as that of the summary.
                fault = rest.pop() if rest and attempt < PATIENCE else "none"
                request = work.throw(Unreachable("lost")) if fault == "lost" else runs.carried_out(work, request)
        except StopIteration as stop:
            outcome = stop.value
        assert outcome is not None
        found = status.compute(value, outcome, has_cluster_policies=True, attempt=attempt, now=NOW)
        attempt = attempt + 1 if outcome.error else 0
        value = msgspec.structs.replace(value, status=found)
        ready.append(is_true(found.conditions, reasons.READY))
        if outcome.blocked:
            world.finish_deletions()
        assert not running
    assert ready[-1]
    assert ready == sorted(ready), "from not ready to ready once, and never back"
    assert status.compute(value, _run(world, value), has_cluster_policies=True, attempt=0, now="later") == value.status
