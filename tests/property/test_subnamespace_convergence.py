"""From any world, with faults between any two writes and two operators at once, a tree becomes what it should be."""

from __future__ import annotations

import copy
import datetime as dt
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from tenantry.api import marks
from tenantry.api.kubernetes import Namespace, RoleBinding
from tenantry.api.model import ObjectMeta
from tenantry.api.owner import Owner
from tenantry.api.subnamespace import Inheritance, InheritanceMode, Mode, Subnamespace, SubnamespaceSpec
from tenantry.api.tenant import Tenant
from tenantry.controllers import watched
from tenantry.controllers.subnamespace import checks, desired
from tenantry.controllers.subnamespace.gather import CHILD_KINDS, SubnamespaceCaches, SubnamespaceInputs, gather
from tenantry.controllers.subnamespace.treelimit import TreeLimit
from tenantry.controllers.tenant import desired as tenant_desired
from tenantry.engine.cache import Cache
from tenantry.engine.plan import Plan, compare
from tenantry.world.naming import child_name
from testkit import runs
from testkit.examples import examples
from testkit.model import Caches as Observed
from testkit.model import Running, World, operate
from testkit.worlds import CLUSTER_UID, tenant, user

KINDS = tuple(kind.resource for kind in CHILD_KINDS)
NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
FAULTS = st.sampled_from(runs.FAULTS)


@st.composite
def trees(draw: st.DrawFn) -> list[Subnamespace]:
    """Some Subnamespaces of the tenant acme, parents before children."""
    uid = tenant("acme").metadata.uid
    places = ["acme"]
    found: list[Subnamespace] = []
    for number in range(draw(st.integers(1, 5))):
        parent = draw(st.sampled_from(places))
        name = f"n{number}"
        places.append(child_name(uid, parent, name))
        owners = tuple(draw(st.sets(st.sampled_from([user("bob"), user("carl")]), max_size=2)))
        inherits = not owners or draw(st.booleans())
        inheritance = Inheritance(role_bindings=InheritanceMode.SYNC if inherits else InheritanceMode.NONE)
        spec = SubnamespaceSpec(mode=Mode.WORKSPACE, owners=owners, inheritance=inheritance)
        meta = ObjectMeta(name=name, namespace=parent, uid=f"sub-{number}", resource_version="1", generation=1)
        found.append(Subnamespace(metadata=meta, spec=spec))
    return found


def _place(value: Subnamespace) -> str:
    return child_name(tenant("acme").metadata.uid, value.metadata.namespace, value.metadata.name)


def _inputs(value: Subnamespace, owner: Tenant, tree: Sequence[Subnamespace], seen: Observed) -> SubnamespaceInputs:
    tenants: Cache[Tenant] = Cache()
    tenants.put(owner)
    subnamespaces: Cache[Subnamespace] = Cache(watched.subnamespaces(lambda _: ()).indexes)
    for each in tree:
        subnamespaces.put(each)
    caches = SubnamespaceCaches(tenants, subnamespaces, seen, {}, TreeLimit())
    return gather(value, caches, None, cluster_uid=CLUSTER_UID, now=NOW)


def _seen(world: World) -> Observed:
    """Return caches with the indexes that this controller needs."""
    found = world.caches(*KINDS)
    namespaces = Cache(watched.watch(Namespace.resource, lambda _: ()).indexes)
    for each in found[Namespace.resource]:
        namespaces.put(each)
    return {**found, Namespace.resource: namespaces}


def _plan(value: Subnamespace, owner: Tenant, tree: Sequence[Subnamespace], seen: Observed) -> Plan:
    inputs = _inputs(value, owner, tree, seen)
    problem = checks.blocked(inputs)
    return Plan(blocked=(problem,)) if problem else compare(desired.children(inputs, owner), inputs.lookup)


def _reconcile(
    world: World, value: Subnamespace, owner: Tenant, tree: Sequence[Subnamespace], seen: Observed
) -> Running:
    return operate(_plan(value, owner, tree, seen), seen, world)


def _world(owner: Tenant, squatted: Sequence[str]) -> World:
    world = World()
    world.create(tenant_desired.children(owner, CLUSTER_UID)[0].object)
    for name in squatted:
        world.put_in(Namespace.resource, {"metadata": {"name": name, "labels": {"whose": "theirs"}}})
    return world


def _settle(world: World, owner: Tenant, tree: Sequence[Subnamespace]) -> None:
    """Let one operator work until nothing is left to do."""
    for _ in range(len(tree) + 2):
        for value in tree:
            running: runs.Operators = {}
            runs.begin(running, 0, _reconcile(world, value, owner, tree, _seen(world)))
            while 0 in running:
                runs.go_on(running, 0, "none")


def _people(value: Subnamespace, owner: Tenant, tree: Sequence[Subnamespace]) -> set[Owner]:
    """Return who should be let in, in the slow and simple way."""
    found = set(value.spec.owners)
    if value.spec.inheritance.role_bindings is InheritanceMode.NONE:
        return found
    above = [each for each in tree if _place(each) == value.metadata.namespace]
    return found | (_people(above[0], owner, tree) if above else set(owner.spec.owners))


@examples(75)
@given(trees(), st.data())
def test_faults_and_two_operators_end_in_the_same_tree(tree: list[Subnamespace], data: st.DataObject) -> None:
    """E04, E07: writes and answers lost, crashes, caches that lag, two operators; foreign namespaces stay foreign."""
    owner = tenant("acme", owners=[user("alice")])
    squatted = data.draw(st.lists(st.sampled_from([_place(each) for each in tree]), max_size=1))
    world = _world(owner, squatted)
    seen = [_seen(world)]
    running: runs.Operators = {}
    for _ in range(data.draw(st.integers(0, 25))):
        who = data.draw(st.integers(0, 1))
        if who not in running:
            lag = data.draw(st.integers(1, min(3, len(seen))))
            value = data.draw(st.sampled_from(tree))
            runs.begin(running, who, _reconcile(world, value, owner, tree, copy.deepcopy(seen[-lag])))
        if who in running:
            runs.go_on(running, who, data.draw(FAULTS))
        seen.append(_seen(world))
    _settle(world, owner, tree)
    for name in squatted:
        assert world.get(Namespace.resource, name)["metadata"]["labels"] == {"whose": "theirs"}
    for value in tree:
        if any(each in squatted for each in (_place(value), *_above(value, tree))):
            assert (RoleBinding.resource, f"{_place(value)}/tenantry-owner") not in world.objects
            continue
        labels = world.get(Namespace.resource, _place(value))["metadata"]["labels"]
        depths = {key.removesuffix(marks.TREE_SUFFIX): text for key, text in labels.items() if "/depth" in key}
        lineage = [_place(value), *_above(value, tree), "acme"]
        assert depths == {name: str(depth) for depth, name in enumerate(lineage)}
        binding = world.get(RoleBinding.resource, f"{_place(value)}/tenantry-owner")
        names = {subject["name"] for subject in binding.get("subjects", [])}
        assert names == {each.name for each in _people(value, owner, tree)}
        assert _plan(value, owner, tree, _seen(world)).is_empty


def _above(value: Subnamespace, tree: Sequence[Subnamespace]) -> list[str]:
    """Return the namespaces between a child and the core namespace, the nearest first."""
    found: list[str] = []
    at = value.metadata.namespace
    while at != "acme":
        found.append(at)
        at = next(each.metadata.namespace for each in tree if _place(each) == at)
    return found


@given(trees())
def test_people_are_let_in_last(tree: list[Subnamespace]) -> None:
    """E04: at no moment is there a binding without what limits and isolates."""
    owner = tenant("acme", owners=[user("alice")])
    world = _world(owner, ())
    for value in tree:
        running: runs.Operators = {}
        runs.begin(running, 0, _reconcile(world, value, owner, tree, _seen(world)))
        while 0 in running:
            runs.go_on(running, 0, "none")
            if (RoleBinding.resource, f"{_place(value)}/tenantry-owner") in world.objects:
                wanted = desired.children(_inputs(value, owner, tree, _seen(world)), owner)
                assert all((each.object.resource, each.object.key) in world.objects for each in wanted)
        assert (RoleBinding.resource, f"{_place(value)}/tenantry-owner") in world.objects
