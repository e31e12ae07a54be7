"""Several operators, and operators that end: one acts at a time, a new one goes on, nothing is done twice."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec

from tenantry.api.kubernetes import NetworkPolicy, ResourceQuota
from tenantry.api.tenant import Tenant
from tenantry.engine.lease import NAME, Lease
from tenantry.local.cluster import LocalCluster
from testkit.api import EVENTS, Api, stays, tenant_json, until
from testkit.operators import Operator, running

pytest_plugins = ["testkit.fixtures"]

Json = dict[str, Any]
SPECS: list[Json] = [
    {},
    {"quota": {"hard": {"cpu": "1500m", "memory": "1.5Gi", "pods": 3}}},
    {"quota": {"hard": {"limits.cpu": 1}}, "isolation": {"network": "Baseline"}},
    {"quota": {"hard": {"limits.memory": "100Mi", "requests.storage": "1e3"}}, "isolation": {"network": "Open"}},
    {"containerDefaults": {"limits": {"cpu": "50m"}}, "owners": [{"kind": "Group", "name": "g"}]},
    {"suspended": True, "quota": {"hard": {"count/secrets": 0}}},
    {"clusterNetworkPolicy": "Enabled", "owners": [{"kind": "ServiceAccount", "name": "r", "namespace": "ci"}]},
]


async def _make_all(api: Api, name: str) -> list[str]:
    names = [f"{name}-{index}" for index in range(len(SPECS))]
    await asyncio.gather(*(api.make_tenant(each, **spec) for each, spec in zip(names, SPECS, strict=True)))
    return names


async def test_a_restarted_operator_writes_nothing(api: Api, operator: Operator, name: str) -> None:
    """E01: what is as it should be is left alone, whatever kind of tenant it is; its Lease is all that it writes."""
    names = await _make_all(api, name)

    async def looked_at_all() -> bool:
        waiting = await operator.sample("workqueue_depth") + await operator.sample("controller_runtime_active_workers")
        return not waiting and await operator.sample("controller_runtime_reconcile_total") >= len(names)

    # It may have begun a moment ago, and what other tests left not be done.
    await until(looked_at_all, "nothing is left to do")
    # Kubernetes may come to a quota late, and the operator writes then.
    await until(lambda: api.has_counted(*names), "Kubernetes has come to every quota")
    await operator.calm(name)
    before = [(await api.tenant(each)).metadata.resource_version for each in names]
    told = await _told(api, names)
    await operator.stop()
    since = operator.log.stat().st_size
    await operator.start()
    await operator.leads()
    await until(looked_at_all, "every tenant was looked at")
    # All that belongs to these tenants has their names; other tests share the operator.
    assert operator.written(since, name) == []
    assert [(await api.tenant(each)).metadata.resource_version for each in names] == before
    assert await _told(api, names) == told


async def _told(api: Api, names: list[str]) -> list[tuple[str, str]]:
    """Return the events of tenants, each with its version."""
    metas = [each["metadata"] for each in await api.list(EVENTS, "default") if each["regarding"].get("name") in names]
    return sorted((meta["name"], meta["resourceVersion"]) for meta in metas)


async def test_only_one_of_two_acts_and_the_other_takes_over_at_once_when_it_is_told_to_stop(
    api: Api, operator: Operator, tenancy: LocalCluster, name: str, tmp_path: Path
) -> None:
    """E01: a rolling update loses no time, and nothing is written twice."""
    async with running(tenancy.paths.kubeconfig("operator"), tmp_path / "second") as second:
        await api.make_tenant(f"{name}-first")

        async def stands_by() -> bool:
            return await second.sample("leader_election_master_status") == 0 and await second.writes() == 0

        await stays(stands_by, "the second does nothing", seconds=1.0)
        first = await _holder(api)
        assert first
        assert await operator.stop() == 0, "it ends cleanly"
        # Free, or the second's: no operator waits for `DURATION_SECONDS`.
        assert await _holder(api) != first
        await second.leads()
        created = await second.writes()
        await api.make_tenant(f"{name}-second")
        assert await second.writes() > created
        policies = await api.list(NetworkPolicy.resource, f"{name}-second")
        assert len(policies) == 1


async def _holder(api: Api) -> str | None:
    """Return who has the lease."""
    return (await api.client.get(Lease, NAME, "tenantry-system")).spec.holder_identity


async def test_a_killed_leader_is_followed_by_the_other(
    api: Api, operator: Operator, tenancy: LocalCluster, name: str, tmp_path: Path
) -> None:
    """E01: in the middle of its work; what it had begun is finished, and nothing is there twice."""
    names = [f"{name}-{number}" for number in range(20)]
    async with running(tenancy.paths.kubeconfig("operator"), tmp_path / "second") as second:

        async def stands_by() -> bool:
            return await second.sample("process_start_time_seconds") > 0

        await until(stands_by, "the second runs")
        await asyncio.gather(*(api.create(Tenant.resource, tenant_json(each)) for each in names))
        await operator.kill()
        await second.leads()
        await asyncio.gather(*(api.ready(each) for each in names))
        lease = await api.client.get(Lease, NAME, "tenantry-system")
        assert lease.spec.lease_transitions
        for each in names:
            policies = await api.list(NetworkPolicy.resource, each)
            assert [policy["metadata"]["name"] for policy in policies] == ["tenantry-isolation"]


async def test_an_operator_lets_go_of_the_lease_for_a_preferred_holder_and_comes_back(
    api: Api, operator: Operator, name: str
) -> None:
    """E01: held still for maintenance, it goes on when the holder does not renew."""
    annotation: Json = {"metadata": {"annotations": {"tenantry.dev/preferred-holder": "another"}}}
    await api.client.merge_patch(Lease.resource, "tenantry-system", NAME, annotation)

    async def has_let_go() -> bool:
        return await operator.sample("leader_election_master_status") == 0

    await until(has_let_go, "it lets go")
    await api.create(Tenant.resource, tenant_json(name))

    async def untouched() -> bool:
        touched = (await api.tenant(name)).status.observed_generation != 0
        # On a machine that stands still for as long as a lease lasts, it has taken it back: before it acts.
        return not touched or await _holder(api) is not None

    await stays(untouched, "no operator acts", seconds=1.0)
    await api.client.merge_patch(
        Lease.resource, "tenantry-system", NAME, {"metadata": {"annotations": {"tenantry.dev/preferred-holder": None}}}
    )
    await api.ready(name)


async def test_hand_edits_while_no_operator_runs_are_put_back_by_the_next(
    api: Api, operator: Operator, name: str
) -> None:
    """E01: state counts, never the event that was missed."""
    await api.make_tenant(name, quota={"hard": {"pods": 1}})
    await operator.stop()
    await api.patch(ResourceQuota.resource, "tenantry-quota", {"spec": {"hard": {"pods": "99"}}}, name)
    await api.delete(NetworkPolicy.resource, "tenantry-isolation", name)
    await api.patch(Tenant.resource, name, {"spec": {"owners": [{"kind": "User", "name": "bob"}]}})
    await operator.start()
    await operator.leads()
    await api.ready(name)

    async def is_back() -> bool:
        quota = await api.get(ResourceQuota.resource, "tenantry-quota", name)
        policy = await api.find(NetworkPolicy.resource, "tenantry-isolation", name)
        return quota["spec"]["hard"] == {"pods": "1"} and policy is not None

    await until(is_back, "it is as it should be")


async def test_the_metrics_and_health_pages_say_what_controller_runtime_users_look_for(
    api: Api, operator: Operator, name: str
) -> None:
    await api.make_tenant(name)
    for metric in (
        "controller_runtime_reconcile_total",
        "controller_runtime_reconcile_time_seconds_count",
        "workqueue_adds_total",
        "rest_client_requests_total",
        "leader_election_master_status",
        "tenantry_cached_objects",
        "process_resident_memory_bytes",
    ):

        async def is_told(metric: str = metric) -> bool:
            # A reconcile is counted when it has ended: the tenant is ready before that.
            return await operator.sample(metric) > 0

        await until(is_told, metric)


async def test_every_line_of_the_log_is_json(api: Api, operator: Operator, name: str) -> None:
    """Nothing that Python warns of, and no traceback, is hidden in it."""
    # Other files of tests stop and kill this operator while it works.
    since = operator.log.read_text().rpartition("\n")[0].count("\n") + 1
    await api.make_tenant(name)
    # Without the line that is being written.
    lines = operator.log.read_text().rpartition("\n")[0].splitlines()[since:]
    assert lines
    for line in lines:
        entry: Json = msgspec.json.decode(line)
        assert entry["level"] in {"debug", "info", "warning"}, line
