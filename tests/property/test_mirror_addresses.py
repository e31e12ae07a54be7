"""Services that a restore has brought back with an address of another Service: they get one of their own (H02)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantry.mirror.addresschange import RELEASE_SECONDS
from tenantry.mirror.kinds import serviceaddresses, services
from tenantry.mirror.refusals import MOST_RETRY_SECONDS
from testkit import runs
from testkit.examples import examples
from testkit.mirroring import PROFILE
from testkit.mirrorobjects import ObjectStory, upper_object

Json = dict[str, Any]

LONG = 2 * MOST_RETRY_SECONDS
TAKEN = "10.96.7.7"
MARK = PROFILE.mark(serviceaddresses.MARK)


def restored(address: str = TAKEN, **spec: object) -> Json:
    """Return a Service that was stored with an address."""
    made = upper_object(services.KIND, "a", 0)
    return {**made, "spec": {"type": "ClusterIP", **made["spec"], "clusterIP": address, **spec}}


def at_rest(sides: ObjectStory) -> tuple[Json, Json]:
    """Return the Service of both sides, which have the same address and nothing of the way there."""
    upper, lower = sides.upper.get(services.RESOURCE, "shop/a"), sides.below_of(services.KIND, "a")
    assert lower is not None
    assert upper["spec"]["clusterIP"] == lower["spec"]["clusterIP"]
    assert MARK not in upper["metadata"].get("annotations", {})
    assert "externalName" not in upper["spec"]
    return upper, lower


@examples(50)
@given(faults=st.lists(st.sampled_from(runs.FAULTS), max_size=12), is_there=st.booleans())
def test_a_service_whose_address_another_one_has_gets_its_own(faults: list[str], *, is_there: bool) -> None:
    """Also if its lower Service is there with another address; a crash between any two writes changes nothing."""
    sides = ObjectStory(faults)
    sides.lower.taken.add(TAKEN)

    def first() -> str:
        """What `make_first` answers."""
        below = sides.below_of(services.KIND, "a")
        return str(below["spec"]["clusterIP"]) if below is not None else ""

    sides.upper.chosen = first
    if is_there:
        sides.upper.put_in(services.RESOURCE, upper_object(services.KIND, "a", 1))
        sides.settle(LONG)
        sides.upper.delete(services.RESOURCE, "shop/a")
    made = restored()
    sides.upper.put_in(services.RESOURCE, made)
    uid = sides.upper.get(services.RESOURCE, "shop/a")["metadata"]["uid"]
    sides.settle(LONG)
    sides.faults.clear()
    sides.settle(LONG)
    upper, _ = at_rest(sides)
    assert upper["spec"]["clusterIP"] not in {TAKEN, "None"}
    assert upper["metadata"]["uid"] == uid
    kept = {key: value for key, value in upper["spec"].items() if key != "clusterIP"}
    assert kept == {key: value for key, value in made["spec"].items() if key != "clusterIP"}


def test_a_service_whose_address_is_free_keeps_it() -> None:
    """Pods that run on have it in their variables."""
    sides = ObjectStory()
    sides.upper.put_in(services.RESOURCE, restored())
    sides.settle(LONG)
    upper, _ = at_rest(sides)
    assert upper["spec"]["clusterIP"] == TAKEN


def test_an_address_that_is_given_back_a_moment_later_is_kept() -> None:
    """An API server frees the address of a Service that was deleted after its watch has reported the deletion."""
    sides = ObjectStory()
    sides.lower.taken.add(TAKEN)
    sides.upper.put_in(services.RESOURCE, restored())
    sides.settle(RELEASE_SECONDS / 4)
    sides.lower.taken.remove(TAKEN)
    sides.settle(LONG)
    upper, _ = at_rest(sides)
    assert upper["spec"]["clusterIP"] == TAKEN


@pytest.mark.parametrize(("before", "after"), [("None", "10.96.7.8"), ("10.96.7.8", "None")])
def test_a_service_becomes_headless_or_no_longer_is(before: str, after: str) -> None:
    """Its lower Service cannot, so that it is created again."""
    sides = ObjectStory()
    sides.upper.put_in(services.RESOURCE, restored(before))
    sides.settle(LONG)
    sides.upper.delete(services.RESOURCE, "shop/a")
    sides.upper.put_in(services.RESOURCE, restored(after))
    sides.settle(LONG)
    assert at_rest(sides)[1]["spec"]["clusterIP"] == after


def test_what_is_refused_for_another_reason_stays_as_it_is() -> None:
    """No Service becomes an ExternalName one for a lower side that would refuse it anyway."""
    sides = ObjectStory()
    sides.lower.taken.add(TAKEN)
    sides.lower.forbidden["services"] = "no Services here"
    before = sides.upper.put_in(services.RESOURCE, restored())
    sides.settle(LONG)
    assert sides.upper.get(services.RESOURCE, "shop/a") == before


def test_between_both_steps_nothing_is_made_first() -> None:
    """The lower Service neither becomes an ExternalName one nor loses its address."""
    sides = ObjectStory()
    before = sides.upper.put_in(services.RESOURCE, restored())
    sides.settle(LONG)
    below = sides.below_of(services.KIND, "a")
    patch = serviceaddresses.emptied(before, MARK)
    between: Json = {
        **before,
        "metadata": {**before["metadata"], **patch["metadata"]},
        "spec": {**before["spec"], **patch["spec"]},
    }
    assert asyncio.run(sides.mirror(services.KIND).make_first(between, before, is_dry_run=False)) == between
    assert sides.below_of(services.KIND, "a") == below


def test_all_fields_come_back_and_the_lower_side_chooses_the_ports() -> None:
    """The second step brings back what the type between must not have."""
    spec: Json = {
        "type": "LoadBalancer",
        "clusterIP": TAKEN,
        "clusterIPs": [TAKEN],
        "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack",
        "externalTrafficPolicy": "Local",
        "healthCheckNodePort": 30001,
        "loadBalancerSourceRanges": ["192.0.2.0/24"],
        "ports": [{"port": 80, "nodePort": 30080}],
    }
    first = serviceaddresses.emptied({"metadata": {}, "spec": spec}, MARK)
    assert first["spec"] == {
        "type": "ExternalName",
        "externalName": serviceaddresses.NOWHERE,
        **dict.fromkeys(
            [
                "clusterIP",
                "clusterIPs",
                "ipFamilies",
                "ipFamilyPolicy",
                "externalTrafficPolicy",
                "healthCheckNodePort",
                "loadBalancerSourceRanges",
            ]
        ),
        "ports": [{"port": 80}],
    }
    between = {"metadata": first["metadata"], "spec": {key: value for key, value in first["spec"].items() if value}}
    second = serviceaddresses.filled(between, MARK)
    assert second == {
        "metadata": {"annotations": {MARK: None}},
        "spec": {
            "type": "LoadBalancer",
            "externalName": None,
            "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack",
            "externalTrafficPolicy": "Local",
            "loadBalancerSourceRanges": ["192.0.2.0/24"],
        },
    }
    # Its users have decided since; and what they write there is not trusted.
    assert "spec" not in serviceaddresses.filled({**between, "spec": spec}, MARK)
    broken = {**between, "metadata": {"annotations": {MARK: "["}}}
    assert serviceaddresses.filled(broken, MARK)["spec"] == {"type": "ClusterIP", "externalName": None}
