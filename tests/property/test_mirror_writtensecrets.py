"""Secrets that a program of the lower side writes, over time: they come up for the objects that name them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tenantry.api import reasons
from tenantry.api.errors import NotFound
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import ObjectMeta, Resource
from tenantry.engine.cluster import Cluster, Watch
from tenantry.mirror import things
from tenantry.mirror.cachedpods import MOST_BYTES
from tenantry.mirror.endpointmirror import upper_slices
from tenantry.mirror.kinds.offered import Offered, OfferedPlace, PlaceUse, kind_of
from tenantry.mirror.objectmirror import ObjectMirror
from tenantry.mirror.side import LowerSide
from tenantry.mirror.things import Thing
from tenantry.mirror.upperobjects import UpperObjects
from tenantry.mirror.writtensecrets import SECRETS, WrittenSecrets
from testkit import runs
from testkit.examples import examples
from testkit.mirroring import PROFILE
from testkit.mirrorstory import MirrorStory
from testkit.worldcluster import WorldCluster

Json = dict[str, Any]

OFFERED = Offered(
    Resource("offered.example.com", "v1", "gadgets", "Gadget"), (OfferedPlace("spec.secretName", PlaceUse.WRITTEN),)
)
GADGET = OFFERED.resource
KIND = kind_of(OFFERED, PROFILE)
NAMES, SECRET_NAMES = ("a", "b"), ("s", "t")
LONG = 3000.0
MARK = "example.dev/lower"


class Below:
    """Holds the watches of the lower side."""

    name = "below"
    kind = Thing

    def watches(self) -> list[Watch]:
        """Return them."""
        selectors = things.selector(PROFILE.prefix)
        return [
            Watch(resource=GADGET, decode=things.whole, keys=lambda _: (), selectors=selectors, optional=True),
            Watch(resource=SECRETS, decode=things.headed, keys=lambda _: (), selectors=selectors),
        ]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:
        """Do nothing."""


async def _no_node(name: str) -> Json | None:  # noqa: ARG001 - there is none
    return None


def secret(name: str, namespace: str, value: str, **more: object) -> Json:
    """Return a Secret."""
    return {"metadata": {"name": name, "namespace": namespace}, "type": "Opaque", "data": {"key": value}, **more}


def below(name: str) -> str:
    """Return the key of the lower Secret of an upper one."""
    return f"{PROFILE.namespace}/{PROFILE.lower_name(PlaceUse.WRITTEN, 'shop', name)}"


class Sides(MirrorStory):
    """Two worlds with mirrors between them, and a program that writes Secrets in the lower one."""

    def __init__(self, faults: Sequence[str] = ()) -> None:
        super().__init__(faults)
        # What users have made themselves, as they left it.
        self.own: dict[str, Json] = {}
        self.upper.create(Namespace(metadata=ObjectMeta(name="shop")))
        self.lower.create(Namespace(metadata=ObjectMeta(name=PROFILE.namespace)))
        # A World knows the kinds of its objects.
        self.upper.put_in(SECRETS, secret("users", "shop", "u"))
        self.lower.put_in(SECRETS, secret("foreign", PROFILE.namespace, "host"))
        self.lower.put_in(GADGET, {"metadata": {"name": "foreign", "namespace": PROFILE.namespace}, "spec": {}})
        self.upper.put_in(
            GADGET, {"metadata": {"name": "none", "namespace": "shop"}, "spec": {"secretName": "no/../x"}}
        )
        self.restart()

    def restart(self) -> None:
        """Start another operator."""
        self.below = WorldCluster(self.lower, [Below()], faults=self.fault, optional=[GADGET])
        self.below.is_synced = True
        self.watched = (self.below,)
        self.above = WorldCluster(self.upper, [], faults=self.fault)
        side = LowerSide(cluster=self.below, writer=self.below.writer, node=_no_node, nodes={}, reason="Refused")
        table = UpperObjects(GADGET, PROFILE, self.above, is_optional=True)
        slices = upper_slices(PROFILE, self.above)
        self.add(ObjectMirror(KIND, PROFILE, self.above, side, table, slices=slices))
        self.add(WrittenSecrets(PROFILE, self.above, side, [(OFFERED, table)]))
        self.above.serve(GADGET)

    def program(self, value: str) -> None:
        """Write the Secret of each lower object, as a program of the lower side."""
        for each in self.lower.list(GADGET):
            name = each["spec"].get("secretName")
            if not name:
                continue
            key = f"{PROFILE.namespace}/{name}"
            try:
                self.lower.patch(SECRETS, key, {"data": {"key": value}})
            except NotFound:
                self.lower.put_in(SECRETS, secret(name, PROFILE.namespace, value))

    def collect(self) -> None:
        """Delete the upper Secrets whose owners are gone, as Kubernetes does."""
        uids = {each["metadata"]["uid"] for each in self.upper.list(GADGET)}
        for each in self.upper.list(SECRETS):
            owners = each["metadata"].get("ownerReferences", [])
            if owners and not any(owner["uid"] in uids for owner in owners):
                self.upper.delete(SECRETS, f"shop/{each['metadata']['name']}")


DEEDS = ("make", "rename", "drop", "program", "lose", "users make", "users edit", "users drop", "settle", "collect")
STORIES = st.lists(
    st.tuples(
        st.sampled_from(DEEDS),
        st.sampled_from(NAMES),
        st.sampled_from(SECRET_NAMES),
        st.integers(min_value=0, max_value=3),
    ),
    max_size=14,
)


def _do(sides: Sides, deed: str, name: str, of: str, number: int) -> None:
    match deed:
        case "make":
            spec = {"secretName": of, "size": number}
            sides.upper.put_in(GADGET, {"metadata": {"name": name, "namespace": "shop"}, "spec": spec})
        case "rename":
            sides.upper.patch(GADGET, f"shop/{name}", {"spec": {"secretName": of}})
        case "drop":
            sides.upper.delete(GADGET, f"shop/{name}")
        case "program":
            sides.program(f"v{number}")
        case "lose":
            sides.lower.delete(SECRETS, below(of))
        case "collect":
            sides.collect()
        case "settle":
            sides.settle()
        case _:
            _do_above(sides, deed, of)


def _do_above(sides: Sides, deed: str, of: str) -> None:
    match deed:
        case "users make":
            sides.own[of] = sides.upper.put_in(SECRETS, secret(of, "shop", "mine"))
        case "users edit":
            found = sides.upper.patch(SECRETS, f"shop/{of}", {"data": {"key": "edited"}})
            if of in sides.own:
                sides.own[of] = found
        case _:
            sides.upper.delete(SECRETS, f"shop/{of}")
            sides.own.pop(of, None)


def _check(sides: Sides, *, has_ended: bool) -> None:
    named = {each["spec"]["secretName"] for each in sides.upper.list(GADGET)} & set(SECRET_NAMES)
    upper = {each["metadata"]["name"]: each for each in sides.upper.list(SECRETS)}
    lower = {f"{PROFILE.namespace}/{each['metadata']['name']}": each for each in sides.lower.list(SECRETS)}
    assert upper.pop("users")["data"] == {"key": "u"}
    foreign = lower.pop(f"{PROFILE.namespace}/foreign")
    assert "labels" not in foreign["metadata"], "a Secret of the lower side that no object names stays as it is"
    for name in SECRET_NAMES:
        found, written = upper.pop(name, None), lower.pop(below(name), None)
        if written is not None and name not in named and has_ended:
            # It was written for a name that the object had before, and no mirror has seen it.
            assert "labels" not in written["metadata"]
            written = None
        if written is not None:
            assert name in named, "what was written for an object ends with it"
            assert written["metadata"]["labels"]["example.dev/owner"] == PROFILE.owner_uid
            assert [each["uid"] for each in written["metadata"]["ownerReferences"]] == [PROFILE.owner_uid]
        if name in sides.own:
            assert found == sides.own[name], "a Secret of users is theirs"
        elif written is not None:
            assert found is not None
            assert found["data"] == written["data"]
            assert found["metadata"]["labels"] == {MARK: "true"}
            owners = {each["name"] for each in found["metadata"]["ownerReferences"]}
            assert owners == {
                each["metadata"]["name"] for each in sides.upper.list(GADGET) if each["spec"]["secretName"] == name
            }
        else:
            assert found is None
    assert not upper
    assert not lower


@examples(100)
@given(story=STORIES, faults=st.lists(st.sampled_from(runs.FAULTS), max_size=12))
@example(story=[(deed, "a", "s", 1) for deed in ("make", "settle", "program", "settle", "drop")], faults=["crash"])
@example(
    story=[("make", "a", "s", 1), ("settle", "a", "s", 0), ("program", "a", "s", 1), ("lose", "a", "s", 1)], faults=[]
)
@example(
    story=[(deed, "a", "s", 1) for deed in ("make", "settle", "program", "users make", "settle", "users drop")],
    faults=[],
)
@example(
    story=[("make", "a", "s", 1), ("settle", "a", "s", 0), ("program", "a", "s", 1), ("rename", "a", "t", 1)],
    faults=["answer lost", "crash"],
)
@example(
    story=[("make", "a", "s", 0), ("settle", "a", "s", 0), ("rename", "a", "t", 0), ("program", "a", "s", 0)],
    faults=["none", "none", "none", "crash"],
)
def test_written_secrets_come_up_and_those_of_users_are_theirs(
    story: list[tuple[str, str, str, int]], faults: list[str]
) -> None:
    """H01: after any edits on both sides, and any ends of operators; another operator finds nothing to do."""
    sides = Sides(faults)
    sides.play(story, lambda deed: _do(sides, *deed))
    sides.settle(LONG)
    sides.faults.clear()
    sides.settle(LONG)
    _check(sides, has_ended="crash" in faults)
    revisions = sides.upper.revision, sides.lower.revision
    sides.restart()
    sides.settle(LONG)
    assert (sides.upper.revision, sides.lower.revision) == revisions, "another operator finds nothing to do"


def _one(sides: Sides, **written: object) -> None:
    sides.upper.put_in(GADGET, {"metadata": {"name": "a", "namespace": "shop"}, "spec": {"secretName": "s"}})
    sides.settle()
    if written:
        name = below("s").partition("/")[2]
        sides.lower.put_in(SECRETS, secret(name, PROFILE.namespace, "v", **written))
    else:
        sides.program("v")
    sides.settle(LONG)


def said(sides: Sides) -> set[str]:
    """Return the reasons of the events of the object."""
    return {reason for key, _, reason, _ in sides.above.said if key == "shop/a"}


def test_a_secret_of_users_is_named_in_an_event() -> None:
    """VCP-53: it stays as it is."""
    sides = Sides()
    sides.upper.put_in(SECRETS, secret("s", "shop", "mine"))
    _one(sides)
    assert said(sides) == {reasons.OBJECT_EXISTS}
    assert sides.upper.get(SECRETS, "shop/s")["data"] == {"key": "mine"}


@pytest.mark.parametrize("type_", ["kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token", "x"])
def test_tokens_of_the_lower_side_stay_there(type_: str) -> None:
    """VCP-53: a program may have been led to write one."""
    sides = Sides()
    _one(sides, type=type_)
    assert [each["metadata"]["name"] for each in sides.upper.list(SECRETS)] == ["users"]
    assert said(sides) == {"Refused"}


def test_a_change_of_type_replaces_the_secret() -> None:
    """An API server never changes the type."""
    sides = Sides()
    _one(sides)
    sides.lower.delete(SECRETS, below("s"))
    sides.settle()
    name = below("s").partition("/")[2]
    sides.lower.put_in(SECRETS, secret(name, PROFILE.namespace, "w", type="kubernetes.io/tls"))
    sides.settle(LONG)
    assert sides.upper.get(SECRETS, "shop/s")["type"] == "kubernetes.io/tls"


def test_a_withdrawn_kind_leaves_its_secrets_to_the_users() -> None:
    """They are deleted below, as the objects are."""
    sides = Sides()
    _one(sides)
    sides.restart()
    sides.above.lane.controllers.clear()
    for each in sides.lower.list(GADGET):
        if each["metadata"]["name"] != "foreign":
            sides.lower.delete(GADGET, f"{PROFILE.namespace}/{each['metadata']['name']}")
    sides.above = WorldCluster(sides.upper, [])
    side = LowerSide(cluster=sides.below, writer=sides.below.writer, node=_no_node, nodes={}, reason="Refused")
    sides.add(WrittenSecrets(PROFILE, sides.above, side, []))
    sides.settle(LONG)
    assert [each["metadata"]["name"] for each in sides.lower.list(SECRETS)] == ["foreign"]
    assert sides.upper.get(SECRETS, "shop/s")["data"] == {"key": "v"}


def test_an_object_that_grows_too_large_to_be_read_keeps_its_secret() -> None:
    """It still names the Secret, which the mirror does not see any more; the Secret ends with the object."""
    sides = Sides()
    _one(sides)
    sides.upper.patch(GADGET, "shop/a", {"spec": {"notes": "x" * MOST_BYTES}})
    sides.settle(LONG)
    assert sides.upper.get(SECRETS, "shop/s")["data"] == {"key": "v"}
    assert sides.lower.get(SECRETS, below("s"))["data"] == {"key": "v"}
    sides.upper.delete(GADGET, "shop/a")
    sides.settle(LONG)
    assert [each["metadata"]["name"] for each in sides.lower.list(SECRETS)] == ["foreign"]
