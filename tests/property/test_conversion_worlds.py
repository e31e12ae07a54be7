"""The writes of a conversion in random worlds, cut short at any write (H01): pure."""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from tenantry.api.marks import SUSPENDED_SUBJECTS
from tenantry.api.model import Json, Resource
from tenantry.api.virtualcontrolplane import PREFIX
from tenantry.controllers.conversion import moves, objects
from tenantry.controllers.conversion.moves import Move, Moves, Side, Worlds
from tenantry.controllers.conversion.objects import (
    CONFIG_MAPS,
    CRON_JOBS,
    DEPLOYMENTS,
    EVERY,
    JOBS,
    NAMESPACES,
    REPLICA_SETS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    STATEFUL_SETS,
    Holdings,
)
from tenantry.engine.request import Verb
from tenantry.mirror.kinds import services
from tenantry.mirror.profile import Profile
from tenantry.mirror.things import PODS
from testkit.rfc7396 import merged

OWNER: Json = {"apiVersion": "tenantry.dev/v1alpha1", "kind": "VirtualControlPlane", "name": "acme", "uid": "u-vcp"}
PROFILE = Profile(owner_uid="u-vcp", namespace="acme", prefix=PREFIX, owner={**OWNER, "controller": True})
SERVICES = services.RESOURCE
Key = tuple[Resource, str]


class ConversionWorld:
    """Both sides, with the controllers of Kubernetes and the mirror on each.

    Args:
        deployments: The replicas of each Deployment; each has an old ReplicaSet, too.
        sets: The replicas of each StatefulSet.
        others: How many there are of each other kind.
    """

    def __init__(self, deployments: Sequence[int], sets: Sequence[int], others: int) -> None:
        self.sides: dict[Side, dict[Key, Json]] = {Side.HOST: {}, Side.INSIDE: {}}
        self.number = 0
        self.has_namespace = False
        self.ended: list[str] = []
        for index, replicas in enumerate(deployments):
            owner = self.put(DEPLOYMENTS, f"d{index}")
            self.put(REPLICA_SETS, f"d{index}-old", owner)
            newest = self.put(REPLICA_SETS, f"d{index}-new", owner)
            for each in range(replicas):
                self.put(PODS, f"d{index}-new-{each}", newest)
        for index, replicas in enumerate(sets):
            owner = self.put(STATEFUL_SETS, f"s{index}")
            for each in range(replicas):
                self.put(PODS, f"s{index}-{each}", owner)
        for index in range(others):
            for resource in (CONFIG_MAPS, SECRETS, SERVICES, ROLES, CRON_JOBS):
                self.put(resource, f"o{index}")
        self.put(PODS, "alone")
        self.put(JOBS, "past")["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
        self.put(ROLES, "tenantry-owner")
        self.put(SERVICE_ACCOUNTS, "robot")
        self.before = {name: each["metadata"]["uid"] for (kind, name), each in self.host.items() if kind == PODS}

    @property
    def host(self) -> dict[Key, Json]:
        return self.sides[Side.HOST]

    @property
    def inside(self) -> dict[Key, Json]:
        return self.sides[Side.INSIDE]

    def put(self, resource: Resource, name: str, owner: Json | None = None, side: Side = Side.HOST) -> Json:
        """Create an object."""
        self.number += 1
        meta: Json = {"name": name, "namespace": "acme", "uid": f"u-{self.number}", "labels": {"app": name}}
        if owner is not None:
            kind = next(kind.kind for (kind, _), each in self.sides[side].items() if each is owner)
            about = {"kind": kind, "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
            meta["ownerReferences"] = [{**about, "controller": True}]
        value: Json = {"metadata": meta, "spec": {}}
        if resource == PODS:
            reads = [{"configMapRef": {"name": "o0"}}, {"secretRef": {"name": "o0"}}]
            value["spec"] = {"nodeName": "n", "containers": [{"name": "c", "image": "i", "envFrom": reads}]}
        if resource == SERVICES:
            value["spec"] = {"selector": {"app": name}, "clusterIP": "10.0.0.1"}
        self.sides[side][resource, name] = value
        return value

    def worlds(self) -> Worlds:
        """Return what a list of both sides returns."""

        def holdings(side: Side) -> Holdings:
            found = copy.deepcopy(self.sides[side])
            return Holdings(of={kind: [each for (of, _), each in found.items() if of == kind] for kind in EVERY})

        return Worlds(
            host=holdings(Side.HOST),
            inside=holdings(Side.INSIDE),
            has_namespace=self.has_namespace,
            profile=PROFILE,
        )

    def send(self, move: Move) -> None:
        """Carry out a write."""
        asked, side = move.request, self.sides[move.side]
        key = (asked.resource, asked.name)
        if asked.resource == NAMESPACES:
            self.has_namespace = True
        elif asked.verb is Verb.CREATE:
            assert isinstance(asked.body, dict)
            assert key not in side
            assert not any(f"{PREFIX}/" in key for key in asked.body["metadata"].get("annotations", {}))
            self.number += 1
            meta = {**asked.body["metadata"], "uid": f"u-{self.number}"}
            side[key] = {**asked.body, "metadata": meta}
        elif asked.verb is Verb.PATCH:
            assert isinstance(asked.body, dict)
            side[key] = merged(side[key], asked.body)
        else:
            assert isinstance(asked.body, dict)
            assert move.side is Side.HOST or asked.resource in objects.BASICS
            self.delete(move.side, key, is_orphaned=asked.body["propagationPolicy"] == "Orphan")

    def delete(self, side: Side, key: Key, *, is_orphaned: bool) -> None:
        """Delete an object with what it owns, or without."""
        found = self.sides[side].pop(key)
        for other, each in list(self.sides[side].items()):
            owners = each["metadata"].get("ownerReferences", [])
            if any(owner["uid"] == found["metadata"]["uid"] for owner in owners):
                if is_orphaned:
                    each["metadata"]["ownerReferences"] = []
                else:
                    self.delete(side, other, is_orphaned=False)

    def act(self) -> None:
        """Have the mirror adopt, and the controllers inside take over what has no owner."""
        for (kind, name), below in list(self.host.items()):
            above = self.inside.get((kind, name))
            if above is not None and objects.waits(below, PROFILE):
                below["metadata"]["annotations"][PROFILE.mark("uid")] = above["metadata"]["uid"]
                if kind == PODS:
                    above["spec"]["nodeName"] = "n"
            elif above is None and objects.is_adopted(below, PROFILE) and not objects.waits(below, PROFILE):
                self.ended.append(name)
        for (kind, name), owner in list(self.inside.items()):
            if kind in (DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS):
                owner["status"] = {"observedGeneration": 1}
            below_kind = {DEPLOYMENTS: REPLICA_SETS, REPLICA_SETS: PODS, STATEFUL_SETS: PODS}.get(kind)
            for (other, its), each in self.inside.items():
                if other == below_kind and its.startswith(f"{name}-") and not each["metadata"].get("ownerReferences"):
                    about = {"kind": kind.kind, "name": name, "uid": owner["metadata"]["uid"], "controller": True}
                    each["metadata"]["ownerReferences"] = [about]


@settings(max_examples=60)
@given(
    deployments=st.lists(st.integers(0, 3), max_size=3),
    sets=st.lists(st.integers(0, 3), max_size=2),
    others=st.integers(1, 3),
    stale=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_a_conversion_cut_short_at_any_write_ends_with_every_pod(
    deployments: list[int], sets: list[int], others: int, *, stale: bool, seed: int
) -> None:
    chance = random.Random(seed)
    world = ConversionWorld(deployments, sets, others)
    wanted = {
        (kind, name)
        for (kind, name), each in world.host.items()
        if kind != JOBS and objects.is_movable(kind, each, PROFILE)
    }
    contents = {key: objects.upper(key[0], each) for key, each in world.host.items() if key[0] in objects.BASICS}
    if stale:
        # Of an attempt that went back to Preparing.
        world.put(SECRETS, "o0", side=Side.INSIDE)["data"] = {"password": "old"}
        world.put(ROLES, "o0", side=Side.INSIDE)["metadata"]["labels"] = {"app": "old"}
    found = Moves(stage="", waits="the first")
    for _ in range(400):
        found = moves.next_moves(world.worlds())
        if found.is_done:
            break
        # The operator ends anywhere in a stage, in which writes have no order.
        writes = list(found.writes)
        chance.shuffle(writes)
        for each in writes[: chance.randint(0, len(writes))]:
            world.send(each)
            if chance.random() < 0.3:
                world.act()
        if chance.random() < 0.7:
            world.act()
    assert found.is_done, found
    assert set(world.inside) == wanted
    assert all(objects.upper(key[0], world.inside[key]) == contents[key] for key in wanted & set(contents))
    pods = {name: each for (kind, name), each in world.host.items() if kind == PODS}
    assert {name: each["metadata"]["uid"] for name, each in pods.items()} == world.before
    assert not world.ended
    for name, each in pods.items():
        assert [owner["uid"] for owner in each["metadata"]["ownerReferences"]] == ["u-vcp"]
        # No controller inside makes another pod: each has its owner, by its new uid.
        above = world.inside[PODS, name]["metadata"]
        assert bool(above.get("ownerReferences")) is (name != "alone")
    left = {(kind, name) for kind, name in world.host if kind not in (PODS, SERVICES)}
    assert left == {(CONFIG_MAPS, "o0"), (SECRETS, "o0"), (ROLES, "tenantry-owner"), (SERVICE_ACCOUNTS, "robot")}


def test_nothing_is_deleted_before_it_is_inside() -> None:
    world = ConversionWorld([2], [1], 1)
    for _ in range(200):
        found = moves.next_moves(world.worlds())
        for each in found.writes:
            asked = each.request
            if each.side is Side.HOST and asked.verb is Verb.DELETE and asked.resource != JOBS:
                assert (asked.resource, asked.name) in world.inside
            world.send(each)
        world.act()
        if found.is_done:
            return
    raise AssertionError("it does not end")


def test_a_job_that_runs_is_waited_for() -> None:
    world = ConversionWorld([], [], 1)
    world.put(JOBS, "now")
    found = moves.next_moves(world.worlds())
    for _ in range(100):
        found = moves.next_moves(world.worlds())
        assert not found.is_done
        for each in found.writes:
            world.send(each)
        world.act()
    assert (found.stage, found.waits) == ("rest", "the end of Job 'now'")
    world.host[JOBS, "now"]["status"] = {"conditions": [{"type": "Failed", "status": "True"}]}
    world.send(moves.next_moves(world.worlds()).writes[0])
    assert moves.next_moves(world.worlds()).is_done


def test_subjects_that_a_suspension_has_taken_are_waited_for() -> None:
    world = ConversionWorld([], [], 1)
    world.put(ROLE_BINDINGS, "b")["metadata"]["annotations"] = {SUSPENDED_SUBJECTS: "[]"}
    world.has_namespace = True
    found = moves.next_moves(world.worlds())
    assert found.waits == "the subjects of RoleBinding 'b', which a suspension has taken"
    for _ in range(100):
        for each in moves.next_moves(world.worlds()).writes:
            world.send(each)
        world.act()
    assert (ROLE_BINDINGS, "b") not in world.inside
    assert moves.next_moves(world.worlds()).stage == "basics"


def test_copies_are_taken_back_and_those_of_users_stay() -> None:
    world = ConversionWorld([1], [], 2)
    world.has_namespace = True
    for each in moves.next_moves(world.worlds()).writes:
        world.send(each)
    world.put(SECRETS, "own", side=Side.INSIDE)
    world.inside[ROLES, "o0"]["rules"] = [{"verbs": ["get"]}]
    for each in moves.taken_back(world.worlds()):
        world.send(each)
    assert set(world.inside) == {(SECRETS, "own"), (ROLES, "o0")}


def test_what_changes_on_the_host_after_its_copy_is_not_lost_and_rights_end() -> None:
    world = ConversionWorld([], [], 2)
    for _ in range(100):
        found = moves.next_moves(world.worlds())
        if found.stage == "rest":
            break
        for each in found.writes:
            world.send(each)
        world.act()
    world.host[SECRETS, "o1"]["data"] = {"certificate": "renewed"}
    world.host[ROLES, "o1"]["rules"] = [{"verbs": ["get"]}]
    for each in moves.next_moves(world.worlds()).writes:
        world.send(each)
    assert moves.next_moves(world.worlds()).is_done
    assert (SECRETS, "o1") in world.host
    assert (ROLES, "o1") not in world.host


def test_a_binding_that_its_dependents_keep_does_not_outlast_the_conversion() -> None:
    world = ConversionWorld([], [], 1)
    meta = world.put(ROLE_BINDINGS, "b")["metadata"]
    meta |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["foregroundDeletion"]}
    sent: list[tuple[Side, Verb, Resource, object]] = []
    for _ in range(100):
        found = moves.next_moves(world.worlds())
        for each in found.writes:
            sent.append((each.side, each.request.verb, each.request.resource, each.request.body))
            world.send(each)
        world.act()
    # Kubernetes deletes it at once then, instead of after its dependents.
    body = {"propagationPolicy": "Background", "preconditions": {"uid": meta["uid"]}}
    assert (Side.HOST, Verb.DELETE, ROLE_BINDINGS, body) in sent
    assert (ROLE_BINDINGS, "b") not in {**world.host, **world.inside}
    assert moves.next_moves(world.worlds()).is_done
