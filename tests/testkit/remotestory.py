"""Stories of shares at peers: a home with its tree, four peers, links that are cut, and writes that are lost or late.

The decisions are those of `world.shares`; the story is the network, the API servers and the people. A peer holds an
amount from the moment at which its object says so until nothing there says, enforces or uses it any more.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import msgspec
from typing_extensions import override

from tenantry.world.shares import remote
from tenantry.world.shares.amounts import Amounts, ObservedTenantQuota, RemoteShare, add, beyond, higher, total
from tenantry.world.shares.remote import PeerQuota, PeerWrite, RemoteKey, RereadRecord
from testkit.sharestory import CORE, Cluster, Operator, Story

PEERS = ("a", "b", "c", "d")


class Broken(StrEnum):
    """A variant of the protocol that must be caught."""

    NOTHING = ""
    UNVERSIONED = "writes at the peer name no resourceVersion"
    UNFENCED = "no write at the peer if its amounts are right already"
    HOME_FIRST = "given back at home before the peer has confirmed it"
    PEER_FIRST = "the peer is raised before the record is written"


class PeerObject(msgspec.Struct, frozen=True, kw_only=True):
    """What a namespace has at a peer."""

    version: int
    hard: Amounts
    number: int = 0
    in_force: Amounts = {}
    used: Amounts = {}

    @property
    def quota(self) -> PeerQuota:
        reach = higher(self.in_force, self.used)
        return PeerQuota(version=str(self.version), hard=self.hard, number=self.number, reach=reach)


class Excess(AssertionError):
    """More is held than the whole."""


class PeeredCluster(Cluster):
    """The home and its peers."""

    def __init__(self, whole: Amounts, *, reclaim: bool = False) -> None:
        self.objects: dict[RemoteKey, PeerObject] = {}
        self.cut: set[str] = set()
        super().__init__(whole, reclaim=reclaim)

    @override
    def check(self) -> None:
        """X03: at every moment, partitions included."""
        super().check()
        found = self.tenant_quota
        if found is None or found.hard is None:
            return
        away: Amounts = {}
        for each in self.objects.values():
            add(away, higher(each.hard, higher(each.in_force, each.used)))
        held = [(self.bound.get(place, {}), quota) for place, quota in self.quotas.items()]
        for side in ("hard", "in_force"):
            sums = total(beyond(getattr(quota, side), added) for added, quota in held)
            for key, most in found.hard.items():
                for what, more in (("peers", away), ("records", remote.held(found.remote))):
                    if sums.get(key, 0) + more.get(key, 0) > most:
                        raise Excess(f"{key}: {sums.get(key, 0)} at home and {more.get(key, 0)} of {what}, of {most}")

    def put_object(self, key: RemoteKey, found: PeerObject) -> PeerObject:
        stored = self.objects[key] = msgspec.structs.replace(found, version=self.tick())
        self.check()
        return stored

    def record(self, key: RemoteKey) -> RemoteShare | None:
        """Read a record from the API server of the home."""
        records = self.tenant_quota.remote if self.tenant_quota is not None else ()
        return next((each for each in records if each.key == key), None)


class Link:
    """The part of one operator that writes at the peers; its caches are its own."""

    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        self.home: ObservedTenantQuota | None = None
        self.there: dict[RemoteKey, PeerObject | None] = {}
        self.busy: set[RemoteKey] = set()

    def record(self, key: RemoteKey) -> RemoteShare | None:
        records = self.home.remote if self.home is not None else ()
        return next((each for each in records if each.key == key), None)


class Request(msgspec.Struct, eq=False):
    """A request on its way to a peer, or to the home."""

    link: Link
    key: RemoteKey
    arrive: Callable[[], Callable[[], None]]
    at_home: bool = False
    late: int = 0
    answered: bool = False


class Lost(Exception):
    """The API server refuses the request."""


class RemoteStory(Story):
    """A run of random events; `run` raises Excess when more is held than the whole."""

    cluster: PeeredCluster

    def __init__(self, seed: int, *, broken: Broken = Broken.NOTHING, lossy: bool = True) -> None:
        super().__init__(seed, lossy=lossy)
        whole = {key: value + 6 for key, value in self.cluster.whole.items()}
        self.cluster = PeeredCluster(whole)
        self.broken = broken
        self.links: dict[Operator, Link] = {}
        self.requests: list[Request] = []
        self.settle()
        self.cluster.objects = {(CORE, peer): PeerObject(version=self.cluster.tick(), hard={}) for peer in PEERS}
        self.operators = [Operator(self.cluster), Operator(self.cluster)]

    @override
    def run(self, steps: int) -> None:
        home = [self._spec, self._kubernetes, self._see, self._decide, self._land, self._come_and_go]
        away = [self._wish, self._lose, self._cut, self._peers, self._hear, self._send, self._carry]
        for _ in range(steps):
            self.chance.choices([*home, *away], weights=[0.5, 3, 12, 12, 20, 0.5, 6, 2, 2, 4, 15, 15, 25])[0]()
            if self.broken is Broken.HOME_FIRST and self.cluster.tenant_quota is not None:
                self.cluster.confirmed = {each.key: each.number for each in self.cluster.tenant_quota.remote}

    @override
    def _spec(self) -> None:
        # The keys of the quota stay. A TenantResourceQuota that is lost takes the records with it: the invariant does
        # not cover that.
        before, whole = self.cluster.tenant_quota, self.cluster.whole
        super()._spec()
        self.cluster.whole = {key: max(6, self.cluster.whole.get(key, value)) for key, value in whole.items()}
        if self.cluster.tenant_quota is None:
            self.cluster.tenant_quota = before

    @override
    def _see(self) -> None:
        for operator in self.operators:
            for what in range(4):
                if self.chance.random() < 0.4:
                    operator.see(what, self.chance)

    def _wish(self) -> None:
        """An owner wants another share, or none."""
        cluster, chance = self.cluster, self.chance
        key = CORE if chance.random() < 0.85 else chance.choice(list(cluster.namespaces)), chance.choice(PEERS)
        if chance.random() < 0.5:
            cluster.wanted.pop(key, None)
        else:
            cluster.wanted[key] = {each: chance.randint(0, 5) for each in cluster.whole}

    def _lose(self) -> None:
        """Home lets pods go that a peer may still run, or the peer shows that these are gone."""
        cluster, chance = self.cluster, self.chance
        key = CORE, chance.choice(PEERS)
        if cluster.lost.pop(key, None) is None:
            cluster.lost[key] = {each: chance.randint(0, 3) for each in cluster.whole}

    def _cut(self) -> None:
        cut = self.cluster.cut
        cut ^= {self.chance.choice(sorted(cut) if cut and self.chance.random() < 0.5 else PEERS)}

    def _peers(self) -> None:
        """The peers enforce what their objects say, count pods, and lose objects."""
        cluster, chance = self.cluster, self.chance
        for key, found in list(cluster.objects.items()):
            what = chance.random()
            if what < 0.3 and found.in_force != found.hard:
                cluster.put_object(key, msgspec.structs.replace(found, in_force=dict(found.hard)))
            elif 0.3 < what < 0.4 and found.in_force:
                name = chance.choice(sorted(found.in_force))
                now = found.used.get(name, 0) + chance.choice([1, -1])
                if now >= 0 and (now < found.used.get(name, 0) or now <= found.in_force[name]):
                    cluster.put_object(key, msgspec.structs.replace(found, used={**found.used, name: now}))
            elif what > 0.99:
                del cluster.objects[key]

    # -- the operators ----------------------------------------------------------------------------

    def link(self, operator: Operator) -> Link:
        return self.links.setdefault(operator, Link(operator))

    def _keys(self, link: Link) -> list[RemoteKey]:
        records = link.home.remote if link.home is not None else ()
        return sorted({each.key for each in records} | set(link.there))

    def _hear(self) -> None:
        """Watches bring what has changed, from peers that answer."""
        cluster, chance = self.cluster, self.chance
        for operator in self.operators:
            link = self.link(operator)
            if chance.random() < 0.5:
                link.home = cluster.tenant_quota
            for key in {*self._keys(link), *cluster.objects}:
                if key[1] not in cluster.cut and chance.random() < 0.6:
                    link.there[key] = cluster.objects.get(key)

    def _send(self) -> None:
        for operator in self.operators:
            link = self.link(operator)
            for key in self._keys(link):
                if key not in link.busy and self.chance.random() < 0.7:
                    self._decide_about(link, key)

    def _decide_about(self, link: Link, key: RemoteKey) -> None:
        record = self._believed(link.record(key), key)
        if key not in link.there:
            return
        found = link.there[key]
        if found is None:
            if record is not None and record.given:
                self._ask(link, key, lambda: self._create(link, key))
            elif record is not None and self._is_news(record):
                self._ask(link, key, lambda: self._look(link, key, record))
            return
        step = self._peer_step(record, found.quota, is_fresh=False)
        if isinstance(step, RereadRecord):
            self._ask(link, key, lambda: self._reread(link, key, found), at_home=True)
        elif step is not None:
            self._ask(link, key, lambda: self._write(link, key, step))
        elif record is not None and self._is_news(record) and self._confirms(record, found.quota):
            self._ask(link, key, lambda: self._confirm(link, key, record.number), at_home=True)

    def _is_news(self, record: RemoteShare) -> bool:
        return self.cluster.confirmed.get(record.key) != record.number

    def _believed(self, record: RemoteShare | None, key: RemoteKey) -> RemoteShare | None:
        if self.broken is not Broken.PEER_FIRST:
            return record
        wanted = self.cluster.wanted.get(key, {})
        given = higher(record.given if record is not None else {}, {name: v for name, v in wanted.items() if v})
        number = record.number if record is not None else 0
        return RemoteShare(namespace=key[0], peer=key[1], number=number, held=given, given=given)

    def _peer_step(
        self, record: RemoteShare | None, there: PeerQuota, *, is_fresh: bool
    ) -> PeerWrite | RereadRecord | None:
        given = record.given if record is not None else {}
        if self.broken is Broken.UNFENCED and {key: v for key, v in there.hard.items() if v} == given:
            return None
        return remote.peer_step(record, there, is_fresh=is_fresh)

    def _confirms(self, record: RemoteShare, there: PeerQuota | None) -> bool:
        if self.broken is Broken.UNFENCED and there is not None:
            there = msgspec.structs.replace(there, number=record.number)
        return remote.confirms(record, there)

    # -- what arrives -----------------------------------------------------------------------------

    def _create(self, link: Link, key: RemoteKey) -> Callable[[], None]:
        if key in self.cluster.objects:
            raise Lost
        stored = self.cluster.put_object(key, PeerObject(version=0, hard={}))
        return lambda: link.there.update({key: stored})

    def _look(self, link: Link, key: RemoteKey, record: RemoteShare) -> Callable[[], None]:
        found = self.cluster.objects.get(key)

        def take() -> None:
            link.there[key] = found
            if self._confirms(record, found.quota if found is not None else None):
                self._ask(link, key, lambda: self._confirm(link, key, record.number), at_home=True)

        return take

    def _reread(self, link: Link, key: RemoteKey, found: PeerObject) -> Callable[[], None]:
        home, record = self.cluster.tenant_quota, self._believed(self.cluster.record(key), key)

        def take() -> None:
            link.home = home
            step = self._peer_step(record, found.quota, is_fresh=True)
            if isinstance(step, PeerWrite):
                self._ask(link, key, lambda: self._write(link, key, step))

        return take

    def _write(self, link: Link, key: RemoteKey, step: PeerWrite) -> Callable[[], None]:
        found = self.cluster.objects.get(key)
        if found is None or (self.broken is not Broken.UNVERSIONED and str(found.version) != step.version):
            raise Lost
        changed = msgspec.structs.replace(found, hard=step.hard, number=step.number)
        # A write that changes nothing leaves the resourceVersion as it is.
        stored = self.cluster.put_object(key, changed) if changed != found else found
        return lambda: link.there.update({key: stored})

    def _confirm(self, link: Link, key: RemoteKey, number: int) -> Callable[[], None]:  # noqa: ARG002 - as the others
        self.cluster.confirmed[key] = number
        return lambda: None

    # -- the network ------------------------------------------------------------------------------

    def _ask(
        self, link: Link, key: RemoteKey, arrive: Callable[[], Callable[[], None]], *, at_home: bool = False
    ) -> None:
        link.busy.add(key)
        late = self.chance.randint(5, 400) if self.lossy and self.chance.random() < 0.3 else 0
        self.requests.append(Request(link, key, arrive, at_home, late))

    def _carry(self) -> None:
        """Some requests arrive, in any order; some get no answer, and arrive later or never."""
        for _ in range(min(3, len(self.requests))):
            request = self.chance.choice(self.requests)
            if request.late or (request.key[1] in self.cluster.cut and not request.at_home):
                # No answer in time; it may still arrive.
                request.late = max(0, request.late - 1)
                self._reply(request, None)
                continue
            self.requests.remove(request)
            fate = self.chance.random() if self.lossy else 1.0
            if fate < 0.05:
                self._reply(request, None)
            else:
                self._arrive(request, is_heard=fate >= 0.15)

    def _arrive(self, request: Request, *, is_heard: bool) -> None:
        try:
            take = request.arrive()
        except Lost:
            link, found = request.link, self.cluster.objects.get(request.key)
            self._reply(request, lambda: link.there.update({request.key: found}))
            return
        self._reply(request, take if is_heard else None)

    def _reply(self, request: Request, take: Callable[[], None] | None) -> None:
        if request.answered:
            return
        request.answered = True
        request.link.busy.discard(request.key)
        if take is None:
            request.link.there.pop(request.key, None)
        elif not request.link.operator.dead:
            take()

    # -- the end ----------------------------------------------------------------------------------

    def rest(self) -> Operator:
        """Let every link work again, and everything become quiet; return the operator that is left."""
        cluster = self.cluster
        cluster.cut, cluster.lost, self.requests, self.lossy = set(), {}, [], False
        for _ in range(60):
            operator = self.settle()
            before = cluster.version, dict(cluster.confirmed)
            for key, found in list(cluster.objects.items()):
                # Pods that are above what a peer should hold end.
                now = msgspec.structs.replace(found, in_force=dict(found.hard), used={})
                if now != found:
                    cluster.put_object(key, now)
            self.operators = [operator]
            link = self.links[operator] = Link(operator)
            link.home = cluster.tenant_quota
            records = link.home.remote if link.home is not None else ()
            link.there = {key: cluster.objects.get(key) for key in {*cluster.objects, *(each.key for each in records)}}
            for key in self._keys(link):
                self._decide_about(link, key)
                while self.requests:
                    self._arrive(self.requests.pop(), is_heard=True)
            if before == (cluster.version, cluster.confirmed):
                return operator
        raise AssertionError("the shares at peers do not come to rest")
