"""Claims of nodes in a tree of shares: charged once for any number of users, and never more than the quota."""

from __future__ import annotations

import random

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tenantry.world.shares.amounts import Amounts, ShareQuota, add, fits
from tenantry.world.shares.claims import users, uses
from tenantry.world.shares.division import Division
from tenantry.world.shares.share import Share, ShareRequest, TreeNamespace
from tenantry.world.shares.tree import Tree
from testkit.examples import examples

CPU = "requests.cpu"
WHOLE: Amounts = {CPU: 40, "pods": 40}
CORE = "core"


class World:
    """A tenant whose ResourceQuotas follow at once.

    Args:
        whole: Its quota.
    """

    def __init__(self, whole: Amounts) -> None:
        self.tree = Tree(whole)
        self.namespaces: dict[str, TreeNamespace] = {}
        self.claims: dict[str, ShareRequest] = {}
        self._version = 0
        self.put(TreeNamespace(name=CORE, uid="u-core"))
        Division(self.tree).start(())
        self.settle()

    def put(self, found: TreeNamespace) -> None:
        """Make a namespace, or have it use a slice."""
        self.namespaces[found.name] = found
        self.tree.put_namespace(found)

    def child(self, name: str, parent: str, **hard: int) -> None:
        """Ask for a Subnamespace and make its namespace."""
        named = {CPU if key == "cpu" else key: value for key, value in hard.items()}
        self.tree.put_request(ShareRequest(uid=name, name=name, parent=parent, hard=named, created=str(self.tick())))
        if name not in self.namespaces:
            self.put(TreeNamespace(name=name, uid=f"u-{name}", key=name, parent=parent))
        self.settle()

    def claim(self, name: str, parent: str, cpu: int) -> None:
        """Claim nodes."""
        created = self.claims[name].created if name in self.claims else str(self.tick())
        self.claims[name] = ShareRequest(
            uid=name, name=name, parent=parent, hard={CPU: cpu}, created=created, slice=name
        )
        self.tree.put_request(self.claims[name])
        self.settle()

    def plane(self, name: str, parent: str, cpu: int, *, charged: int = 0) -> None:
        """Request a control plane, or change its resources; the status records what it was granted."""
        created = self.claims[name].created if name in self.claims else str(self.tick())
        self.claims[name] = ShareRequest(
            uid=name,
            name=name,
            parent=parent,
            hard={CPU: max(cpu, charged)},
            created=created,
            plane=f"{parent}/{name}",
            charged={CPU: charged},
        )
        self.tree.put_request(self.claims[name])
        self.settle()

    def release(self, name: str) -> None:
        """End a claim without users."""
        del self.claims[name]
        self.tree.drop_request(name)
        self.settle()

    def use(self, namespace: str, slice_: str) -> None:
        """Have a namespace's pods run on a slice, or on any node."""
        old = self.namespaces[namespace]
        self.put(TreeNamespace(name=namespace, uid=old.uid, key=old.key, parent=old.parent, slice=slice_))
        self.settle()

    def run(self, namespace: str, cpu: int) -> None:
        """Have a namespace use so much, at most what it may."""
        self._write(namespace, {CPU: cpu})
        self.settle()

    def tick(self) -> int:
        """Return the next resourceVersion."""
        self._version += 1
        return 1000 + self._version

    def settle(self) -> None:
        """Bring every ResourceQuota to what it should be."""
        for _ in range(20):
            Division(self.tree).divide()
            wrong = [name for name in self.namespaces if name in self.tree.bare | self.tree.differing]
            if not wrong:
                return
            for name in wrong:
                self._write(name, {})
        raise AssertionError("the shares do not come to rest")

    def _write(self, namespace: str, used: Amounts) -> None:
        share = self.share(namespace)
        known = self.tree.quotas.get(namespace)
        before = known.used if known is not None else {}
        in_use = {key: min(used.get(key, before.get(key, 0)), max(share.own[key], before.get(key, 0))) for key in WHOLE}
        hard = dict(share.own)
        held = ShareQuota(uid=f"q-{namespace}", version=self.tick(), hard=hard, in_force=hard, used=in_use)
        self.tree.put_quota(namespace, held)

    def share(self, namespace: str) -> Share:
        """Return a namespace's node."""
        share = self.tree.at(namespace)
        assert share is not None
        return share

    def own(self, namespace: str) -> int:
        """Return the CPUs that a namespace's ResourceQuota has."""
        return self.share(namespace).own[CPU]

    def granted(self, claim: str) -> int:
        """Return the CPUs that a claim is charged with."""
        return self.tree.shares[claim].granted[CPU]

    def charged(self) -> Amounts:
        """Return what namespaces and claims hold together, what they hold in each other's stead once."""
        sums: Amounts = {}
        for name in self.namespaces:
            add(sums, self.share(name).own)
        for claim in self.tree.claims:
            parent = self.tree.parent_of(claim)
            assert parent is not None
            for key, value in claim.granted.items():
                instead = sum(user.granted[key] for user in users(self.tree.children_of(parent), claim))
                instead += parent.own[key] if uses(parent, claim) else 0
                add(sums, {key: max(0, value - instead)})
        return sums


def test_a_claim_is_charged_and_given_back() -> None:
    """X03: no other namespace, not even its own, can use its nodes' CPUs until it ends."""
    world = World(WHOLE)
    world.child("web", CORE, cpu=10)
    world.claim("fast", CORE, 16)
    assert (world.granted("fast"), world.own(CORE), world.own("web")) == (16, 14, 10)
    world.claim("large", CORE, 20)
    blocked = world.tree.shares["large"].blocked
    assert world.granted("large") == 0
    assert blocked is not None
    assert "cpu: 20m requested, 14m available" in blocked.message
    assert "'fast' has 16m" in blocked.message
    world.release("fast")
    assert (world.granted("large"), world.own(CORE)) == (20, 10)


def test_a_control_plane_is_charged_until_it_is_gone() -> None:
    """H01: also while it is being deleted; what waits for room gets it then."""
    world = World(WHOLE)
    world.child("web", CORE, cpu=10)
    world.plane("first", "web", 8)
    assert (world.granted("first"), world.own("web"), world.own(CORE)) == (8, 2, 30)
    world.plane("second", "web", 4)
    blocked = world.tree.shares["second"].blocked
    assert blocked is not None
    assert "cpu: 4m requested, 2m available" in blocked.message
    assert "'first' has 8m" in blocked.message
    world.tree.put_request(msgspec.structs.replace(world.claims["first"], hard={CPU: 1}, deleting=True))
    world.settle()
    assert (world.granted("first"), world.granted("second")) == (8, 0)
    world.release("first")
    assert (world.granted("second"), world.own("web"), world.own(CORE)) == (4, 6, 30)


def test_a_control_plane_that_was_charged_keeps_its_share_after_a_restart() -> None:
    """H01: a tree that is read anew gives nothing of it to an older request."""
    world = World(WHOLE)
    world.plane("first", CORE, 30)
    world.plane("first", CORE, 30, charged=30)
    anew = Tree(WHOLE)
    for name, held in world.tree.quotas.items():
        anew.put_quota(name, held)
    for found in world.namespaces.values():
        anew.put_namespace(found)
    anew.put_request(world.claims["first"])
    anew.put_request(ShareRequest(uid="old", name="old", parent=CORE, hard={CPU: 20}, created="0", plane="core/old"))
    Division(anew).start(())
    Division(anew).divide()
    assert (anew.shares["first"].granted[CPU], anew.shares["old"].granted[CPU]) == (30, 0)


def test_a_control_plane_is_no_claim_of_nodes() -> None:
    """H01: a namespace without a slice does not hold the share of a control plane in its place."""
    world = World(WHOLE)
    world.child("web", CORE, cpu=4)
    world.plane("first", CORE, 16)
    assert not uses(world.share("web"), world.tree.shares["first"])
    assert (world.own("web"), world.own(CORE), world.charged()[CPU]) == (4, 20, 40)


def test_the_namespace_of_a_claim_has_its_share_and_no_other() -> None:
    """X03: its pods are not charged twice, and what it had before is free for its children."""
    world = World(WHOLE)
    world.claim("fast", CORE, 16)
    world.run(CORE, 4)
    world.use(CORE, "fast")
    assert world.own(CORE) == 16
    world.run(CORE, 16)
    world.child("web", CORE, cpu=24)
    assert (world.own(CORE), world.own("web")) == (16, 24)
    assert world.charged()[CPU] == 40
    assert world.share(CORE).own["pods"] == 40


def test_a_subnamespace_has_the_claims_share_in_its_stead() -> None:
    """X03: the oldest that uses it has all but what others ask for; what it had before goes back to the tree."""
    world = World(WHOLE)
    world.child("web", CORE, cpu=4)
    world.child("shop", CORE, cpu=6)
    world.claim("fast", CORE, 16)
    assert world.own(CORE) == 14
    world.use("web", "fast")
    assert (world.own("web"), world.own(CORE)) == (16, 18)
    world.use("shop", "fast")
    assert (world.own("web"), world.own("shop"), world.own(CORE)) == (10, 6, 24)
    assert world.charged()[CPU] == 40
    world.use("web", "")
    world.use("shop", "")
    assert (world.own("web"), world.own("shop"), world.own(CORE)) == (4, 6, 14)


def test_a_child_that_uses_the_claim_of_its_parent_has_its_share_of_it() -> None:
    """X03: also where all of the tenant's quota is claimed."""
    world = World(WHOLE)
    world.claim("fast", CORE, 40)
    world.use(CORE, "fast")
    assert world.own(CORE) == 40
    world.tree.put_request(ShareRequest(uid="web", name="web", parent=CORE, hard={CPU: 8}, created="2"))
    world.put(TreeNamespace(name="web", uid="u-web", key="web", parent=CORE, slice="fast"))
    world.settle()
    assert (world.own(CORE), world.own("web")) == (32, 8)
    assert world.charged()[CPU] == 40


def test_what_is_held_twice_below_a_namespace_is_no_more_than_its_share() -> None:
    """X03: a claim and its user in a Subnamespace hold one share; a restarted operator gives it no second one."""
    world = World(WHOLE)
    world.child("a", CORE, cpu=13)
    world.claim("fast", "a", 13)
    world.child("b", "a", cpu=0)
    world.use("b", "fast")
    world.claim("fast", "a", 25)
    world.claim("other", CORE, 3)
    assert (world.granted("fast"), world.own("b"), world.own("a"), world.own(CORE)) == (13, 13, 0, 24)
    assert world.share("a").granted[CPU] == 13
    assert world.charged()[CPU] == 40


def test_a_tree_that_is_read_anew_knows_what_claims_hold() -> None:
    """X03: a restart gives nothing away that a claim has, and charges nothing twice."""
    for user in ("", CORE, "web"):
        world = World(WHOLE)
        world.child("web", CORE, cpu=4)
        world.claim("fast", CORE, 16)
        if user:
            world.use(user, "fast")
        before = {name: world.own(name) for name in world.namespaces}
        anew = Tree(WHOLE)
        for name, held in world.tree.quotas.items():
            anew.put_quota(name, held)
        for found in world.namespaces.values():
            anew.put_namespace(found)
        anew.put_request(ShareRequest(uid="web", name="web", parent=CORE, hard={CPU: 4}, created="1"))
        fast = world.claims["fast"]
        late = ShareRequest(uid="late", name="late", parent=CORE, hard={CPU: 30}, created="0", slice="late")
        charged = ShareRequest(uid="fast", name="fast", parent=CORE, hard=fast.hard, slice="fast", charged={CPU: 16})
        anew.put_request(late)
        anew.put_request(charged)
        Division(anew).start(())
        Division(anew).divide()
        assert anew.shares["fast"].granted[CPU] == 16
        assert anew.shares["late"].granted[CPU] == 0
        assert {name: share.own[CPU] for name in world.namespaces if (share := anew.at(name))} == before


def test_what_a_namespace_had_of_a_claim_does_not_become_its_default_after_a_restart() -> None:
    """X03: whatever the order in which the objects are read."""
    world = World(WHOLE)
    world.claim("fast", CORE, 16)
    web = ShareRequest(uid="web", name="web", parent=CORE, hard={"pods": 4}, created="2")
    world.tree.put_request(web)
    world.put(TreeNamespace(name="web", uid="u-web", key="web", parent=CORE, slice="fast"))
    world.settle()
    assert (world.own(CORE), world.own("web")) == (24, 16)
    fast = msgspec.structs.replace(world.claims["fast"], charged={CPU: 16})
    for order in ([web, fast], [fast, web], [fast, None, web]):  # None: the tree starts
        anew = Tree(WHOLE)
        for name, held in world.tree.quotas.items():
            anew.put_quota(name, held)
        for found in world.namespaces.values():
            anew.put_namespace(found)
        for request in order:
            if request is None:
                Division(anew).start(())
            else:
                anew.put_request(request)
        if None not in order:
            Division(anew).start(())
        share = anew.shares["web"]
        assert share.defaults == {}, order


@examples(100)
@given(st.randoms(use_true_random=False), st.integers(5, 40))
def test_what_is_held_is_never_more_than_there_is(chance: random.Random, steps: int) -> None:
    """X03: namespaces and claims together, for any requests and users; and the tree converges."""
    world = World(WHOLE)
    for _ in range(steps):
        spaces = list(world.namespaces)
        match chance.randint(0, 6):
            case 0 | 1:
                name = chance.choice("abcd")
                old = world.namespaces.get(name)
                parent = old.parent if old is not None else chance.choice(spaces)
                named = {"cpu": chance.randint(0, 20), "pods": chance.randint(0, 5)}
                world.child(name, parent, **{key: value for key, value in named.items() if chance.random() < 0.7})
            case 2:
                name = chance.choice("xyz")
                known = world.claims.get(name)
                world.claim(name, known.parent if known else chance.choice(spaces), chance.randint(1, 30))
            case 3:
                world.run(chance.choice(spaces), chance.randint(0, 30))
            case 4:
                _use_some(world, chance)
            case 5:
                name = chance.choice("uvw")
                known = world.claims.get(name)
                # A charge is what was granted before.
                charged = chance.choice([0, world.granted(name)]) if known else 0
                parent = known.parent if known else chance.choice(spaces)
                world.plane(name, parent, chance.randint(1, 30), charged=charged)
            case _:
                idle = [
                    name for name in world.claims if all(found.slice != name for found in world.namespaces.values())
                ]
                if idle:
                    world.release(chance.choice(idle))
        assert fits(world.charged(), WHOLE), world.charged()


def _use_some(world: World, chance: random.Random) -> None:
    """Have a namespace use a claim that has its nodes, in its own namespace or the one above."""
    found = world.namespaces[chance.choice(list(world.namespaces))]
    near = [name for name, claim in world.claims.items() if claim.parent in {found.name, found.parent}]
    mine = [name for name in near if world.granted(name)]
    if mine and not found.slice:
        world.use(found.name, chance.choice(mine))
