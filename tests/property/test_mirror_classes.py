"""Classes of the lower side over time: users, administrators and faults do anything, and the allowed ones are shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tenantry.api import reasons
from tenantry.api.errors import NotFound
from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import SYSTEM_NAMESPACE
from tenantry.api.model import ObjectMeta
from tenantry.api.tenancyrules import NAME, Bound, Listed, Section, TenancyRules, TenancyRulesSpec
from tenantry.controllers import watched
from tenantry.controllers.virtualcontrolplane import classrules
from tenantry.controllers.virtualcontrolplane.classrules import NamespaceClassRules, SnapshotClassRules
from tenantry.engine.cluster import Watch
from tenantry.mirror import classmirror
from tenantry.mirror.classes import CLASSES, PRIORITY, SNAPSHOT, STORAGE, LowerClass, MirroredClass
from tenantry.mirror.classmirror import ClassMirror
from testkit import runs
from testkit.examples import examples
from testkit.mirroring import PROFILE
from testkit.mirrorstory import MirrorStory
from testkit.worldcluster import WorldCluster

Json = dict[str, Any]

KINDS = (STORAGE, PRIORITY)
NAMES = ("a", "b")
LONG = 1000.0
MARK = "example.dev/lower"
DEFAULT = "storageclass.kubernetes.io/is-default-class"
STORAGE_RULE, PRIORITY_RULE = "storageClasses.allowed", "priorityClasses.allowed"
OWN = f"{PROFILE.namespace}/{NAME}"


class Below:
    """Holds the watches of the lower side."""

    name = "below"
    kind = LowerClass

    def watches(self) -> list[Watch]:
        """Return them."""
        shown = [classmirror.lower_watch(each, lambda _: ()) for each in (*CLASSES, SNAPSHOT)]
        return [*shown, classrules.watch(lambda _: ())]

    async def reconcile(self, cluster: object, key: str, attempt: int) -> float | None:
        """Do nothing."""


class Home:
    """Holds the watch of the namespaces."""

    name = "home"
    kind = Namespace

    def watches(self) -> list[Watch]:
        """Return it."""
        return [watched.watch(Namespace.resource, lambda _: ())]

    async def reconcile(self, cluster: object, key: str, attempt: int) -> float | None:
        """Do nothing."""


def rules(namespace: str, allowed: Sequence[str], default: str = "") -> TenancyRules:
    """Return rules that allow classes by name."""
    listed = {path: Listed(source="Tenant 'a'", values=tuple(allowed)) for path in (STORAGE_RULE, PRIORITY_RULE)}
    chosen = {"storageClasses.default": Bound(source="Tenant 'a'", value=default)} if default else {}
    spec = TenancyRulesSpec(enforce=Section(allowed=listed, chosen=chosen))
    return TenancyRules(metadata=ObjectMeta(name=NAME, namespace=namespace), spec=spec)


def lower_class(kind: MirroredClass, name: str, number: int) -> Json:
    """Return a class of the lower side; every third is a default."""
    is_default = number == 2
    if kind is STORAGE:
        annotations = {DEFAULT: "true"} if is_default else {}
        content: Json = {
            "provisioner": "disks.example.com",
            "parameters": {"s": "t"},
            "allowVolumeExpansion": number == 1,
        }
        return {"metadata": {"name": name, "annotations": annotations}, **content}
    return {"metadata": {"name": name}, "value": number, "globalDefault": is_default, "description": "below"}


class Sides(MirrorStory):
    """Two worlds with mirrors of classes between them."""

    def __init__(self, faults: Sequence[str] = ()) -> None:
        super().__init__(faults)
        # By kind and name: what users have made themselves, as they left it.
        self.own: dict[tuple[str, str], Json] = {}
        for name in (PROFILE.namespace, SYSTEM_NAMESPACE):
            self.lower.create(Namespace(metadata=ObjectMeta(name=name)))
        self.lower.create(rules(SYSTEM_NAMESPACE, ["a"]))
        for kind in (*CLASSES, SNAPSHOT):
            # A World knows the kinds of its objects.
            for world in (self.upper, self.lower):
                world.put_in(kind.resource, {"metadata": {"name": "first"}})
                world.delete(kind.resource, "first")
                world.put_in(kind.resource, {"metadata": {"name": "foreign"}})
        self.restart()

    def restart(self) -> None:
        """Start another operator."""
        self.below = WorldCluster(self.lower, [Below()])
        self.home = WorldCluster(self.lower, [Home()])
        self.below.is_synced = self.home.is_synced = True
        self.watched = (self.below, self.home)
        self.above = WorldCluster(self.upper, [], faults=self.fault)
        found = NamespaceClassRules(PROFILE.namespace, self.home, self.below)
        for kind in CLASSES:
            mirror = ClassMirror(kind, PROFILE, self.above, self.below, found)
            self.add(mirror)
        self.add(ClassMirror(SNAPSHOT, PROFILE, self.above, self.below, SnapshotClassRules(found, self.below)))
        for side in (self.above, self.below):
            side.serve(SNAPSHOT.resource)

    def allowed(self) -> Section:
        """Return the rules in force."""
        try:
            found = self.lower.get(TenancyRules.resource, OWN)
        except NotFound:
            found = self.lower.get(TenancyRules.resource, f"{SYSTEM_NAMESPACE}/{NAME}")
        return msgspec.convert(found["spec"], TenancyRulesSpec).enforce


ABOVE = ("users make", "users edit", "users hold", "users delete")
DEEDS = ("make", "edit", "drop", "rules", "no rules", "settle", *ABOVE)
STORIES = st.lists(
    st.tuples(
        st.sampled_from(DEEDS), st.sampled_from(KINDS), st.sampled_from(NAMES), st.integers(min_value=0, max_value=2)
    ),
    max_size=14,
)


def _do(sides: Sides, deed: str, kind: MirroredClass, name: str, number: int) -> None:
    resource = kind.resource
    match deed:
        case "make":
            sides.lower.put_in(resource, lower_class(kind, name, number))
        case "edit":
            sides.lower.patch(resource, name, lower_class(kind, name, number))
        case "drop":
            sides.lower.delete(resource, name)
        case "rules":
            _forget_rules(sides)
            sides.lower.create(rules(PROFILE.namespace, [name, "foreign"][: 1 + number], name if number == 1 else ""))
        case "no rules":
            _forget_rules(sides)
        case "settle":
            sides.settle()
        case _:
            _do_above(sides, deed, kind, name, number)
            if (resource.kind, name) in sides.own:
                sides.own[resource.kind, name] = sides.upper.get(resource, name)


def _do_above(sides: Sides, deed: str, kind: MirroredClass, name: str, number: int) -> None:
    resource, key = kind.resource, (kind.resource.kind, name)
    match deed:
        case "users make":
            sides.own[key] = sides.upper.put_in(resource, lower_class(kind, name, number))
        case "users edit":
            labels = {"team": f"{number}"}
            sides.upper.patch(resource, name, {"metadata": {"labels": labels}, "value": 7, "parameters": {}})
        case "users hold":
            sides.upper.patch(resource, name, {"metadata": {"finalizers": ["example.com/keep"]}})
        case _:
            meta = sides.upper.get(resource, name)["metadata"]
            if "deletionTimestamp" not in meta:
                sides.upper.delete(resource, name)
            if "finalizers" not in meta:
                sides.own.pop(key, None)


def _forget_rules(sides: Sides) -> None:
    if any(each["metadata"]["namespace"] == PROFILE.namespace for each in sides.lower.list(TenancyRules.resource)):
        sides.lower.delete(TenancyRules.resource, OWN)


def _is_default(kind: MirroredClass, value: Json) -> bool:
    if kind is STORAGE:
        return value["metadata"].get("annotations", {}).get(DEFAULT) == "true"
    return bool(value.get("globalDefault"))


def _check(sides: Sides) -> None:
    section = sides.allowed()
    for kind, path in ((STORAGE, STORAGE_RULE), (PRIORITY, PRIORITY_RULE)):
        upper = {each["metadata"]["name"]: each for each in sides.upper.list(kind.resource)}
        lower = {each["metadata"]["name"]: each for each in sides.lower.list(kind.resource)}
        own = {name: value for (of, name), value in sides.own.items() if of == kind.resource.kind}
        has_own_default = any(_is_default(kind, each) for each in own.values())
        chosen = section.chosen.get("storageClasses.default") if kind is STORAGE else None
        for name in NAMES:
            shown = upper.pop(name, None)
            if name in own:
                assert shown == own[name], "a class of users is theirs"
            elif name in lower and name in section.allowed[path].values:
                assert shown is not None
                meta, below = shown["metadata"], lower[name]
                is_default = name == chosen.value if chosen is not None else _is_default(kind, below)
                assert meta["labels"] == {MARK: "true"}
                assert "finalizers" not in meta
                assert "parameters" not in shown
                assert _is_default(kind, shown) == (is_default and not has_own_default)
                for field in ("value", "allowVolumeExpansion"):
                    assert shown.get(field) == below.get(field)
            else:
                assert shown is None or "deletionTimestamp" in shown["metadata"]
        assert list(upper) == ["foreign"], "a class of the lower side that no rule allows stays there"


@examples(100)
@given(story=STORIES, faults=st.lists(st.sampled_from(runs.FAULTS), max_size=12))
@example(story=[("make", STORAGE, "a", 2), ("settle", STORAGE, "a", 0), ("users make", STORAGE, "b", 2)], faults=[])
@example(
    story=[(deed, PRIORITY, "a", 1) for deed in ("make", "settle", "users hold", "drop", "settle", "make")], faults=[]
)
@example(story=[(deed, STORAGE, "a", 1) for deed in ("make", "settle", "drop", "users hold")], faults=[])
@example(story=[(deed, STORAGE, "a", 1) for deed in ("users make", "make", "users delete")], faults=["answer lost"])
@example(story=[("make", STORAGE, "b", 0), ("settle", STORAGE, "b", 0), ("rules", STORAGE, "b", 1)], faults=["crash"])
def test_allowed_classes_are_shown_and_those_of_users_are_theirs(
    story: list[tuple[str, MirroredClass, str, int]], faults: list[str]
) -> None:
    """H01: after any edits on both sides, and any ends of operators; another operator finds nothing to do."""
    sides = Sides(faults)
    sides.play(story, lambda deed: _do(sides, *deed))
    sides.settle(LONG)
    sides.faults.clear()
    sides.settle(LONG)
    _check(sides)
    revisions = sides.upper.revision, sides.lower.revision
    sides.restart()
    sides.settle(LONG)
    assert (sides.upper.revision, sides.lower.revision) == revisions, "another operator finds nothing to do"


@pytest.mark.parametrize("number", [0, 2])
def test_a_class_whose_mark_users_remove_stays_the_mirrors(number: int) -> None:
    """Otherwise, any edit would last that removes the label, too."""
    sides = Sides()
    sides.lower.put_in(STORAGE.resource, lower_class(STORAGE, "a", number))
    sides.settle()
    sides.upper.patch(STORAGE.resource, "a", {"metadata": {"labels": None, "annotations": {DEFAULT: "true"}}})
    sides.settle()
    _check(sides)


def test_a_class_of_users_that_hides_another_is_named_in_an_event() -> None:
    """H01: and only if users may know of the other one."""
    sides = Sides()
    for name in NAMES:
        sides.lower.put_in(PRIORITY.resource, lower_class(PRIORITY, name, 0))
        sides.upper.put_in(PRIORITY.resource, lower_class(PRIORITY, name, 1))
    sides.settle()
    said = [(key, reason) for key, _, reason, _ in sides.above.said if key != "foreign"]
    assert said == [("a", reasons.OBJECT_EXISTS)]
    sides.upper.delete(PRIORITY.resource, "a")
    sides.settle()
    assert sides.upper.get(PRIORITY.resource, "a")["value"] == 0


@pytest.mark.parametrize(
    ("driver", "deletes", "storage", "is_shown"),
    [
        ("disks.example.com", "Delete", "a", True),
        ("disks.example.com", "Delete", "b", False),
        ("disks.example.com", "Retain", "a", False),
        ("tapes.example.com", "Delete", "a", False),
        ("disks.example.com", "Delete", "", False),
    ],
)
def test_a_class_of_snapshots_goes_by_the_classes_of_its_driver(
    driver: str, deletes: str, storage: str, *, is_shown: bool
) -> None:
    """No rule names these classes: users may name a StorageClass of the driver, with this policy of deletion."""
    sides = Sides()
    sides.lower.create(
        TenancyRules(
            metadata=ObjectMeta(name=NAME, namespace=PROFILE.namespace),
            spec=TenancyRulesSpec(
                enforce=Section(
                    allowed={
                        STORAGE_RULE: Listed(source="Tenant 'a'", values=("a",)),
                        "storageClasses.reclaimPolicies": Listed(source="Tenant 'a'", values=("Delete",)),
                    }
                )
            ),
        )
    )
    sides.lower.put_in(
        SNAPSHOT.resource, {"metadata": {"name": "s"}, "driver": driver, "deletionPolicy": deletes, "parameters": {}}
    )
    sides.settle(LONG)
    assert [each["metadata"]["name"] for each in sides.upper.list(SNAPSHOT.resource)] == ["foreign"]
    if storage:
        sides.lower.put_in(STORAGE.resource, lower_class(STORAGE, storage, 0))
    sides.settle(LONG)
    found = {each["metadata"]["name"]: each for each in sides.upper.list(SNAPSHOT.resource)}
    assert ("s" in found) == is_shown
    if is_shown:
        assert (found["s"]["driver"], found["s"]["deletionPolicy"]) == ("example.dev/mirrored", deletes)
        sides.lower.delete(STORAGE.resource, storage)
        sides.settle(LONG)
        assert [each["metadata"]["name"] for each in sides.upper.list(SNAPSHOT.resource)] == ["foreign"]


def test_a_namespace_without_rules_shows_nothing() -> None:
    """The lower side refuses everything then."""
    sides = Sides()
    sides.lower.put_in(STORAGE.resource, lower_class(STORAGE, "a", 0))
    sides.lower.delete(TenancyRules.resource, f"{SYSTEM_NAMESPACE}/{NAME}")
    sides.settle()
    assert [each["metadata"]["name"] for each in sides.upper.list(STORAGE.resource)] == ["foreign"]
