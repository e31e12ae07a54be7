"""The writes that return a tenant from its control plane in random worlds, cut short at any write (H01): pure."""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tenantry.api.model import Json, Resource
from tenantry.api.virtualcontrolplane import PREFIX
from tenantry.controllers.conversion import moves, objects, outcopies, outmoves, outplan
from tenantry.controllers.conversion.moves import Move, Moves, Side, Worlds
from tenantry.controllers.conversion.objects import (
    CONFIG_MAPS,
    CRON_JOBS,
    DEPLOYMENTS,
    REPLICA_SETS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    STATEFUL_SETS,
    Holdings,
)
from tenantry.controllers.conversion.owned import selects
from tenantry.engine.request import Verb
from tenantry.mirror import names
from tenantry.mirror.kinds import claims, networkpolicies, services
from tenantry.mirror.profile import Profile
from tenantry.mirror.things import PODS
from testkit.rfc7396 import merged

OWNER: Json = {"apiVersion": "tenantry.dev/v1alpha1", "kind": "VirtualControlPlane", "name": "acme", "uid": "u-vcp"}
PROFILE = Profile(owner_uid="u-vcp", namespace="acme", prefix=PREFIX, owner={**OWNER, "controller": True})
CLAIMS, POLICIES, SERVICES = claims.RESOURCE, networkpolicies.RESOURCE, services.RESOURCE
OWNED = {DEPLOYMENTS: REPLICA_SETS, REPLICA_SETS: PODS, STATEFUL_SETS: PODS}
Key = tuple[Resource, str]


class ReturnWorld:
    """Both sides, with the controllers of Kubernetes on the host; there is no mirror any more.

    Args:
        deployments: The replicas of each Deployment.
        sets: The replicas of each StatefulSet, whose pods are adopted: they keep their names.
        others: How many there are of each other kind.
        adopted: Whether the pods of Deployments are adopted, too.
    """

    def __init__(self, deployments: Sequence[int], sets: Sequence[int], others: int, *, adopted: bool) -> None:
        self.host: dict[Key, Json] = {}
        self.inside: dict[Key, Json] = {}
        self.number = 0
        self.lowest: dict[str, int] = {}
        for index in range(others):
            for resource in (CONFIG_MAPS, SECRETS, SERVICES, POLICIES, CLAIMS):
                self.mirror(resource, self.put(resource, f"o{index}"), adopted=adopted)
            for resource in (ROLES, ROLE_BINDINGS, CRON_JOBS, SERVICE_ACCOUNTS):
                self.put(resource, f"o{index}")
        for index, replicas in enumerate(deployments):
            owner = self.put(DEPLOYMENTS, f"d{index}")
            newest = self.put(REPLICA_SETS, f"d{index}-new", owner)
            newest["spec"]["replicas"] = replicas
            for each in range(replicas):
                self.mirror(PODS, self.put(PODS, f"d{index}-new-{each}", newest), adopted=adopted)
        for index, replicas in enumerate(sets):
            owner = self.put(STATEFUL_SETS, f"s{index}")
            owner["spec"]["replicas"] = replicas
            for each in range(replicas):
                self.mirror(PODS, self.put(PODS, f"s{index}-{each}", owner), adopted=True)
        self.mirror(PODS, self.put(PODS, "alone"), adopted=adopted)
        self.before = {each["metadata"]["uid"] for (kind, _), each in self.host.items() if kind == PODS}
        self.kept = {
            (kind, each["metadata"]["uid"]) for (kind, _), each in self.host.items() if kind in (SERVICES, CLAIMS)
        }

    def put(self, resource: Resource, name: str, owner: Json | None = None) -> Json:
        """Create an object inside, with everything that must not reach the host."""
        self.number += 1
        app = name.split("-", maxsplit=1)[0]
        hostile = {f"{PREFIX}/owner": "u-other", "Tenantry.dev/tenant": "other"}
        meta: Json = {
            "name": name,
            "namespace": "acme",
            "uid": f"u-{self.number}",
            "generation": 1,
            "labels": {"app": app, **hostile},
            "annotations": dict(hostile),
            "ownerReferences": [{"kind": "Tenant", "name": "other", "uid": "u-x"}],
        }
        if owner is not None:
            kind = next(kind.kind for (kind, _), each in self.inside.items() if each is owner)
            about = {"kind": kind, "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
            meta["ownerReferences"] = [{**about, "controller": True}]
        value: Json = {"metadata": meta, "spec": {}}
        if resource in (DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS):
            volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "o0"}}] if resource != STATEFUL_SETS else []
            template = {"metadata": {"labels": {"app": app}, "finalizers": ["x/y"]}, "spec": {"volumes": volumes}}
            value["spec"] = {"selector": {"matchLabels": {"app": app}}, "template": template}
            value["status"] = {"observedGeneration": 1}
        if resource in (SERVICES, POLICIES):
            field = "selector" if resource == SERVICES else "podSelector"
            value["spec"] = {field: {"app": name} if resource == SERVICES else {"matchLabels": {"app": name}}}
        if resource == ROLE_BINDINGS:
            value["roleRef"] = {"kind": "Role", "name": name}
        if resource == PODS:
            reads = [{"configMapRef": {"name": "o0"}}, {"secretRef": {"name": "o0"}}]
            value["spec"] = {"containers": [{"name": "c", "image": "i", "envFrom": reads}]}
        self.inside[resource, name] = value
        return value

    def mirror(self, resource: Resource, above: Json, *, adopted: bool) -> None:
        """Create the object of the host, as the mirror does."""
        self.number += 1
        name = above["metadata"]["name"]

        def lower(kind: str, its: str) -> str:
            return its if adopted else names.lower_name("u-vcp", kind, "acme", its)

        value = copy.deepcopy(above)
        value["metadata"] = {
            "name": lower(resource.kind, name),
            "namespace": "acme",
            "uid": f"u-{self.number}",
            "labels": {"app": above["metadata"]["labels"]["app"], **PROFILE.labels("acme")},
            "annotations": {
                f"{PREFIX}/name": name,
                f"{PREFIX}/namespace": "acme",
                f"{PREFIX}/uid": above["metadata"]["uid"],
            },
            "ownerReferences": [{**OWNER, "controller": True}],
        }
        if resource == SERVICES:
            value["spec"]["selector"].update(PROFILE.labels("acme"))
        if resource == PODS:
            for source in value["spec"]["containers"][0]["envFrom"]:
                for kind, reference in source.items():
                    reference["name"] = lower("ConfigMap" if kind == "configMapRef" else "Secret", reference["name"])
        self.host[resource, lower(resource.kind, name)] = value

    def worlds(self) -> Worlds:
        """Return what a list of both sides returns."""

        def holdings(side: dict[Key, Json], kinds: Sequence[Resource]) -> Holdings:
            found = copy.deepcopy(side)
            return Holdings(of={kind: [each for (of, _), each in found.items() if of == kind] for kind in kinds})

        host, inside = holdings(self.host, outplan.HOST), holdings(self.inside, outplan.INSIDE)
        return Worlds(host=host, inside=inside, has_namespace=True, profile=PROFILE)

    def send(self, move: Move) -> None:
        """Carry out a write."""
        asked = move.request
        assert move.side is Side.HOST
        key = (asked.resource, asked.name)
        assert isinstance(asked.body, dict)
        if asked.verb is Verb.CREATE:
            assert key not in self.host
            text = str(asked.body)
            assert "u-other" not in text
            assert "finalizers" not in text
            assert "ownerReferences" not in asked.body["metadata"]
            assert not any("enantry" in each for each in asked.body["metadata"].get("labels", {}))
            self.number += 1
            self.host[key] = {**asked.body, "metadata": {**asked.body["metadata"], "uid": f"u-{self.number}"}}
        elif asked.verb is Verb.PATCH:
            self.host[key] = merged(self.host[key], asked.body)
        elif asked.verb is Verb.REPLACE:
            assert asked.body["metadata"]["uid"] == self.host[key]["metadata"]["uid"]
            self.host[key] = dict(asked.body)
        else:
            assert asked.resource not in (PODS, SERVICES, CLAIMS)
            del self.host[key]

    def act(self) -> None:
        """Have the controllers of the host take over what has no owner, and delete what they have too much."""
        for (kind, _), owner in list(self.host.items()):
            if kind not in OWNED:
                continue
            owner["status"] = {"observedGeneration": 1}
            uid = owner["metadata"]["uid"]
            for (other, _), each in self.host.items():
                is_free = not any(found.get("controller") for found in each["metadata"].get("ownerReferences", ()))
                chosen = selects(owner["spec"]["selector"], objects.labels(each))
                if other == OWNED[kind] and is_free and chosen:
                    name = owner["metadata"]["name"]
                    about = {"kind": kind.kind, "name": name, "uid": uid, "controller": True}
                    each["metadata"]["ownerReferences"] = [about]
            if kind != DEPLOYMENTS:
                mine = [
                    each
                    for (other, _), each in self.host.items()
                    if other == PODS and objects.controller_of(each).get("uid") == uid
                ]
                assert len(mine) == owner["spec"]["replicas"], (
                    "its controller sees another number of pods than it wants"
                )


def check(world: ReturnWorld) -> None:
    """Assert that all of a world is on the host, and that nothing there is the mirror's."""
    pods = [each for (kind, _), each in world.host.items() if kind == PODS]
    assert {each["metadata"]["uid"] for each in pods} == world.before
    there = {(kind, each["metadata"]["uid"]) for (kind, _), each in world.host.items()}
    assert world.kept <= there
    for (kind, _), each in world.host.items():
        # The end of the control plane deletes what it owns.
        assert not outcopies.is_marked(each, PROFILE), (kind, each)
        assert not any(key.startswith(PREFIX) for key in (*objects.labels(each), *objects.notes(each)))
    for kind, name in world.inside:
        if kind not in (PODS, CLAIMS):
            assert (kind, name) in world.host, (kind, name)
    for each in pods:
        is_alone = each["metadata"]["labels"]["app"] == "alone"
        assert bool(objects.controller_of(each)) is not is_alone
    claimed = {each["metadata"]["name"] for (kind, _), each in world.host.items() if kind == CLAIMS}
    for (kind, _), each in world.host.items():
        if kind == DEPLOYMENTS:
            assert set(outcopies.claimed(outcopies.template_of(kind, each)["spec"])) <= claimed


@settings(max_examples=60)
@given(
    deployments=st.lists(st.integers(0, 3), max_size=3),
    sets=st.lists(st.integers(0, 3), max_size=2),
    others=st.integers(1, 3),
    adopted=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_a_return_cut_short_at_any_write_keeps_every_pod(
    deployments: list[int], sets: list[int], others: int, *, adopted: bool, seed: int
) -> None:
    chance = random.Random(seed)
    world = ReturnWorld(deployments, sets, others, adopted=adopted)
    found = Moves(stage="", waits="the first")
    for _ in range(400):
        found = moves.next_moves(world.worlds(), outmoves.STAGES)
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
    check(world)


class OtherNamespaceWorld(ReturnWorld):
    """Another namespace inside, in which nothing runs, and the child namespace of its Subnamespace."""

    def __init__(self, deployments: int, sets: int, others: int) -> None:
        super().__init__([0] * deployments, [0] * sets, others, adopted=False)
        self.host.clear()
        self.inside = {key: each for key, each in self.inside.items() if key[0] not in (PODS, CLAIMS)}

    def worlds(self) -> Worlds:
        """Return what a list of both sides returns."""
        profile = replace(PROFILE, namespace="shop-0123456789abcdef")
        return replace(super().worlds(), profile=profile, source="shop", places={"shop": profile.namespace})


@settings(max_examples=40)
@given(deployments=st.integers(0, 3), sets=st.integers(0, 2), others=st.integers(1, 3), seed=st.integers(0, 1000))
def test_another_namespace_cut_short_at_any_write_moves_as_a_whole(
    deployments: int, sets: int, others: int, seed: int
) -> None:
    chance = random.Random(seed)
    world = OtherNamespaceWorld(deployments, sets, others)
    found = Moves(stage="", waits="the first")
    for _ in range(400):
        found = outmoves.next_elsewhere([world.worlds()])
        if found.is_done:
            break
        writes = list(found.writes)
        chance.shuffle(writes)
        for each in writes[: chance.randint(0, len(writes))]:
            assert each.request.namespace == "shop-0123456789abcdef"
            assert each.request.verb is Verb.CREATE, "nothing there is deleted or changed"
            world.send(each)
        if chance.random() < 0.7:
            world.act()
    assert found.is_done, found
    assert set(world.host) == set(world.inside)
    for (kind, name), each in world.host.items():
        if kind == REPLICA_SETS:
            assert objects.controller_of(each)["name"] == name.removesuffix("-new")
