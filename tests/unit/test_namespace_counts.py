"""Which changes of a namespace's ResourceQuotas concern its controllers."""

from __future__ import annotations

import msgspec
import pytest

from tenantry.api.kubernetes import NetworkPolicy, ResourceQuota
from tenantry.api.tenant import Tenant
from tenantry.controllers.network import ISOLATION_POLICY
from tenantry.controllers.operator import controllers
from tenantry.controllers.tenantnamespace import COUNTS, has_more_room, is_news_of_counts
from tenantry.engine.observed import Observed, observe
from testkit.model import World
from testkit.worldcluster import WorldCluster
from testkit.worlds import CLUSTER_UID, tenant

SECRETS, PODS = "count/secrets", "count/pods"
HARD = {SECRETS: "3", PODS: "3"}


def _quota(hard: dict[str, str], used: dict[str, str], name: str = COUNTS) -> Observed:
    meta = {"name": name, "namespace": "acme", "resourceVersion": "1"}
    body = {"metadata": meta, "spec": {"hard": hard}, "status": {"hard": hard, "used": used}}
    return observe(ResourceQuota.resource, msgspec.json.encode(body))


def _used(secrets: int, pods: int) -> dict[str, str]:
    return {SECRETS: str(secrets), PODS: str(pods)}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param(_used(5, 1), _used(6, 1), False, id="one more of a kind that is exceeded"),
        pytest.param(_used(5, 1), _used(5, 2), False, id="one more of another kind"),
        pytest.param(_used(3, 1), _used(4, 1), True, id="exceeded from now on"),
        pytest.param(_used(4, 1), _used(3, 1), True, id="exceeded no longer"),
        pytest.param(_used(4, 1), _used(4, 4), True, id="another kind, too"),
        pytest.param(_used(1, 1), {SECRETS: "1"}, True, id="a kind is not counted"),
    ],
)
def test_objects_above_a_count_reconcile_no_namespace_again_for_each_object(
    before: dict[str, str], after: dict[str, str], *, expected: bool
) -> None:
    """E15, X12: an owner above a count could otherwise keep the operator busy with each object."""
    assert is_news_of_counts(_quota(HARD, before), _quota(HARD, after)) is expected
    assert not is_news_of_counts(_quota(HARD, before, "tenantry-quota"), _quota(HARD, after, "tenantry-quota"))


@pytest.mark.parametrize(
    ("hard", "used", "expected"),
    [
        pytest.param(HARD, _used(3, 2), False, id="nothing has changed"),
        pytest.param(HARD, _used(2, 2), True, id="less is used"),
        pytest.param(HARD, _used(3, 3), False, id="more is used"),
        pytest.param({**HARD, SECRETS: "4"}, _used(3, 2), True, id="a raised share"),
        pytest.param({**HARD, SECRETS: "4"}, _used(4, 2), False, id="a raised share that is used"),
        pytest.param({**HARD, SECRETS: "2"}, _used(3, 2), False, id="a lowered share"),
        pytest.param({PODS: "3"}, _used(3, 2), True, id="no limit any more"),
    ],
)
def test_room_comes_from_less_use_or_a_higher_limit(
    hard: dict[str, str], used: dict[str, str], *, expected: bool
) -> None:
    """What a child could not inherit is inherited when there is room, whichever ResourceQuota limited it."""
    for name in (COUNTS, "tenantry-quota"):
        assert has_more_room(_quota(HARD, _used(3, 2), name), _quota(hard, used, name)) is expected


def test_a_deleted_quota_makes_room() -> None:
    assert has_more_room(_quota(HARD, _used(3, 2)), None)
    assert not has_more_room(None, _quota(HARD, _used(3, 2)))


def test_a_tenant_whose_own_object_was_refused_is_established_as_soon_as_there_is_room() -> None:
    """E14: the next try alone would come five minutes later."""
    world, key = World(), "count/networkpolicies.networking.k8s.io"
    world.create(tenant("acme"))
    cluster = WorldCluster(world, controllers(CLUSTER_UID))
    cluster.settle(1)

    def use(amount: str) -> None:
        quota = world.get(ResourceQuota.resource, f"acme/{COUNTS}")
        world.patch(ResourceQuota.resource, f"acme/{COUNTS}", {"status": {"used": {key: amount}}})
        assert int(quota["spec"]["hard"][key]) >= int(amount)

    def reason() -> str:
        conditions = world.get(Tenant.resource, "acme")["status"]["conditions"]
        return next(each["reason"] for each in conditions if each["type"] == "Ready")

    use(world.get(ResourceQuota.resource, f"acme/{COUNTS}")["spec"]["hard"][key])
    world.forbidden["networkpolicies"] = f"exceeded quota: {COUNTS}, requested: {key}=1"
    world.delete(NetworkPolicy.resource, f"acme/{ISOLATION_POLICY}")
    cluster.settle(1200)
    assert reason() == "Refused"
    world.forbidden.clear()
    use("1")
    cluster.settle(1)
    assert world.get(NetworkPolicy.resource, f"acme/{ISOLATION_POLICY}")
    assert reason() == "Established"
