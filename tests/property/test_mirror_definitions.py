"""Definitions of optional kinds over time: they follow the lower side, and those of users stay theirs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from tenantry.api import reasons
from tenantry.api.errors import NotFound
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import ObjectMeta, Resource
from tenantry.engine.cluster import CRDS, Watch
from tenantry.mirror.definitionmirror import LOOK_SECONDS, RETIRE_SECONDS, DefinitionMirror, lower_watch
from tenantry.mirror.definitions import LowerDefinition
from tenantry.mirror.kinds import routes, volumesnapshots
from tenantry.mirror.side import LowerSide
from testkit import runs
from testkit.examples import examples
from testkit.mirroring import PROFILE
from testkit.mirrorstory import MirrorStory
from testkit.model import World
from testkit.worldcluster import WorldCluster

Json = dict[str, Any]

KINDS = (routes.HTTP, volumesnapshots.RESOURCE)
NAMES = [each.full_name for each in KINDS]
MARK = "example.dev/lower"
APPROVED = "api-approved.kubernetes.io"


class Below:
    """Holds the watch of the lower side."""

    name = "below"
    kind = LowerDefinition

    def watches(self) -> list[Watch]:
        """Return it."""
        return [lower_watch(lambda _: ())]

    async def reconcile(self, cluster: object, key: str, attempt: int) -> float | None:
        """Do nothing."""


def definition(name: str, number: int, *, version: str = "v1", scope: str = "Namespaced") -> Json:
    """Return a definition with several versions, and a conversion by a webhook."""
    plural, _, group = name.partition(".")
    schema = {"openAPIV3Schema": {"type": "object", "description": str(number)}}
    versions = [
        {"name": each, "served": True, "storage": each == "v1beta1", "schema": schema} for each in ("v1beta1", version)
    ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": name,
            "annotations": {APPROVED: "https://example.dev", "secret": "s"},
            "labels": {"a": "b"},
        },
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"plural": plural, "kind": "K"},
            "versions": versions,
            "conversion": {"strategy": "Webhook", "webhook": {"clientConfig": {"url": "https://host.example"}}},
        },
    }


async def _no_node(name: str) -> Json | None:  # noqa: ARG001 - there is none
    return None


class Sides(MirrorStory):
    """Two worlds with the mirror of definitions between them."""

    def __init__(self, faults: Sequence[str] = ()) -> None:
        super().__init__(faults)
        # What users have made themselves.
        self.own: set[str] = set()
        for world in (self.upper, self.lower):
            # A World knows the kinds of its objects.
            world.put_in(CRDS, definition("widgets.example.com", 0))
        self.restart()

    def restart(self) -> None:
        """Start another operator."""
        self.below = WorldCluster(self.lower, [Below()])
        self.below.is_synced = True
        self.watched = (self.below,)
        self.above = WorldCluster(self.upper, [], faults=self.fault)
        side = LowerSide(cluster=self.below, writer=self.below.writer, node=_no_node, nodes={}, reason="Refused")
        mirror = DefinitionMirror(KINDS, PROFILE, self.above, side)
        self.add(mirror)


DEEDS = ("lower", "no lower", "older lower", "user's", "no upper", "edit", "unmark", "settle")


def _do(sides: Sides, deed: str, name: str, number: int) -> None:
    match deed:
        case "lower":
            sides.lower.put_in(CRDS, definition(name, number))
        case "no lower":
            sides.lower.delete(CRDS, name)
        case "older lower":
            sides.lower.patch(CRDS, name, {"spec": definition(name, number, version="v2")["spec"]})
        case "user's":
            sides.upper.put_in(CRDS, definition(name, 9, scope="Cluster"))
            sides.own.add(name)
        case "no upper":
            sides.upper.delete(CRDS, name)
            sides.own.discard(name)
        case "edit":
            names = {"plural": name.partition(".")[0], "kind": "K", "shortNames": ["s"]}
            sides.upper.patch(CRDS, name, {"spec": {"names": names}})
        case "unmark":
            sides.upper.patch(CRDS, name, {"metadata": {"labels": {MARK: None}}})
            sides.own.add(name)
        case _:
            sides.settle()


@examples(100)
@given(
    story=st.lists(
        st.tuples(st.sampled_from(DEEDS), st.sampled_from(NAMES), st.integers(min_value=0, max_value=2)), max_size=10
    ),
    faults=st.lists(st.sampled_from(runs.FAULTS), max_size=10),
)
@example(story=[(deed, NAMES[0], 1) for deed in ("lower", "settle", "edit")], faults=[])
@example(story=[(deed, NAMES[0], 1) for deed in ("user's", "lower", "settle", "no upper")], faults=[])
@example(story=[(deed, NAMES[0], 1) for deed in ("lower", "settle", "unmark", "edit")], faults=[])
def test_definitions_of_the_host_come_up_and_those_of_users_are_theirs(
    story: list[tuple[str, str, int]], faults: list[str]
) -> None:
    """VCP-23: one version, no webhook of the lower side; nothing that users have made is changed or deleted."""
    sides = Sides(faults)
    sides.play(story, lambda deed: _do(sides, *deed))
    kept = {name: _find(sides.upper, name) for name in sides.own}
    sides.settle()
    sides.faults.clear()
    sides.settle(2 * LOOK_SECONDS)
    for name in NAMES:
        lower, upper = _find(sides.lower, name), _find(sides.upper, name)
        if name in sides.own:
            assert upper == kept[name]
            continue
        is_offered = lower is not None and "v1" in {each["name"] for each in lower["spec"]["versions"]}
        if lower is None or not is_offered:
            continue
        assert upper is not None
        assert upper["metadata"]["labels"] == {MARK: ""}
        assert upper["metadata"]["annotations"] == {APPROVED: "https://example.dev"}
        (version,) = upper["spec"]["versions"]
        assert version == {**next(each for each in lower["spec"]["versions"] if each["name"] == "v1"), "storage": True}
        assert upper["spec"]["conversion"] == {"strategy": "None"}
        assert upper["spec"]["names"] == lower["spec"]["names"]
    revisions = sides.upper.revision, sides.lower.revision
    sides.restart()
    sides.settle()
    assert (sides.upper.revision, sides.lower.revision) == revisions, "another operator finds nothing to do"


def _find(world: World, name: str) -> Json | None:
    try:
        return world.get(CRDS, name)
    except NotFound:
        return None


def test_an_event_names_the_definition_of_users() -> None:
    """X09: users see why the fields of the host's have no effect."""
    sides = Sides()
    sides.upper.put_in(CRDS, definition(NAMES[0], 9))
    sides.lower.put_in(CRDS, definition(NAMES[0], 0))
    sides.settle()
    ((key, _, reason, note),) = sides.above.said
    assert (key, reason) == (NAMES[0], reasons.OBJECT_EXISTS)
    assert NAMES[0] in note


GADGETS = Resource("offered.example.com", "v1", "gadgets", "Gadget")
POLICIES = Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")


def _withdrawn(resource: Resource, *, host_has: bool) -> Sides:
    """Return sides with a lower object of a kind that is not offered, and an upper definition with the mark."""
    sides = Sides()
    labels = {"example.dev/owner": PROFILE.owner_uid}
    meta = {"name": "mine", "namespace": PROFILE.namespace, "labels": labels}
    sides.lower.create(Namespace(metadata=ObjectMeta(name=PROFILE.namespace)))
    sides.lower.put_in(resource, {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta})
    if host_has:
        sides.lower.put_in(CRDS, definition(resource.full_name, 0))
    marked = definition(resource.full_name, 0)
    marked["spec"]["versions"] = [each for each in marked["spec"]["versions"] if each["name"] == "v1"]
    sides.upper.put_in(CRDS, {**marked, "metadata": {"name": resource.full_name, "labels": {MARK: ""}}})
    return sides


def _left(sides: Sides, resource: Resource) -> tuple[int, bool]:
    """Return how many lower objects there are, and whether the upper definition has the mark."""
    upper = sides.upper.get(CRDS, resource.full_name)
    return len(sides.lower.list(resource)), MARK in upper["metadata"].get("labels", {})


def test_the_end_of_an_offer_ends_the_lower_objects() -> None:
    sides = _withdrawn(GADGETS, host_has=True)
    sides.settle()
    assert _left(sides, GADGETS) == (0, False)


def test_a_mark_of_users_on_a_kind_that_is_built_in_has_no_effect() -> None:
    """VCP-23: the lower NetworkPolicies of the mirror would end, and pods be open until they are made again."""
    sides = _withdrawn(POLICIES, host_has=False)
    sides.settle(2 * RETIRE_SECONDS)
    assert _left(sides, POLICIES) == (1, True)


def test_users_who_mark_a_definition_again_do_not_have_the_lower_side_asked_each_time() -> None:
    sides = _withdrawn(GADGETS, host_has=True)
    sides.settle()
    sides.upper.patch(CRDS, GADGETS.full_name, {"metadata": {"labels": {MARK: ""}}})
    sides.settle()
    assert _left(sides, GADGETS) == (0, True)
    sides.settle(RETIRE_SECONDS)
    assert _left(sides, GADGETS) == (0, False)


def test_a_withdrawn_kind_without_rights_is_one_event_and_tried_again_later() -> None:
    sides = _withdrawn(GADGETS, host_has=True)
    sides.lower.unlisted = {GADGETS.full_name}
    sides.settle(5 * RETIRE_SECONDS)
    ((key, _, reason, note),) = sides.above.said
    assert (key, reason) == (GADGETS.full_name, "Refused")
    assert "no longer offers" in note
    sides.lower.unlisted = set()
    sides.settle(10 * RETIRE_SECONDS)
    assert _left(sides, GADGETS) == (0, False)
