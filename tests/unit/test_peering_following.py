"""X03: the quota of a namespace at a peer follows its pods: when it is raised, lowered, and when pods are sent."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest
from msgspec.structs import replace

from tenantry.api.model import Json, ObjectMeta
from tenantry.api.offloading import DesiredNamespace
from tenantry.api.quota import Quota
from tenantry.api.subnamespace import Mode, Subnamespace, SubnamespaceQuota, SubnamespaceSpec, SubnamespaceStatus
from tenantry.controllers.peering.link.following import FOLLOWS, FollowedQuotas
from tenantry.controllers.tenant.desired import QUOTA
from tenantry.mirror import cachedpods
from tenantry.mirror.cachedpods import CachedPod
from tenantry.mirror.refusals import RETRY_SECONDS
from tenantry.mirror.things import PODS
from tenantry.world.quota import normal
from tenantry.world.shares.amounts import Amounts, ShareQuota, read
from tenantry.world.shares.following import DOWN_SECONDS
from testkit.clock import ManualClock
from testkit.mirroredpods import BoundPods, bound_pod

CPU = "requests.cpu"
LIMITED = ("pods", CPU, "count/secrets")
ENOUGH = {"pods": "100", "cpu": "100"}


def pod(name: str, cpu: str = "", *, version: int = 1, phase: str = "Pending", **spec: object) -> CachedPod:
    """Return a pod of one side."""
    container: Json = {"name": "c", "image": "i"}
    if cpu:
        container["resources"] = {"requests": {"cpu": cpu}}
    value: Json = {
        "metadata": {"name": name, "namespace": "shop", "uid": name, "resourceVersion": str(version)},
        "spec": {"containers": [container], **spec},
        "status": {"phase": phase},
    }
    return cachedpods.decode(msgspec.Raw(msgspec.json.encode(value)), "pair.example")


class Peer:
    """The namespace "shop" at a peer, as PeerNamespaces brings it there.

    Args:
        room: What the peer has for it.
        hard: What `spec.quota` of its NamespaceOffloading names.
    """

    def __init__(self, room: dict[str, str] = ENOUGH, **hard: str) -> None:
        self.clock = ManualClock()
        self.room = read(normal(room))
        self.fixed = DesiredNamespace(name="shop-1", workspace="acme", hard=hard)
        self.sub: Subnamespace | None = None
        self.in_force: Amounts = {}
        self.is_counted = True
        self.used: Amounts = {}
        self.writes = 0
        self.woken: list[str] = []
        self.again: list[str] = []
        self.restart()

    def restart(self) -> None:
        """Begin with another process."""
        self.asked: list[str] = []
        self.quotas = FollowedQuotas(
            self.clock,
            wake=self.asked.append,
            wake_pods=self._wake,
            look_again=self.again.append,
            is_counted=lambda _: self.is_counted,
        )

    def _wake(self, keys: Iterable[str]) -> None:
        self.woken += keys

    @property
    def hard(self) -> dict[str, str]:
        """Return the quota of the Subnamespace."""
        assert self.sub is not None
        return {key: str(value) for key, value in self.sub.spec.quota.hard.items()}

    def see(self, name: str, upper: CachedPod | None, lower: CachedPod | None = None) -> None:
        """Have the mirror see a pod."""
        self.quotas.see(f"shop/{name}", upper, lower)

    def admits(self, name: str) -> bool:
        """Return whether a pod may be sent."""
        return self.quotas.admits(f"shop/{name}")

    def decide(self) -> None:
        """Bring the Subnamespace to what it should be."""
        has = read(normal(self.sub.spec.quota.hard)) if self.sub is not None else {}
        room = {key: value - has.get(key, 0) for key, value in self.room.items()}
        used = self.used if self.quotas.lowers("shop") else None
        wanted = self.quotas.decide("shop", self.fixed, LIMITED, self.sub, held={}, room=room, used=used)
        self.writes += self.sub is None or self.hard != wanted.hard
        note = self.quotas.note("shop")
        self.sub = Subnamespace(
            metadata=ObjectMeta(name="shop-1", namespace="acme", uid="u", annotations={FOLLOWS: note} if note else {}),
            spec=SubnamespaceSpec(mode=Mode.WORKSPACE, quota=Quota(hard=dict(wanted.hard))),
            status=SubnamespaceStatus(quota=SubnamespaceQuota(assigned=dict(wanted.hard))),
        )

    def enforce(self) -> None:
        """Have the API server of the peer enforce the quota."""
        hard = read(normal(self.hard))
        found = ShareQuota(uid="q", version=1, hard=hard, in_force=hard, used={})
        self.quotas.enforced("shop", found, {})


def started(room: dict[str, str] = ENOUGH, **hard: str) -> Peer:
    """Return a namespace that is at the peer, without pods."""
    peer = Peer(room, **hard)
    peer.decide()
    peer.decide()
    return peer


def test_a_namespace_without_pods_has_room_for_one() -> None:
    peer = started()
    assert peer.hard == {"pods": "1", CPU: "100m"}
    assert peer.writes == 1
    assert peer.sub is not None
    assert peer.sub.metadata.annotations == {FOLLOWS: f"pods=1,{CPU}=100m"}


def test_a_pod_is_sent_when_the_peer_enforces_what_it_needs() -> None:
    peer = started()
    peer.see("web", pod("web", "1"))
    assert not peer.admits("web")
    assert peer.asked == ["shop"]
    peer.decide()
    assert peer.hard == {"pods": "1", CPU: "1223m"}
    assert peer.woken == []
    assert not peer.admits("web")
    peer.enforce()
    assert peer.woken == ["shop/web"]
    assert peer.admits("web")


def test_pods_that_come_together_are_one_write() -> None:
    peer = started()
    for number in range(30):
        peer.see(f"web-{number}", pod(f"web-{number}", "100m"))
        assert not peer.admits(f"web-{number}")
    before = peer.writes
    # The controller is woken once, until it has looked.
    assert peer.asked == ["shop"]
    peer.decide()
    peer.enforce()
    assert peer.writes == before + 1
    assert len(peer.woken) == 30
    assert all(peer.admits(f"web-{number}") for number in range(30))


def test_a_quota_that_names_every_key_does_not_follow() -> None:
    peer = started(cpu="1", pods="5")
    peer.see("web", pod("web", "8"))
    assert peer.admits("web")
    peer.decide()
    assert peer.hard == {"cpu": "1", "pods": "5"}
    assert peer.quotas.note("shop") == ""
    assert not peer.quotas.refused("shop/web", f"exceeded quota: {QUOTA}, requested: pods=1, used: pods=5, limited: 5")


def test_a_key_that_the_quota_names_stays_as_it_is() -> None:
    peer = started(pods="7")
    peer.see("web", pod("web", "2"))
    peer.decide()
    assert peer.hard["pods"] == "7"
    assert read(peer.hard)[CPU] >= 2000


def test_the_quota_falls_after_ten_minutes_and_not_below_what_is_in_use() -> None:
    peer = started()
    for name in ("a", "b", "c", "d", "e", "f", "g", "h"):
        peer.see(name, pod(name, "1"))
    peer.decide()
    peer.enforce()
    high = peer.hard
    for name in ("b", "c", "d", "e", "f", "g", "h"):
        peer.see(name, None)
    peer.decide()
    peer.clock.advance(DOWN_SECONDS - 1)
    peer.decide()
    assert peer.hard == high
    again = peer.quotas.again("shop")
    assert again is not None
    assert 0 < again <= 1
    peer.clock.advance(again)
    # Three of them still end at the peer.
    peer.used = {"pods": 4000, CPU: 4000}
    peer.decide()
    assert peer.hard["pods"] == "5"
    assert 4000 <= read(peer.hard)[CPU] < read(high)[CPU]
    # Pods that are sent now find what the peer has, not what it had.
    for name in ("b", "c", "d", "e", "f", "g", "h"):
        peer.see(name, pod(name, "1", version=2))
    assert not peer.admits("b")


def test_a_quota_that_is_in_use_is_looked_at_again_after_ten_minutes() -> None:
    peer = started()
    peer.see("web", pod("web", "1"))
    peer.decide()
    high = peer.hard
    peer.see("web", None)
    peer.used = {"pods": 1000, CPU: 1000}
    peer.decide()
    for _ in range(3):
        again = peer.quotas.again("shop")
        assert again is not None
        peer.clock.advance(again)
        peer.decide()
        assert peer.hard == high
    peer.used = {}
    peer.clock.advance(DOWN_SECONDS)
    peer.decide()
    assert peer.hard == {"pods": "1", CPU: "100m"}


def test_a_pod_that_is_gone_at_home_and_runs_at_the_peer_counts() -> None:
    peer = started()
    peer.see("web", pod("web", "1"), pod("web", "1"))
    peer.decide()
    high = peer.hard
    peer.see("web", None, pod("web", "1"))
    peer.decide()
    peer.clock.advance(2 * DOWN_SECONDS)
    peer.decide()
    assert peer.hard == high
    assert peer.quotas.again("shop") is None


@pytest.mark.parametrize("is_counted", [False, True])
def test_another_process_neither_raises_nor_lowers(*, is_counted: bool) -> None:
    peer = started()
    peer.see("web", pod("web", "1"))
    peer.decide()
    high = peer.hard
    peer.restart()
    peer.is_counted = is_counted
    peer.decide()
    peer.clock.advance(DOWN_SECONDS - 1)
    peer.decide()
    assert peer.hard == high
    peer.clock.advance(DOWN_SECONDS)
    peer.decide()
    assert (peer.hard == high) == (not is_counted)


def test_a_key_that_the_user_names_stops_to_follow_at_once() -> None:
    peer = started()
    peer.see("web", pod("web", "1"))
    peer.decide()
    peer.fixed = replace(peer.fixed, hard={"cpu": "2"})
    # The sum of a Workspace is computed before the namespace is decided on.
    assert peer.quotas.whole("shop", peer.fixed).hard == {"cpu": "2", "pods": "1"}
    peer.decide()
    assert peer.hard == {"cpu": "2", "pods": "1"}
    assert peer.quotas.note("shop") == "pods=1"


def test_a_key_that_begins_to_follow_keeps_what_it_has_for_ten_minutes() -> None:
    peer = started(cpu="8", pods="5")
    peer.see("web", pod("web", "6"))
    peer.fixed = replace(peer.fixed, hard={"pods": "5"})
    peer.decide()
    assert peer.hard == {"pods": "5", CPU: "8"}
    # The mirror counts the pods that are there.
    assert peer.again == ["shop"]
    peer.see("web", pod("web", "6"))
    peer.decide()
    peer.clock.advance(DOWN_SECONDS)
    peer.decide()
    assert 6000 <= read(peer.hard)[CPU] < 8000


def test_without_room_the_pods_that_fit_are_counted_and_the_others_get_the_words_of_the_peer() -> None:
    peer = started({"pods": "100", "cpu": "2500m"})
    for name in ("a", "b", "c"):
        peer.see(name, pod(name, "1"))
        assert not peer.admits(name)
    peer.decide()
    assert read(peer.hard)[CPU] == 2000
    assert CPU in peer.quotas.words_of("shop")
    peer.enforce()
    assert peer.woken == ["shop/a", "shop/b", "shop/c"]
    assert all(peer.admits(name) for name in ("a", "b", "c"))
    assert not peer.quotas.refused("shop/c", exceeded("1", used="2"))
    # It is tried again: when the peer has more, or after some time.
    assert peer.quotas.again("shop") is not None
    assert peer.quotas.short() == ["shop"]
    peer.room[CPU] = 10_000
    peer.decide()
    # What is in force must be looked at, although no pod waits for its first try.
    assert peer.quotas.waits("shop")
    peer.woken.clear()
    peer.enforce()
    assert peer.quotas.words_of("shop") == ""
    assert peer.woken == ["shop/c"]
    assert not peer.quotas.waits("shop")


def exceeded(requested: str, *, used: str) -> str:
    """Return the refusal of a pod, as the API server of a peer writes it."""
    return (
        f'pods "web" is forbidden: exceeded quota: {QUOTA}, requested: {CPU}={requested}, used: {CPU}={used},'
        f" limited: {CPU}=1"
    )


def test_what_the_peer_adds_to_a_pod_is_counted_when_it_refuses_it() -> None:
    """A sandbox of its own, or a default of its LimitRange."""
    peer = started()
    peer.see("web", pod("web"))
    assert not peer.admits("web")
    peer.decide()
    peer.enforce()
    assert peer.admits("web")
    assert peer.quotas.refused("shop/web", exceeded("350m", used="0"))
    assert not peer.admits("web")
    peer.decide()
    assert read(peer.hard)[CPU] >= 350
    peer.woken.clear()
    peer.enforce()
    assert peer.woken == ["shop/web"]
    # For ten minutes; by then, the pod is known as it is there.
    peer.see("web", pod("web"), pod("web", "350m", version=2))
    peer.clock.advance(DOWN_SECONDS)
    peer.decide()
    assert peer.quotas.again("shop") is None or read(peer.hard)[CPU] >= 350


@pytest.mark.parametrize(
    "words",
    [
        "pods is forbidden: violates PodSecurity",
        f"exceeded quota: {QUOTA}-counts, requested: pods=1, used: pods=1, limited: pods=1",
        f"exceeded quota: {QUOTA}, requested: requests.cpu=many, used: requests.cpu=1, limited: requests.cpu=1",
        f"exceeded quota: {QUOTA}, requested: {'x' * 9000}, used: pods=1, limited: pods=1",
    ],
)
def test_other_refusals_are_shown(words: str) -> None:
    peer = started()
    peer.see("web", pod("web"))
    assert not peer.quotas.refused("shop/web", words)


def test_a_lying_peer_gives_its_own_quota_and_no_more() -> None:
    peer = started({"pods": "10", "cpu": "4"})
    peer.see("web", pod("web", "1"))
    peer.decide()
    peer.enforce()
    assert peer.quotas.refused("shop/web", exceeded("1000000", used="1"))
    peer.decide()
    assert read(peer.hard)[CPU] <= 4000


def test_pods_that_have_ended_and_overhead_of_the_home_do_not_count() -> None:
    peer = started()
    ended = pod("done", "4", phase="Succeeded")
    peer.see("done", ended, ended)
    peer.see("failed", pod("failed", "4", phase="Failed"))
    peer.see("bare", pod("bare", "100m", overhead={"cpu": "2"}))
    peer.decide()
    assert peer.hard == {"pods": "1", CPU: "100m"}


def test_a_pod_that_waits_for_long_says_so() -> None:
    peer = started()
    peer.see("web", pod("web", "1"))
    peer.admits("web")
    assert peer.quotas.words("shop/web") == ""
    peer.clock.advance(RETRY_SECONDS)
    assert CPU in peer.quotas.words("shop/web")


def test_a_namespace_that_is_made_again_has_its_quota_first() -> None:
    peer = started()
    peer.see("web", pod("web", "1"))
    peer.decide()
    peer.enforce()
    assert peer.admits("web")
    peer.sub = None
    peer.decide()
    assert not peer.admits("web")
    peer.decide()
    peer.enforce()
    assert peer.admits("web")


def test_the_mirror_sends_a_pod_when_it_is_woken() -> None:
    """The seam: nothing is sent before the quota is in force, and no error of it is shown."""
    peer = started()
    pair = BoundPods(room=peer.quotas)
    pair.put(bound_pod(containers=[{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]))
    pair.settle()
    assert not pair.is_below(PODS, "web")
    peer.decide()
    peer.enforce()
    pair.mirror.wake(peer.woken)
    pair.settle()
    assert pair.is_below(PODS, "web")
    # What the mirror writes itself is counted: the pod has ended, and needs nothing.
    pair.report(phase="Succeeded")
    pair.settle()
    peer.decide()
    peer.clock.advance(DOWN_SECONDS)
    peer.decide()
    assert peer.hard == {"pods": "1", CPU: "100m"}
