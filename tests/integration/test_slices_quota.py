"""Slices and quotas in one tree: claims are charged, their users not twice, and it ends with the claim."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import Any

import pytest

from tenantry.api import reasons
from tenantry.api.errors import Forbidden
from tenantry.api.kubernetes import ResourceQuota
from tenantry.api.model import Resource
from tenantry.api.slice import Slice, SliceClaim
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.api.tenantresourcequota import TenantResourceQuota
from tenantry.controllers.tenant.desired import QUOTA
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local.cluster import LocalCluster
from testkit.api import SECONDS, Api, until
from testkit.ledger import Ledger
from testkit.operators import Operator
from testkit.pool import Pool, claim, message, state
from testkit.trees import Trees

pytest_plugins = ["testkit.fixtures"]

# Every test needs the operator that leads.
pytestmark = pytest.mark.usefixtures("operator")

Json = dict[str, Any]
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
OWNER = {"kind": "User", "name": "bob"}


async def shares(api: Api, **wanted: str) -> None:
    """Wait until namespaces have these CPUs in force, by name with _ for -."""

    async def so() -> bool:
        found = {place: await api.find(ResourceQuota.resource, QUOTA, place.replace("_", "-")) for place in wanted}
        return all(
            each is not None
            and each["spec"]["hard"]["requests.cpu"] == wanted[place]
            and each.get("status", {}).get("hard", {}).get("requests.cpu") == wanted[place]
            for place, each in found.items()
        )

    # Others' shares may have to come back first, with the end of their namespaces.
    await until(so, f"shares are {wanted}", seconds=2 * SECONDS)


async def test_a_claim_is_charged_until_it_ends(api: Api, pool: Pool, name: str) -> None:
    """X03, E13: nodes come out of the tenant's quota; its own namespace has the rest, and then all of it again."""
    await pool.add(3)
    await api.make_tenant(name, quota={"hard": {"cpu": 20, "pods": 50}})
    await claim(api, name, "fast", selector=pool.selector, count=2)
    reserved = await state(api, name, "fast", "Reserved")
    made = await api.get(Slice.resource, reserved["status"]["slice"])
    assert made["spec"]["charge"]["requests.cpu"] == "16"
    assert made["status"]["charged"]["requests.cpu"] == "16"
    assert "pods" not in made["spec"]["charge"]
    await shares(api, **{name.replace("-", "_"): "4"})

    async def told_of() -> bool:
        tree = (await api.get(TenantResourceQuota.resource, name))["status"].get("tree", [{}])
        return tree[0].get("claims") == [{"claim": "fast", "kind": "SliceClaim", "assigned": {"requests.cpu": "16"}}]

    await until(told_of, "the tree of shares tells of the claim")
    await claim(api, name, "more", selector=pool.selector)
    blocked = await state(api, name, "more", "Pending", reasons.QUOTA_INSUFFICIENT)
    told = message(blocked)
    assert "requests.cpu: 8 requested, 4 available" in told
    assert "'claim fast' has 16" in told
    assert "nodes" not in blocked["status"]
    await api.delete(SliceClaim.resource, "fast", name)
    await state(api, name, "more", "Reserved")
    await shares(api, **{name.replace("-", "_"): "12"})
    await api.delete(SliceClaim.resource, "more", name)
    await shares(api, **{name.replace("-", "_"): "20"})


async def test_users_of_a_claim_have_its_share(api: Api, pool: Pool, name: str) -> None:
    """X03: a namespace that runs on the slice may use what its nodes have; what it had before is the tree's again."""
    await pool.add(2)
    trees = Trees(api)
    await api.make_tenant(name, quota={"hard": {"cpu": 20}})
    spec = {"mode": "Workspace", "owners": [OWNER], "quota": {"hard": {"cpu": 3}}}
    web = await trees.make(name, "web", spec)
    place, below = name.replace("-", "_"), web.replace("-", "_")
    await shares(api, **{place: "17", below: "3"})
    await claim(api, name, "fast", selector=pool.selector, count=2, subnamespaces=["web"])
    await state(api, name, "fast", "Bound")
    await shares(api, **{place: "4", below: "16"})
    await api.delete(SliceClaim.resource, "fast", name)
    await shares(api, **{place: "17", below: "3"})


async def test_the_claims_own_namespace_has_its_share(api: Api, pool: Pool, name: str) -> None:
    """X03: what is left of the quota is there for its children; a larger quota lets a waiting claim in."""
    await pool.add(2)
    trees = Trees(api)
    await api.make_tenant(name, quota={"hard": {"cpu": 4}})
    await claim(api, name, "fast", selector=pool.selector, users="Everybody")
    blocked = await state(api, name, "fast", "Pending", reasons.QUOTA_INSUFFICIENT)
    assert "requests.cpu: 8 requested, 4 available" in message(blocked)
    await api.patch(Tenant.resource, name, {"spec": {"quota": {"hard": {"cpu": 14}}}})
    await state(api, name, "fast", "Bound")
    place = name.replace("-", "_")
    await shares(api, **{place: "8"})
    spec = {"mode": "Subtenant", "owners": [OWNER], "quota": {"hard": {"cpu": 6}}}
    sub = await trees.make(name, "sub", spec)
    await shares(api, **{place: "8", sub.replace("-", "_"): "6"})


class Crowd:
    """People of one tenant who claim nodes and make children, and take both back, all at once.

    Args:
        api: An administrator.
        pool: The nodes.
        tenant: Whose they are.
        chance: What they do.
    """

    def __init__(self, api: Api, pool: Pool, tenant: str, chance: random.Random) -> None:
        self._api = api
        self._pool = pool
        self._tenant = tenant
        self._chance = chance
        self._count = 0
        self.made: list[tuple[Resource, str]] = []

    async def act(self) -> None:
        """Make something, or take something back."""
        if self.made and self._chance.random() < 0.4:
            resource, called = self.made.pop(self._chance.randrange(len(self.made)))
            await self._api.delete(resource, called, self._tenant)
            return
        self._count += 1
        called = f"c{self._count}"
        if self._chance.random() < 0.5:
            await claim(self._api, self._tenant, called, selector=self._pool.selector, count=self._chance.randint(1, 2))
            self.made.append((SliceClaim.resource, called))
            return
        quota = {"hard": {"cpu": self._chance.randint(1, 9)}}
        spec = {"mode": "Workspace", "owners": [OWNER], "quota": quota}
        with suppress(Forbidden):  # a policy sees at once that its parent has too little
            await self._api.create(Subnamespace.resource, {"metadata": {"name": called}, "spec": spec}, self._tenant)
            self.made.append((Subnamespace.resource, called))

    async def heard(self) -> None:
        """Wait until everything that was made has been looked at."""

        async def so() -> bool:
            found = [await self._api.get(resource, called, self._tenant) for resource, called in self.made]
            return all(each.get("status", {}).get("conditions") for each in found)

        await until(so, "everything has been looked at")

    async def leave(self) -> None:
        """Take everything back."""
        await asyncio.gather(*(self._api.delete(resource, called, self._tenant) for resource, called in self.made))


@pytest.mark.long
async def test_claims_and_shares_together_are_never_more_than_the_whole(
    api: Api, operator: Operator, tenancy: LocalCluster, pool: Pool, name: str
) -> None:
    """X03: at every resourceVersion, read by an auditor of its own, while the operator is killed; then all is free."""
    seed = random.SystemRandom().randrange(1, 10**6)
    print(f"seed {seed}")
    await pool.add(4)
    await api.make_tenant(name, quota={"hard": {"cpu": 24}})
    crowd = Crowd(api, pool, name, random.Random(seed))
    async with (
        Client(kubeconfig.load([tenancy.kubeconfig_path])) as client,
        Ledger(client, claims_of=name).watching() as ledger,
    ):
        for turn in range(8):
            await asyncio.gather(*(crowd.act() for _ in range(4)))
            if turn in {2, 5}:
                await operator.kill()
                await operator.start()
                await api.delete(LEASES, "tenantry-operator", "tenantry-system")
            await crowd.heard()
        await crowd.leave()
        await shares(api, **{name.replace("-", "_"): "24"})
        await ledger.catch_up(api)
    assert ledger.breaches() == []
    assert ledger.checked > 20
