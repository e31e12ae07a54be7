"""Stories of a tree of shares: several operators, late and lost writes, crashes; checked against the whole quota."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec

from tenantry.world.shares.amounts import Amounts, ObservedTenantQuota, ShareQuota, ShareTarget, beyond, total
from tenantry.world.shares.batches import (
    BatchPlanner,
    BatchStep,
    CreateQuota,
    EnforceQuota,
    RelistTree,
    RereadTenantQuota,
    UpdateQuota,
    UpdateTenantQuota,
)
from tenantry.world.shares.division import Division
from tenantry.world.shares.remote import RemoteKey, put_requests
from tenantry.world.shares.share import ShareRequest, TreeNamespace
from tenantry.world.shares.tree import Tree
from testkit.ledger import End

KEYS = ("requests.cpu", "limits.cpu", "c")
"""Of the first two, a child gets a default if it names none; of the last one, amounts this small are never given."""
CORE = "core"


class Cluster:
    """What the API server knows of one tenant, with every write checked."""

    def __init__(self, whole: Amounts, *, reclaim: bool = False) -> None:
        self.version = 1
        self.whole, self.reclaim = whole, reclaim
        self.children: dict[str, ShareRequest] = {}
        self.claims: dict[str, ShareRequest] = {}
        self.wanted: dict[RemoteKey, Amounts] = {}  # at peers
        self.lost: dict[RemoteKey, Amounts] = {}  # at peers that are given up
        self.confirmed: dict[RemoteKey, int] = {}
        self.bound: dict[str, Amounts] = {}  # what contributed nodes may have added, by namespace
        self.namespaces: dict[str, TreeNamespace] = {}
        self.quotas: dict[str, ShareQuota] = {}
        self.tenant_quota: ObservedTenantQuota | None = None
        self.edited = False
        self.namespaces[CORE] = TreeNamespace(name=CORE, uid="core-uid")
        self.put_quota(CORE, ShareQuota(uid="q0", version=0, hard=dict(whole), in_force={}, used={}))

    def tick(self) -> int:
        self.version += 1
        return self.version

    def put_quota(self, namespace: str, held: ShareQuota) -> ShareQuota:
        stored = self.quotas[namespace] = msgspec.structs.replace(held, version=self.tick())
        self.check()
        return stored

    def put_tenant_quota(self, tenant_quota: ObservedTenantQuota) -> ObservedTenantQuota:
        self.tenant_quota = msgspec.structs.replace(tenant_quota, version=self.tick())
        self.check()
        return self.tenant_quota

    def check(self) -> None:
        """E09: at every resourceVersion."""
        if self.tenant_quota is None or self.tenant_quota.hard is None or self.edited:
            return
        held = [(self.bound.get(place, {}), q) for place, q in self.quotas.items()]
        hard, in_force = (
            total(beyond(amounts, added) for added, amounts in each)
            for each in ([(added, q.hard) for added, q in held], [(added, q.in_force) for added, q in held])
        )
        for sums in (hard, in_force):
            for key, value in self.tenant_quota.hard.items():
                assert sums.get(key, 0) <= value, f"{key}: {sums.get(key)} of {value}"

    # -- Kubernetes and people --------------------------------------------------------------------

    def count(self, namespace: str) -> None:
        """Kubernetes' quota controller does its work."""
        held = self.quotas.get(namespace)
        if held is None:
            return
        used = {key: held.used.get(key, 0) for key in held.hard}
        if (held.in_force, held.used) != (held.hard, used):
            self.put_quota(namespace, msgspec.structs.replace(held, in_force=dict(held.hard), used=used))

    def use(self, namespace: str, key: str, amount: int) -> None:
        held = self.quotas.get(namespace)
        if held is None or key not in held.used:
            return
        after = held.used[key] + amount
        if after >= 0 and (amount < 0 or after <= held.in_force.get(key, 0)):
            self.put_quota(namespace, msgspec.structs.replace(held, used={**held.used, key: after}))

    def make_namespace(self, request: ShareRequest) -> None:
        namespace = f"{request.parent}.{request.name}"
        if (
            request.parent in self.namespaces
            and namespace not in self.namespaces
            and not self.namespaces[request.parent].terminating
        ):
            uid = f"ns{self.tick()}"
            self.namespaces[namespace] = TreeNamespace(name=namespace, uid=uid, key=request.uid, parent=request.parent)

    def go_on_deleting(self, request: ShareRequest, chance: random.Random) -> None:
        namespace = f"{request.parent}.{request.name}"
        found = self.namespaces.get(namespace)
        if any(child.parent == namespace for child in self.children.values()):
            return
        if found is None or found.key != request.uid:
            del self.children[request.uid]
        elif not found.terminating:
            self.namespaces[namespace] = msgspec.structs.replace(found, terminating=True)
        elif namespace in self.quotas and chance.random() < 0.5:
            del self.quotas[namespace]
        else:
            self.quotas.pop(namespace, None)
            del self.namespaces[namespace]


class Operator:
    """One process: it sees late, writes late, and may end at any time."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.waiting = 0
        self.dead = False
        self.tenant_quota: ObservedTenantQuota | None = None
        self.build(None)

    def build(self, number: int | None) -> None:
        """Read everything anew: the TenantResourceQuota was read before."""
        cluster = self.cluster
        tree = Tree(cluster.whole, reclaim=cluster.reclaim)
        for held_in, held in cluster.quotas.items():
            tree.put_quota(held_in, held)
        for found in cluster.namespaces.values():
            tree.put_namespace(found)
        for request in (*cluster.children.values(), *cluster.claims.values()):
            tree.put_request(request)
        self.put_wishes(tree)
        targets = self.tenant_quota.targets if self.tenant_quota is not None else ()
        Division(tree).start(targets, self.planner.tree if hasattr(self, "planner") else None)
        self.planner = BatchPlanner(tree, number)

    def put_wishes(self, tree: Tree) -> None:
        """Take in what peers should hold, and what they confirm."""
        records = self.tenant_quota.remote if self.tenant_quota is not None else ()
        tree.remote.wanted, tree.remote.confirmed = dict(self.cluster.wanted), dict(self.cluster.confirmed)
        tree.remote.lost = dict(self.cluster.lost)
        put_requests(tree, records)

    def see(self, what: int, chance: random.Random) -> None:
        """One of the caches moves on, of ResourceQuotas only some."""
        cluster, tree = self.cluster, self.planner.tree
        if not tree.can_become(cluster.whole):
            self.build(None)
            return
        (self._see_tenant_quota, self._see_quotas, self._see_namespaces, self._see_specs)[what](chance)
        if tree.is_broken:
            self.build(None)

    def _see_tenant_quota(self, _: random.Random) -> None:
        now = self.cluster.tenant_quota
        if now is None or self.tenant_quota is None or now.version > self.tenant_quota.version:
            self.tenant_quota = now

    def _see_quotas(self, chance: random.Random) -> None:
        cluster, tree = self.cluster, self.planner.tree
        for namespace, held in cluster.quotas.items():
            if chance.random() < 0.7:
                tree.put_quota(namespace, held)
        for namespace in set(tree.quotas) - set(cluster.quotas):
            tree.drop_quota(namespace)

    def _see_namespaces(self, _: random.Random) -> None:
        cluster, tree = self.cluster, self.planner.tree
        for found in cluster.namespaces.values():
            tree.put_namespace(found)
        for share in list(tree.shares.values()):
            if share.namespace is not None and share.namespace.name not in cluster.namespaces:
                tree.drop_namespace(share.namespace.name)

    def _see_specs(self, _: random.Random) -> None:
        cluster, tree = self.cluster, self.planner.tree
        tree.set_hard(cluster.whole)
        for request in (*cluster.children.values(), *cluster.claims.values()):
            tree.put_request(request)
        for share in list(tree.shares.values()):
            if share.request is not None and not share.peer and share.key not in cluster.children | cluster.claims:
                tree.drop_request(share.key)
        self.put_wishes(tree)

    def see_all(self) -> None:
        chance = random.Random(0)
        for what in (0, 2, 3, 3):
            self.see(what, chance)
        tree = self.planner.tree
        for namespace, held in self.cluster.quotas.items():
            tree.put_quota(namespace, held)
        for namespace in set(tree.quotas) - set(self.cluster.quotas):
            tree.drop_quota(namespace)

    def next(self) -> list[BatchStep]:
        """Return the writes of one round; reads are done at once."""
        cluster = self.cluster
        if self.tenant_quota is None:
            if cluster.tenant_quota is None:
                cluster.put_tenant_quota(ObservedTenantQuota(version=0))
            self.tenant_quota = cluster.tenant_quota
            return []
        steps = list(self.planner.steps(self.tenant_quota))
        for step in steps:
            if isinstance(step, RereadTenantQuota):
                self.tenant_quota = cluster.tenant_quota
                return []
            if isinstance(step, RelistTree):
                self.build(step.number)
                return []
        self.waiting = len(steps)
        return steps

    def refresh(self, namespace: str) -> None:
        held = self.cluster.quotas.get(namespace)
        if held is None:
            self.planner.tree.drop_quota(namespace)
        else:
            self.planner.tree.put_quota(namespace, held)
        self.tenant_quota = self.cluster.tenant_quota

    def fail(self, step: BatchStep) -> None:
        """Read the objects of a failed or unanswered step again, the TenantResourceQuota last."""
        match step:
            case CreateQuota() | UpdateQuota() | EnforceQuota():
                found = self.cluster.namespaces.get(step.namespace)
                if found is not None:
                    self.planner.tree.put_namespace(found)
                else:
                    self.planner.tree.drop_namespace(step.namespace)
                self.refresh(step.namespace)
            case _:
                self.tenant_quota = self.cluster.tenant_quota
        if self.planner.tree.is_broken:
            self.build(None)


class Refused(Exception):
    """A write that the API server does not carry out."""


def carry_out(cluster: Cluster, operator: Operator, step: BatchStep) -> Callable[[], None]:
    """Do a write; return what the operator does with the answer."""
    tree = operator.planner.tree
    match step:
        case CreateQuota(namespace, hard, number):
            found = cluster.namespaces.get(namespace)
            if found is None or found.terminating or namespace in cluster.quotas:
                raise Refused
            made = ShareQuota(
                uid=f"q{cluster.tick()}", version=0, hard=hard, in_force={}, used={}, number=number, final=False
            )
            stored = cluster.put_quota(namespace, made)
            return lambda: tree.put_quota(namespace, stored)
        case UpdateQuota(namespace, _, held, hard, number, final, _):
            live = cluster.quotas.get(namespace)
            if live is None or live.version != held.version or live.uid != held.uid:
                raise Refused
            changed = msgspec.structs.replace(live, hard=hard, number=number, final=final)
            stored = cluster.put_quota(namespace, changed)
            return lambda: tree.put_quota(namespace, stored)
        case EnforceQuota(namespace, held):
            live = cluster.quotas.get(namespace)
            if live is None or live.version != held.version or live.uid != held.uid:
                raise Refused
            stored = cluster.put_quota(namespace, msgspec.structs.replace(live, in_force=dict(held.hard)))
            return lambda: tree.put_quota(namespace, stored)
        case UpdateTenantQuota(tenant_quota=before, hard=hard, number=number, targets=targets, remote=remote):
            if cluster.tenant_quota is None or cluster.tenant_quota.version != before.version:
                raise Refused
            assert all(isinstance(target, ShareTarget) for target in targets)
            written = cluster.put_tenant_quota(
                ObservedTenantQuota(version=0, hard=hard, number=number, targets=targets, remote=remote)
            )

            def take() -> None:
                operator.tenant_quota = written
                operator.planner.number = step.number

            return take
        case _:
            raise AssertionError(step)


class Flight:
    """A write on its way."""

    def __init__(self, operator: Operator, step: BatchStep) -> None:
        self.operator, self.step = operator, step
        self.tree = operator.planner.tree
        self.checked = not (isinstance(step, UpdateQuota) and step.grows)
        self.answered = False


class Story:
    """A run of random events."""

    def __init__(self, seed: int, *, lossy: bool = True) -> None:
        self.chance = random.Random(seed)
        chance = self.chance
        keys = KEYS[: chance.randint(1, 2)]
        self.cluster = Cluster({key: chance.randint(0, 12) for key in keys}, reclaim=chance.random() < 0.3)
        self.operators: list[Operator] = []
        self.flights: list[Flight] = []
        self.made = 0
        self.lossy = lossy

    def run(self, steps: int) -> None:
        for _ in range(steps):
            chance = self.chance
            doing = chance.choices(
                [self._spec, self._kubernetes, self._see, self._decide, self._land, self._come_and_go],
                weights=[10, 15, 20, 25, 35, 2],
            )[0]
            doing()

    def _hard(self) -> Amounts:
        return {key: self.chance.randint(0, 5) for key in self.cluster.whole if self.chance.random() < 0.8}

    def _spec(self) -> None:
        chance, cluster = self.chance, self.cluster
        children = list(cluster.children.values())
        what = chance.random()
        if what < 0.35 and len(children) < 7:
            parent = chance.choice(list(cluster.namespaces))
            name = chance.choice("xyz")
            if not any(child.parent == parent and child.name == name for child in children):
                self.made += 1
                uid = f"s{self.made}"
                cluster.children[uid] = ShareRequest(
                    uid=uid, name=name, parent=parent, created=f"{self.made:04}", hard=self._hard()
                )
        elif what < 0.65 and children:
            child = chance.choice(children)
            cluster.children[child.uid] = msgspec.structs.replace(
                child, hard=self._hard(), generation=child.generation + 1
            )
        elif what < 0.8 and children:
            child = chance.choice(children)
            cluster.children[child.uid] = msgspec.structs.replace(child, deleting=True)
        elif what < 0.9:
            cluster.whole = {key: chance.randint(0, 12) for key in cluster.whole}
        elif what < 0.93:
            cluster.whole = {key: chance.randint(0, 12) for key in chance.sample(KEYS, chance.randint(0, 3))}
        elif what < 0.95:
            cluster.tenant_quota = None

    def _kubernetes(self) -> None:
        chance, cluster = self.chance, self.cluster
        for child in list(cluster.children.values()):
            if child.deleting and chance.random() < 0.3:
                cluster.go_on_deleting(child, chance)
            elif not child.deleting and chance.random() < 0.3 and self._is_allowed(child):
                cluster.make_namespace(child)
        for namespace in list(cluster.quotas):
            if chance.random() < 0.3:
                cluster.count(namespace)
            if cluster.whole and chance.random() < 0.3:
                cluster.use(namespace, chance.choice(list(cluster.whole)), chance.choice([1, 2, -1]))

    def _is_allowed(self, child: ShareRequest) -> bool:
        """Run some operator, however late it is; sometimes run none."""
        if self.chance.random() < 0.05:
            return True
        shares = [operator.planner.tree.shares.get(child.uid) for operator in self.operators]
        return any(share is not None and share.blocked is None for share in shares)

    def _see(self) -> None:
        for operator in self.operators:
            if self.chance.random() < 0.5:
                operator.see(self.chance.randint(0, 3), self.chance)

    def _decide(self) -> None:
        for operator in self.operators:
            if operator.waiting == 0 and self.chance.random() < 0.6:
                self.flights += [Flight(operator, step) for step in operator.next()]

    def _land(self) -> None:
        for _ in range(min(len(self.flights), 3)):
            self._land_one()

    def _land_one(self) -> None:
        if not self.flights:
            return
        index = self.chance.randrange(len(self.flights))
        flight = self.flights[index]
        fate = self.chance.random() if self.lossy else 1.0
        if fate < 0.05:
            self._answer(flight, None)  # no answer, but it may arrive later still
            return
        if not flight.checked:
            step = flight.step
            assert isinstance(step, UpdateQuota)
            found = self.cluster.namespaces.get(step.namespace)
            if found is None or found.uid != step.uid:
                del self.flights[index]
                self._answer(flight, None)
            else:
                flight.checked = True
            return
        del self.flights[index]
        if fate < 0.1:
            self._answer(flight, None)  # it never arrives
            return
        try:
            take = carry_out(self.cluster, flight.operator, flight.step)
        except Refused:
            self._answer(flight, None)
            return
        self._answer(flight, None if fate < 0.15 else take)

    def _answer(self, flight: Flight, take: Callable[[], None] | None) -> None:
        if flight.answered:
            return
        flight.answered = True
        operator = flight.operator
        operator.waiting -= 1
        if operator.dead:
            return
        if take is None:
            operator.fail(flight.step)
        else:
            take()

    def _come_and_go(self) -> None:
        if len(self.operators) < 2 or self.chance.random() < 0.3:
            operator = Operator(self.cluster)
            self.operators.append(operator)
        else:
            gone = self.operators.pop(self.chance.randrange(len(self.operators)))
            gone.dead = True

    def settle(self) -> Operator:
        """Let everything become quiet, with one operator that sees everything."""
        cluster = self.cluster
        self.flights = []
        operator = Operator(cluster)
        for _ in range(400):
            before = cluster.version, len(cluster.children), len(cluster.namespaces)
            self._let_children_follow(operator)
            for namespace in list(cluster.quotas):
                cluster.count(namespace)
            operator.see_all()
            steps = operator.next()
            for step in steps:
                self._do(operator, step)
            deleting = any(child.deleting for child in cluster.children.values())
            if (
                not steps
                and not deleting
                and before == (cluster.version, len(cluster.children), len(cluster.namespaces))
            ):
                operator.see_all()
                if not operator.planner.steps(operator.tenant_quota or ObservedTenantQuota(version=0)):
                    return operator
        raise AssertionError(
            f"it does not settle: {operator.planner.steps(operator.tenant_quota or ObservedTenantQuota(version=0))}"
        )

    def _let_children_follow(self, operator: Operator) -> None:
        cluster = self.cluster
        for uid, child in list(cluster.children.items()):
            share = operator.planner.tree.shares.get(uid)
            parent = cluster.namespaces.get(child.parent)
            above = cluster.children.get(parent.key) if parent is not None else None
            if parent is None or parent.terminating or (above is not None and above.deleting):
                cluster.children[uid] = msgspec.structs.replace(child, deleting=True)
            if cluster.children[uid].deleting:
                cluster.go_on_deleting(cluster.children[uid], self.chance)
            elif share is not None and share.blocked is None:
                cluster.make_namespace(child)

    def _do(self, operator: Operator, step: BatchStep) -> None:
        operator.waiting -= 1
        found = self.cluster.namespaces.get(step.namespace) if isinstance(step, UpdateQuota) else None
        if isinstance(step, UpdateQuota) and step.grows and (found is None or found.uid != step.uid):
            operator.fail(step)
            return
        try:
            carry_out(self.cluster, operator, step)()
        except Refused:
            operator.fail(step)


def assert_exact(cluster: Cluster) -> None:
    """E09: the end is what the specs say; what is refused is refused for a reason that can be counted."""
    tenant_quota = cluster.tenant_quota
    assert tenant_quota is not None
    end = End(cluster.whole, tenant_quota.hard or {}, cluster.namespaces, cluster.quotas, cluster.children.values())
    assert end.inexact() == []
