"""From any world, with lost writes and answers, children come to have what they should; then nothing is done."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tenantry.api.errors import NotFound
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import ObjectMeta, Resource, object_key
from tenantry.api.subnamespace import (
    Inheritance,
    InheritanceMode,
    Mode,
    Subnamespace,
    SubnamespaceSpec,
    SubnamespaceStatus,
)
from tenantry.controllers.inheritance.desired import due, plan, plan_source
from tenantry.controllers.inheritance.gather import (
    BY_INHERITANCE,
    COPIES,
    ChildNamespace,
    InheritanceInputs,
    SourceInputs,
    inheritance_keys,
)
from tenantry.controllers.inheritance.status import inherited
from tenantry.engine.cache import Cache
from tenantry.engine.observed import Inheritable, Observed, observe
from tenantry.world.inheritance import CONFIG_MAPS, ROLES, SECRETS
from testkit.examples import examples
from testkit.model import Caches, World, operate
from testkit.runs import FAULTS, run

Json = dict[str, Any]
NONE, COPY, SYNC = InheritanceMode.NONE, InheritanceMode.COPY, InheritanceMode.SYNC

KINDS = (SECRETS, CONFIG_MAPS, ROLES)
NAMES = ("a", "b")
MARK = "tenantry.dev/inherited-from"
OURS = {"app.kubernetes.io/managed-by": "tenantry", "tenantry.dev/tenant": "core"}
PARENTS = {"x": "core", "y": "core", "z": "x"}
"""The tree: by child, the namespace above it."""

ROUNDS = 20
"""In as many passes over a tree of this depth all is done: each fault costs one pass at most."""


# -- worlds ---------------------------------------------------------------------------------------


def _object(resource: Resource, value: str) -> Json:
    if resource == ROLES:
        return {"rules": [{"apiGroups": [""], "resources": [value], "verbs": ["get"]}]}
    return {"data": {"a": value}}


@st.composite
def _source(draw: st.DrawFn, resource: Resource, name: str) -> Json:
    annotation = draw(st.sampled_from([None, None, "all", "none", "team=red", "team in red"]))
    metadata: Json = {"name": name, "namespace": "core", "labels": {"who": "alice"}}
    if annotation is not None:
        metadata["annotations"] = {"tenantry.dev/inherit": annotation}
    if draw(st.integers(0, 5)) == 0:
        metadata["ownerReferences"] = [{"uid": "another", "controller": True}]
    return {**_object(resource, draw(st.sampled_from(["one", "two"]))), "metadata": metadata}


@st.composite
def _leftover(draw: st.DrawFn, resource: Resource, name: str, child: str) -> Json | None:
    """Return what is in a child already: nothing, a foreign object, or a copy, unmodified or edited."""
    what = draw(st.sampled_from(["nothing", "nothing", "foreign", "copy", "edited", "moved"]))
    if what == "nothing":
        return None
    metadata: Json = {"name": name, "namespace": child}
    if what != "foreign":
        source = "elsewhere" if what == "moved" else PARENTS[child]
        metadata["labels"] = {**OURS, MARK: source, **({"mine": "1"} if what == "edited" else {})}
    return {**_object(resource, "one" if what == "copy" else "mine"), "metadata": metadata}


_modes = st.sampled_from([NONE, COPY, SYNC])


@st.composite
def _specs(draw: st.DrawFn) -> dict[str, SubnamespaceSpec]:
    return {
        child: SubnamespaceSpec(
            mode=draw(st.sampled_from([Mode.WORKSPACE, Mode.WORKSPACE, Mode.SUBTENANT])),
            inheritance=Inheritance(secrets=draw(_modes), config_maps=draw(_modes), roles=draw(_modes)),
        )
        for child in PARENTS
    }


@st.composite
def _worlds(draw: st.DrawFn) -> World:
    world = World()
    for name in ("core", *PARENTS):
        world.put_in(Namespace.resource, {"metadata": {"name": name}})
    for resource in KINDS:
        for name in NAMES:
            if draw(st.booleans()):
                world.put_in(resource, draw(_source(resource, name)))
    for child in PARENTS:
        for resource in KINDS:
            for name in NAMES:
                value = draw(_leftover(resource, name, child))
                if value is not None:
                    world.put_in(resource, value)
    return world


# -- an operator ----------------------------------------------------------------------------------


class _Operator:
    """Carries out plans with the operator's own code, with a budget of faults; `copied` is in the statuses."""

    def __init__(
        self, world: World, specs: dict[str, SubnamespaceSpec], teams: dict[str, str], faults: list[str]
    ) -> None:
        self.world = world
        self.specs = specs
        self.teams = teams
        self.faults = faults
        self.copied: dict[str, tuple[str, ...]] = dict.fromkeys(PARENTS, ())
        self._stale: Caches | None = None

    def child(self, child: str) -> ChildNamespace:
        """Return a child as the caches have it."""
        labels = {"team": self.teams[child], "tenantry.dev/tenant": "core"}
        namespace = observe(
            Namespace.resource, msgspec.json.encode({"metadata": {"name": child, "uid": child, "labels": labels}})
        )
        meta = ObjectMeta(name=child, namespace=PARENTS[child], uid=child)
        status = SubnamespaceStatus(copied=self.copied[child])
        return ChildNamespace(
            subnamespace=Subnamespace(metadata=meta, spec=self.specs[child], status=status), namespace=namespace
        )

    def inherit_all(self, namespace: str) -> bool:
        """Bring everything into one child; return whether there was anything to do."""
        child, caches = self.child(namespace), self._caches()
        for resource in due(KINDS, child.subnamespace):
            # The sources of copies that are made once are listed, because a cache may lag.
            for value in self.world.list(resource, child.parent):
                caches[resource].put(observe(resource, msgspec.json.encode(value)))
        inputs = self._inputs(child, caches)
        planned = plan(inputs)
        outcome = run(operate(planned, caches, self.world), self._fault)
        if outcome is not None:
            self.copied[namespace] = inherited(inputs, planned, outcome).copied
        return bool(planned.copies)

    def propagate(self, resource: Resource, name: str) -> None:
        """Bring one object of the core namespace into the children of which it is kept in sync."""
        caches = self._caches()
        children = [self.child(child) for child, parent in PARENTS.items() if parent == "core"]
        lookup = partial(_lookup, caches)
        inputs = SourceInputs(resource=resource, name=name, children=children, lookup=lookup, is_like=_is_like)
        run(operate(plan_source(inputs), caches, self.world), self._fault)

    def _inputs(self, child: ChildNamespace, caches: Caches) -> InheritanceInputs:
        return InheritanceInputs(
            child=child,
            kinds=KINDS,
            sources={kind: caches[kind].by_index(BY_INHERITANCE, child.parent) for kind in KINDS},
            copies={kind: caches[kind].by_index(BY_INHERITANCE, child.name + COPIES) for kind in KINDS},
            problems=(),
            lookup=partial(_lookup, caches),
            is_like=_is_like,
        )

    def _fault(self) -> str:
        return self.faults.pop() if self.faults else "none"

    def _caches(self) -> Caches:
        """Return caches that are in step; while there are faults left, perhaps those of the reconcile before."""
        if self.faults and self.faults[-1] == "lag" and self._stale is not None:
            self.faults.pop()
            return self._stale
        found: Caches = {kind: Cache({BY_INHERITANCE: inheritance_keys}) for kind in KINDS}
        stale: Caches = {kind: Cache({BY_INHERITANCE: inheritance_keys}) for kind in KINDS}
        for (resource, _), value in self.world.objects.items():
            if resource in found:
                seen = observe(resource, msgspec.json.encode(value))
                found[resource].put(seen)
                stale[resource].put(seen)
        self._stale = stale
        return found

    def settle(self) -> None:
        """Go over the tree until nothing is to be done.

        Raises:
            AssertionError: There always is.
        """
        for _ in range(ROUNDS):
            is_faultless = not self.faults
            busy = [self.inherit_all(child) for child in PARENTS]
            if is_faultless and not any(busy):
                return
            if not any(busy):
                self.faults.clear()  # there was no request that they could happen to
        raise AssertionError(f"not settled after {ROUNDS} passes")


def _lookup(caches: Caches, resource: Resource, key: str) -> Observed | None:
    cache = caches.get(resource)
    return cache.get(key) if cache is not None else None


def _is_like(_: Resource, copy: Inheritable, wanted: bytes) -> bool:
    return copy.likeness == wanted


_teams = st.fixed_dictionaries({child: st.sampled_from(["red", "blue"]) for child in PARENTS})
_faults = st.lists(st.sampled_from([*FAULTS, "lag"]), max_size=12)


# -- what is true of every world ------------------------------------------------------------------


def _find(world: World, resource: Resource, namespace: str, name: str) -> Json | None:
    try:
        return world.get(resource, object_key(namespace, name))
    except NotFound:
        return None


def _labels(value: Json | None) -> dict[str, str]:
    return ((value or {}).get("metadata", {}).get("labels")) or {}


def _content(value: Json) -> Json:
    return {key: each for key, each in value.items() if key in {"data", "rules"}}


def _wanted(source: Json | None, spec: SubnamespaceSpec, field: InheritanceMode, team: str, *, is_role: bool) -> str:
    """Return what a child should have of an object, told without the code under test."""
    if source is None or source["metadata"].get("ownerReferences"):
        return "nothing"
    annotations: dict[str, str] = source["metadata"].get("annotations", {})
    said = annotations.get("tenantry.dev/inherit")
    for_it = {None: None, "all": True, "none": False, "team=red": team == "red", "team in red": False}[said]
    if for_it is False or (for_it is None and field is NONE):
        return "nothing"
    if spec.mode is Mode.SUBTENANT:
        return "nothing" if is_role else "copy"
    return "copy" if field is COPY else "same"


@examples(100)
@given(_worlds(), _specs(), _teams, _faults)
def test_children_come_to_have_what_they_should(
    world: World, specs: dict[str, SubnamespaceSpec], teams: dict[str, str], faults: list[str]
) -> None:
    """E06: from any world and after any loss; foreign objects are not changed."""
    before = {key: value for key, value in world.objects.items() if MARK not in _labels(value)}
    operator = _Operator(world, specs, teams, faults)
    operator.settle()
    for key, value in before.items():
        assert world.objects[key] == value
    for child, parent in PARENTS.items():
        spec = specs[child]
        modes = {
            SECRETS: spec.inheritance.secrets,
            CONFIG_MAPS: spec.inheritance.config_maps,
            ROLES: spec.inheritance.roles,
        }
        for resource in KINDS:
            for name in NAMES:
                source, found = _find(world, resource, parent, name), _find(world, resource, child, name)
                wanted = _wanted(source, spec, modes[resource], teams[child], is_role=resource == ROLES)
                if (resource, object_key(child, name)) in before:
                    continue
                if wanted == "same":
                    assert source is not None
                    assert found is not None
                    assert _content(found) == _content(source)
                    people = {key: each for key, each in _labels(source).items() if key in {"who", "mine"}}
                    assert _labels(found) == {**people, **OURS, MARK: parent}
                elif wanted == "copy" and parent == "core":
                    # Further down it is what the parent had when it was copied.
                    assert source is not None
                    assert found is not None
                    assert _content(found) == _content(source)
                    assert _labels(found) == {"who": "alice"}
                else:
                    assert MARK not in _labels(found)


@examples(60)
@given(_worlds(), _specs(), _teams, _faults)
def test_what_is_as_it_should_be_is_left_alone(
    world: World, specs: dict[str, SubnamespaceSpec], teams: dict[str, str], faults: list[str]
) -> None:
    """E06: a second operator finds nothing to do, and neither does one that forgot everything but the status."""
    first = _Operator(world, specs, teams, faults)
    first.settle()
    revision = world.revision
    second = _Operator(world, specs, teams, [])
    second.copied = dict(first.copied)
    second.settle()
    assert world.revision == revision


@examples(60)
@given(_worlds(), _specs(), _teams, _worlds())
def test_children_follow_when_sources_change(
    world: World, specs: dict[str, SubnamespaceSpec], teams: dict[str, str], other: World
) -> None:
    """E06: sources made, changed and deleted; what was copied once is not copied again."""
    operator = _Operator(world, specs, teams, [])
    operator.settle()
    plain = {key: value for key, value in world.objects.items() if MARK not in _labels(value)}
    core = {key for key in world.objects if key[1].startswith("core/")}
    for resource, key in core:
        world.delete(resource, key)
    for (resource, key), value in other.objects.items():
        if key.startswith("core/"):
            world.put_in(resource, value)
    for resource in KINDS:
        for name in NAMES:
            operator.propagate(resource, name)
    operator.settle()
    for key, value in plain.items():
        if key not in core:
            assert world.objects[key] == value
    made = {
        key for key, value in world.objects.items() if MARK not in _labels(value) and not key[1].startswith("core/")
    }
    assert made <= {key for key in plain if key not in core}
    for (resource, key), value in world.objects.items():
        if MARK in _labels(value):
            source = world.get(resource, f"{_labels(value)[MARK]}/{key.partition('/')[2]}")
            assert _content(source) == _content(value)
