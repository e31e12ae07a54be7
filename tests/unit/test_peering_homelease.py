"""The Lease of a home at a peer: takeovers within a home, copies of a home, and silence, in a world without I/O."""

from __future__ import annotations

import pytest

from tenantry.api.errors import RetryableError
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import Json
from tenantry.api.peercluster import CONTENDER, PEERS_NAMESPACE
from tenantry.controllers.peering.link.homelease import (
    CONTENDED_SECONDS,
    DEADLINE_SECONDS,
    DURATION_SECONDS,
    RENEW_SECONDS,
    WRITE_SECONDS,
    HomeLease,
    LeasedPace,
)
from tenantry.engine.lease import Lease
from tenantry.engine.reader import Reader
from tenantry.engine.writer import Writer
from testkit.clock import ManualClock
from testkit.model import World
from testkit.worldclient import WorldClient

GUEST = "home"


class Homes:
    """A peer, and homes that write there."""

    def __init__(self) -> None:
        self.world, self.clock = World(), ManualClock()
        self.fault = "none"
        self.changes = 0
        self.world.put_in(Namespace.resource, {"metadata": {"name": PEERS_NAMESPACE}})
        self.world.put_in(Lease.resource, {"metadata": {"name": GUEST, "namespace": PEERS_NAMESPACE}, "spec": {}})

    def lease_of(self, identity: str) -> HomeLease:
        client = WorldClient(self.world, lambda: self.fault)
        return HomeLease(
            identity, GUEST, reader=Reader(client), writer=Writer(client), clock=self.clock, changed=self._changed
        )

    def _changed(self) -> None:
        self.changes += 1

    def live(self) -> Json:
        return self.world.get(Lease.resource, f"{PEERS_NAMESPACE}/{GUEST}")

    @property
    def holder(self) -> str:
        return self.live()["spec"]["holderIdentity"]


async def test_the_next_leader_of_a_home_takes_over_at_once() -> None:
    homes = Homes()
    first, second = homes.lease_of("id/one"), homes.lease_of("id/two")
    await first.take(())
    await second.take({"id/one"})
    assert (homes.holder, second.is_held, second.twice) == ("id/two", True, "")


async def test_a_copy_of_a_home_writes_nothing_until_the_lease_has_expired() -> None:
    homes = Homes()
    original, copy = homes.lease_of("id/one"), homes.lease_of("id/copy")
    await original.take(())
    assert not await copy.attempt()
    assert (homes.holder, copy.is_held, copy.twice) == ("id/one", False, "id/one")
    homes.clock.advance(DURATION_SECONDS)
    assert not await copy.attempt()
    homes.clock.advance(1)
    assert await copy.attempt()
    assert (homes.holder, copy.twice) == ("id/copy", "")


async def test_both_copies_of_a_home_and_the_peer_learn_of_each_other() -> None:
    homes = Homes()
    original, copy = homes.lease_of("id/one"), homes.lease_of("id/copy")
    await original.take(())
    await copy.attempt()
    assert homes.live()["metadata"]["annotations"] == {CONTENDER: "id/copy"}
    assert await original.attempt()
    assert original.twice == "id/copy"
    # The copy was restored with the name of the original's replica, and takes over: the original stops at once.
    restored = homes.lease_of("id/restored")
    await restored.take({"id/one"})
    assert not await original.attempt()
    assert (original.is_held, original.twice) == (False, "id/restored")


async def test_a_copy_that_is_gone_is_not_reported_for_ever() -> None:
    homes = Homes()
    original, copy = homes.lease_of("id/one"), homes.lease_of("id/copy")
    await original.take(())
    await copy.attempt()
    seen: list[str] = []
    for _ in range(int(2 * CONTENDED_SECONDS / RENEW_SECONDS)):
        await original.attempt()
        seen.append(original.twice)
        homes.clock.advance(RENEW_SECONDS)
    assert seen[0] == "id/copy"
    assert seen[-1] == ""
    assert CONTENDER not in homes.live()["metadata"].get("annotations", {})


async def test_a_copy_that_waits_is_reported_without_gaps() -> None:
    homes = Homes()
    original, copy = homes.lease_of("id/one"), homes.lease_of("id/copy")
    await original.take(())
    for _ in range(int(4 * CONTENDED_SECONDS / RENEW_SECONDS)):
        await copy.attempt()
        await original.attempt()
        assert original.twice == "id/copy"
        homes.clock.advance(RENEW_SECONDS)


async def test_a_home_that_cannot_renew_its_lease_writes_nothing_before_another_one_may() -> None:
    homes = Homes()
    home = homes.lease_of("id/one")
    pace = LeasedPace(home, 20.0, 20)
    with pytest.raises(RetryableError):
        await pace.turn()
    await home.take(())
    await pace.turn()
    homes.clock.advance(DEADLINE_SECONDS)
    with pytest.raises(RetryableError):
        await pace.turn()
    await home.attempt()
    await pace.turn()


def test_a_write_that_began_with_the_lease_ends_before_another_home_may_write() -> None:
    assert DEADLINE_SECONDS + WRITE_SECONDS <= DURATION_SECONDS


async def test_after_silence_a_home_finds_out_that_another_one_took_over_before_it_writes() -> None:
    homes = Homes()
    home, copy = homes.lease_of("id/one"), homes.lease_of("id/copy")
    await home.take(())
    await copy.attempt()
    homes.clock.advance(DURATION_SECONDS + 1)
    await copy.attempt()
    assert not home.is_held
    assert not await home.attempt()
    assert home.twice == "id/copy"
