"""A restored cluster: no namespace is deleted, no quota exceeded, and `tenantry adopt` gives everything back.

Objects come back without uids, owner references and statuses, in the order of Velero or in any other, while the
operator works for other tenants.
"""

from __future__ import annotations

import asyncio
import copy
import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from tenantry.api import marks, reasons
from tenantry.api.errors import AlreadyExists, NotFound
from tenantry.api.kubernetes import Namespace, ResourceQuota
from tenantry.api.model import Resource
from tenantry.api.owner import Owner, OwnerKind
from tenantry.api.quota import Quota
from tenantry.api.subnamespace import Inheritance, Mode, Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.cli.imports import adoption
from tenantry.controllers.tenant.desired import QUOTA
from tenantry.kube.client import Client
from tenantry.views import restored
from tenantry.views.restored import TenantAdoption
from testkit.model import Json, World
from testkit.treeworld import add_subnamespace, operator, settle, world_of
from testkit.worldclient import OperatedClient, WorldClient
from testkit.worldcluster import WorldCluster
from testkit.worlds import tenant

KEPT = ("name", "namespace", "labels", "annotations", "finalizers")
"""The metadata that a restore brings back."""
FIRST = ("namespaces", "secrets", "configmaps", "limitranges", "pods")
"""Velero's defaultRestorePriorities, as far as a tenant has these kinds; the others follow by their names."""
HARD = 10

Dump = list[tuple[Resource, Json]]


@pytest.fixture
def backup() -> Dump:
    """A tenant of 10 CPUs with a workspace of 4, in which another one has 1."""
    world = world_of(quota={"requests.cpu": HARD})
    child = add_subnamespace(world, quota=Quota(hard={"requests.cpu": 4}))
    settle(world)
    add_subnamespace(world, "inner", child, quota=Quota(hard={"requests.cpu": 1}))
    settle(world)
    found: Dump = []
    for (resource, _), value in world.objects.items():
        whole = copy.deepcopy(value)
        whole["metadata"] = {key: inner for key, inner in whole["metadata"].items() if key in KEPT}
        whole.pop("status", None)
        found.append((resource, whole))
    return found


def by_velero(item: tuple[Resource, Json]) -> tuple[int, str]:
    plural = item[0].plural
    return FIRST.index(plural) if plural in FIRST else len(FIRST), plural


class Site:
    """A cluster with an operator that works for another tenant."""

    def __init__(self) -> None:
        self.world = World()
        self.world.put_in(Namespace.resource, {"metadata": {"name": "kube-system", "uid": "another-cluster"}})
        for _ in range(100):
            self.world.put_in(
                Namespace.resource, {"metadata": {"name": f"old-{_}"}}
            )  # uids that are not those of the backup
        self.operator: WorldCluster = operator(self.world)
        self.world.create(tenant("globex"))
        self.settle()
        add_subnamespace(self.world, "x", "globex")
        self.settle()
        self.seen: set[str] = set()

    def settle(self) -> None:
        """Let the operator and Kubernetes' own controllers come to rest, and check what must hold meanwhile."""
        for _ in range(3):
            self.operator.settle(30)
            self.world.count_quotas()
            self.world.finish_deletions()

    def check(self) -> None:
        """No namespace of the tenant has gone or ends, and its shares are at most its quota."""
        spaces = {each["metadata"]["name"]: each["metadata"] for each in self.world.list(Namespace.resource)}
        assert self.seen <= spaces.keys()
        assert not [name for name, meta in spaces.items() if "deletionTimestamp" in meta]
        self.seen = {name for name, meta in spaces.items() if meta.get("labels", {}).get(marks.TENANT) == "acme"}
        assert sum(self.shares().values()) <= HARD

    def shares(self) -> dict[str, int]:
        """Return the CPUs of each namespace of the tenant."""
        quotas = [each for each in self.world.list(ResourceQuota.resource) if each["metadata"]["name"] == QUOTA]
        inside = {each["metadata"]["namespace"]: each["spec"]["hard"] for each in quotas}
        return {name: int(hard["requests.cpu"]) for name, hard in inside.items() if "requests.cpu" in hard}

    def restore(self, found: Sequence[tuple[Resource, Json]], after: Callable[[], None]) -> None:
        """Create objects, each in a namespace that is there, and run something after each."""
        left = list(found)
        while left:
            waiting: Dump = []
            for resource, value in left:
                try:
                    self.world.put_in(resource, copy.deepcopy(value))
                except AlreadyExists:
                    continue
                except NotFound:
                    waiting.append((resource, value))
                    continue
                after()
            assert len(waiting) < len(left)
            left = waiting

    def plan(self) -> list[TenantAdoption]:
        """Return what would be adopted."""
        client = WorldClient(self.world, lambda: "none")

        async def read() -> list[TenantAdoption]:
            kinds: list[Any] = [await client.list(kind) for kind in (Tenant, Subnamespace, Namespace)]
            return restored.plan(*kinds)

        return asyncio.run(read())

    def adopt(self) -> None:
        """Adopt all, with an operator that comes to rest between two writes."""
        client: Client = OperatedClient(self.world, self._step)
        for each in self.plan():
            assert each.blocks == ()
            asyncio.run(adoption.rebind(client, each, "another-cluster"))
        self.settle()
        self.check()

    def _step(self) -> None:
        self.settle()
        self.check()

    def is_back(self) -> None:
        """Check that all are ready, with the namespaces and the shares that they had."""
        for kind in (Tenant, Subnamespace):
            for each in self.world.list(kind.resource):
                found = {it["type"]: it["status"] for it in each["status"]["conditions"]}
                assert found["Ready"] == "True", each
        names = {name.rpartition("-")[0] or name: cpu for name, cpu in self.shares().items()}
        assert names == {"acme": 6, "team": 3, "inner": 1}
        assert len(self.seen) == 3
        assert self.plan() == []


def test_velero_brings_a_tenant_back_while_the_operator_works(backup: Dump) -> None:
    """X11: namespaces come first, long before their Subnamespaces and the Tenant."""
    site = Site()

    def after() -> None:
        site.settle()
        site.check()

    site.restore(sorted(backup, key=by_velero), after)
    assert len(site.seen) == 3
    ready = {it["type"]: it for it in site.world.get(Tenant.resource, "acme")["status"]["conditions"]}["Ready"]
    assert ready["reason"] == reasons.NOT_ADOPTED
    assert "`tenantry adopt --plan`" in ready["message"]
    assert "delete" not in ready["message"]
    team = {it["type"]: it for it in site.world.get(Subnamespace.resource, "acme/team")["status"]["conditions"]}
    assert team["Ready"]["reason"] == reasons.NOT_A_TENANTS_NAMESPACE
    assert "`tenantry adopt`" in team["Ready"]["message"]
    (found,) = site.plan()
    assert [each.namespace.rpartition("-")[0] or each.namespace for each in found.namespaces] == [
        "inner",
        "team",
        "acme",
    ]
    site.adopt()
    site.is_back()


@pytest.mark.parametrize("seed", range(6))
def test_namespaces_first_and_the_rest_in_any_order(backup: Dump, seed: int) -> None:
    """X11: the operator may be stopped and started at any time."""
    site, rng = Site(), random.Random(seed)
    spaces = [each for each in backup if each[0] == Namespace.resource]
    rest = [each for each in backup if each[0] != Namespace.resource]
    rng.shuffle(spaces)
    rng.shuffle(rest)

    def after() -> None:
        if rng.random() < 0.3:
            site.operator = operator(site.world)
        if rng.random() < 0.6:
            site.settle()
        site.check()

    site.restore([*spaces, *rest], after)
    site.adopt()
    site.is_back()


def test_a_subnamespace_that_is_restored_alone_gets_its_namespace_back() -> None:
    """X11: in the same cluster, whose Tenant is still there: the namespace waits, and no other takes its place."""
    site = Site()
    site.world.create(tenant("acme", quota={"requests.cpu": HARD}))
    site.settle()
    child = add_subnamespace(site.world, quota=Quota(hard={"requests.cpu": 4}))
    site.settle()
    space, sub = site.world.get(Namespace.resource, child), site.world.get(Subnamespace.resource, "acme/team")
    site.world.delete(Subnamespace.resource, "acme/team")
    site.settle()
    site.settle()
    assert (Namespace.resource, child) not in site.world.objects
    for resource, value in ((Namespace.resource, space), (Subnamespace.resource, sub)):
        bare = {key: inner for key, inner in value["metadata"].items() if key in KEPT}
        site.restore([(resource, {**value, "metadata": bare, "status": {}})], site.settle)
        site.check()
    assert site.seen == {"acme", child}
    conditions = site.world.get(Subnamespace.resource, "acme/team")["status"]["conditions"]
    assert "with `tenantry adopt`" in next(each["message"] for each in conditions if each["type"] == "Ready")
    site.adopt()
    assert site.seen == {"acme", child}
    assert site.shares() == {"acme": 6, child: 4}


def test_a_tenant_is_adopted_whole_or_not_at_all(backup: Dump) -> None:
    """X11: a share that no Subnamespace has would come on top of the quota."""
    site = Site()
    site.restore([each for each in backup if each[1]["metadata"]["name"] != "inner"], lambda: None)
    site.settle()
    (found,) = site.plan()
    (problem,) = found.blocks
    assert "has no Subnamespace" in problem
    assert "/inner'" in problem
    assert "with the finalizer tenantry.dev/subnamespace" in problem


def test_a_namespace_keeps_its_kind(backup: Dump) -> None:
    """X11: as a Workspace, a Subtenant's namespace would be open to the owners above."""
    site = Site()

    def changed(resource: Resource, value: Json) -> tuple[Resource, Json]:
        is_team = resource == Subnamespace.resource and value["metadata"]["name"] == "team"
        return resource, {**value, "spec": {**value["spec"], "mode": "Subtenant"}} if is_team else value

    site.restore([changed(*each) for each in backup], lambda: None)
    assert "is a workspace, and Subnamespace 'acme/team' a subtenant" in site.plan()[0].blocks[0]


@pytest.mark.parametrize("owners", [["mallory"], ["carol", "mallory"], []], ids=["other", "more", "none"])
def test_no_owner_above_a_subtenant_chooses_who_gets_its_contents(owners: list[str]) -> None:
    """TREE-2: a backup may lack a Subnamespace, and the owners above it may create one of that name."""
    world = world_of(quota={"requests.cpu": HARD})
    carol = Owner(kind=OwnerKind.USER, name="carol")
    add_subnamespace(world, mode=Mode.SUBTENANT, inheritance=Inheritance(), owners=(carol,))
    settle(world)
    tenants, spaces = world.list(Tenant.resource), world.list(Namespace.resource)
    (sub,) = world.list(Subnamespace.resource)
    named = [{"kind": "User", "name": name} for name in owners]
    made = {**sub, "metadata": {**sub["metadata"], "uid": "another"}, "spec": {**sub["spec"], "owners": named}}

    def planned(subnamespace: Json) -> TenantAdoption:
        kinds = ((Tenant, tenants), (Subnamespace, [subnamespace]), (Namespace, spaces))
        read: list[Any] = [[msgspec.convert(each, kind) for each in found] for kind, found in kinds]
        (found,) = restored.plan(*read)
        return found

    (block,) = planned(made).blocks
    assert "had the owners User carol" in block
    assert all(f"User {name}" in block for name in owners)
    assert planned({**made, "spec": sub["spec"]}).blocks == ()
