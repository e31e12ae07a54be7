"""The cluster-level network policy on a real API server, with and without its kind; and defaults that let pods in."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from tenantry.api import reasons
from tenantry.api.errors import ApiError, Forbidden
from tenantry.api.kubernetes import ClusterNetworkPolicy, Namespace, NetworkPolicy
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.engine.conditions import find, is_true
from tenantry.local import toolchain
from tenantry.local.progress import SilentProgress
from testkit.api import CRDS, PODS, SECONDS, SECRETS, Api, stays, tenant_json, until
from testkit.connectivity import ClusterPolicy, Fabric, Pod, Policy
from testkit.operators import Operator
from testkit.refusals import refusal
from testkit.trees import Trees, subtenant

pytest_plugins = ["testkit.fixtures"]

Json = dict[str, Any]
MODULE = "sigs.k8s.io/network-policy-api@v0.2.0"
DEFINITION = "config/crd/standard/policy.networking.k8s.io_clusternetworkpolicies.yaml"


@pytest.fixture(scope="module")
def definition() -> Json:
    """The CRD of ClusterNetworkPolicy as its project releases it, from Go's module cache."""
    go = toolchain.find(SilentProgress())
    command = [go.binary, "mod", "download", "-json", MODULE]
    done = subprocess.run(command, capture_output=True, check=True, env=go.environment, timeout=120, cwd="/")
    folder: str = msgspec.json.decode(done.stdout)["Dir"]
    loaded: Json = yaml.safe_load((Path(folder) / DEFINITION).read_text())
    return loaded


@asynccontextmanager
async def _installed(api: Api, definition: Json) -> AsyncGenerator[None]:
    await api.create(CRDS, definition)
    name = definition["metadata"]["name"]
    try:
        yield
    finally:
        await api.delete(CRDS, name)
        await api.gone(CRDS, name)


@pytest.mark.long
async def test_the_policy_comes_and_goes_with_its_kind_while_the_operator_runs(
    api: Api, operator: Operator, name: str, definition: Json
) -> None:
    """E03: a condition says that it is not in force and how to get it; it comes, is put back, and goes."""
    tenant = await api.make_tenant(name, clusterNetworkPolicy="Enabled")
    condition = find(tenant.status.conditions, reasons.CLUSTER_NETWORK_POLICY)
    assert condition is not None
    assert condition.reason == reasons.KIND_NOT_INSTALLED
    assert "install network-policy-api v0.2" in condition.message
    async with _installed(api, definition):
        await api.condition(name, reasons.CLUSTER_NETWORK_POLICY, holds=True, reason=reasons.IN_FORCE)
        policy = f"tenantry-{name}"
        live = await api.get(ClusterNetworkPolicy.resource, policy)
        assert live["spec"]["subject"]["namespaces"]["matchLabels"] == {"tenantry.dev/tenant-uid": tenant.metadata.uid}
        assert [rule["action"] for rule in live["spec"]["ingress"]] == ["Pass", "Deny"]
        since = await operator.calm(name)
        await api.patch(Tenant.resource, name, {"metadata": {"annotations": {"note": "n"}}})
        await until(lambda: _looked(operator, name, since), "the change was looked at")
        await operator.calm(name)
        assert not operator.written(since, name), "what is stored is what was written"

        await api.patch(ClusterNetworkPolicy.resource, policy, {"spec": {"ingress": None, "priority": 1}})

        async def put_back() -> bool:
            return (await api.get(ClusterNetworkPolicy.resource, policy))["spec"] == live["spec"]

        await until(put_back, "a hand edit is put back")
        await api.patch(Tenant.resource, name, {"spec": {"clusterNetworkPolicy": "Disabled"}})
        await api.gone(ClusterNetworkPolicy.resource, policy)
        off = await api.ready(name)
        assert find(off.status.conditions, reasons.CLUSTER_NETWORK_POLICY) is None
        await api.patch(Tenant.resource, name, {"spec": {"clusterNetworkPolicy": "Enabled"}})
        await api.condition(name, reasons.CLUSTER_NETWORK_POLICY, holds=True)
    await api.condition(name, reasons.CLUSTER_NETWORK_POLICY, holds=False, reason=reasons.KIND_NOT_INSTALLED)
    assert is_true((await api.tenant(name)).status.conditions, reasons.READY), "the tenant itself is not hurt"
    async with _installed(api, definition):
        await api.condition(name, reasons.CLUSTER_NETWORK_POLICY, holds=True, reason=reasons.IN_FORCE)
        await api.delete(Tenant.resource, name)
        await api.gone(ClusterNetworkPolicy.resource, f"tenantry-{name}")


async def test_a_foreign_cluster_policy_is_never_taken_over(
    api: Api, operator: Operator, name: str, definition: Json
) -> None:
    """E03: a condition names it, and it stays as it is."""
    async with _installed(api, definition):
        foreign: Json = {
            "metadata": {"name": f"tenantry-{name}", "labels": {"app.kubernetes.io/managed-by": "tenantry"}},
            "spec": {"tier": "Admin", "priority": 7, "subject": {"namespaces": {}}},
        }
        await until(lambda: _created(api, foreign), "the kind is served")
        before = await api.get(ClusterNetworkPolicy.resource, f"tenantry-{name}")
        await api.create(Tenant.resource, tenant_json(name, clusterNetworkPolicy="Enabled"))
        await api.condition(name, reasons.READY, holds=False, reason=reasons.OBJECT_EXISTS)
        assert await api.get(ClusterNetworkPolicy.resource, f"tenantry-{name}") == before
        await api.delete(ClusterNetworkPolicy.resource, f"tenantry-{name}")
        await api.condition(name, reasons.CLUSTER_NETWORK_POLICY, holds=True)
    assert operator.is_running


@pytest.mark.long
async def test_the_zones_of_an_open_tenant_are_kept_apart_from_above(
    api: Api, operator: Operator, trees: Trees, name: str, definition: Json
) -> None:
    """E03, H06: where no NetworkPolicy does; a policy comes with a Subtenant and goes with it."""
    async with _installed(api, definition):
        await api.make_tenant(name, clusterNetworkPolicy="Enabled", isolation={"network": "Open"})
        other = await api.make_tenant(f"{name}-b", clusterNetworkPolicy="Enabled")
        for each in (name, other.metadata.name):
            await api.condition(each, reasons.CLUSTER_NETWORK_POLICY, holds=True, reason=reasons.IN_FORCE)
        team, customer = await trees.make(name, "team"), await trees.make(name, "customer", subtenant("carl"))
        inner = await trees.make(customer, "inner")
        await until(lambda: _zones(api, name, 2), "both zones have a policy")
        namespaces = [name, team, customer, inner, other.metadata.name, "default"]
        fabric = await _fabric(api)
        assert fabric.above
        pods = {each: Pod(each, f"10.1.0.{number}") for number, each in enumerate(namespaces)}
        reached = {
            source: {target for target in namespaces if fabric.allows(pods[source], pods[target])}
            for source in namespaces
        }
        core, theirs, foreign = {name, team}, {customer, inner}, other.metadata.name
        assert reached == {
            **{member: {*core, "default"} for member in core},
            **{member: {*theirs, "default"} for member in theirs},
            foreign: {foreign},
            "default": {*core, *theirs, "default"},
        }
        ours = (name, team, customer, inner)
        since = await operator.calm(*ours)
        await api.patch(Tenant.resource, name, {"metadata": {"annotations": {"note": "n"}}})
        await until(lambda: _looked(operator, name, since), "the change was looked at")
        await operator.calm(*ours)
        assert not operator.written(since, *ours), "what is stored is what was written"
        await api.patch(Subnamespace.resource, "customer", {"spec": {"allowCascadingDeletion": True}}, name)
        await api.delete(Subnamespace.resource, "customer", name)
        await until(lambda: _zones(api, name, 0), "there is one zone, which needs none", seconds=2 * SECONDS)


async def _looked(operator: Operator, name: str, since: int) -> bool:
    return bool(operator.looks(since, name, controller="tenant"))


async def _zones(api: Api, tenant: str, count: int) -> bool:
    found = [each["metadata"]["name"] for each in await api.list(ClusterNetworkPolicy.resource)]
    return sum(each.startswith(f"tenantry-{tenant}.zone-") for each in found) == count


async def _fabric(api: Api) -> Fabric:
    return Fabric(
        {each["metadata"]["name"]: each["metadata"]["labels"] for each in await api.list(Namespace.resource)},
        msgspec.convert(await api.list(NetworkPolicy.resource), list[Policy]),
        msgspec.convert(await api.list(ClusterNetworkPolicy.resource), list[ClusterPolicy]),
    )


async def _created(api: Api, policy: Json) -> bool:
    try:
        await api.create(ClusterNetworkPolicy.resource, policy)
    except ApiError as error:
        if error.status != 404:
            raise
        return False
    return True


# -- defaults of containers ---------------------------------------------------------------------

QUOTAS: list[Json] = [
    {"cpu": 2, "memory": "4Gi"},
    {"requests.cpu": "1", "limits.cpu": "2", "requests.memory": "1Gi", "limits.memory": "2Gi"},
    {"limits.cpu": "300m"},
    {"cpu": "50m", "limits.memory": "100Mi"},
    {"ephemeral-storage": "1Gi", "limits.ephemeral-storage": "2Gi"},
]


@pytest.mark.parametrize("hard", QUOTAS)
async def test_a_pod_that_names_no_requests_is_admitted_under_a_quota_of_compute(
    api: Api, operator: Operator, name: str, hard: Json
) -> None:
    """B03: with the quota alone Kubernetes would refuse it, and the next ones up to the quota."""
    await api.make_tenant(name, quota={"hard": hard})
    pod: Json = {"metadata": {"generateName": "p-"}, "spec": {"containers": [{"name": "a", "image": "example.com/a"}]}}
    await until(lambda: _admitted(api, name, pod), "the pod is admitted")
    spec = (await api.list(PODS, name))[0]["spec"]
    resources = spec["containers"][0]["resources"]
    for key in hard:
        side, _, resource = key.rpartition(".")
        assert resource in resources[side or "requests"]
    assert operator.is_running


async def _admitted(api: Api, namespace: str, pod: Json) -> bool:
    try:
        await api.create(PODS, pod, namespace)
    except Forbidden as error:
        # The default service account, the quota's status and the LimitRange are seen a moment later.
        if "must specify" in str(error) or "serviceaccount" in str(error) or "status unknown" in str(error):
            return False
        raise
    return True


async def test_pods_are_refused_beyond_the_quota_and_not_before(api: Api, operator: Operator, name: str) -> None:
    """E01: Kubernetes itself enforces what the tenant may use."""
    await api.make_tenant(name, quota={"hard": {"pods": 2, "count/secrets": 0}})

    async def is_known() -> bool:
        return "exceeded quota" in await refusal(api, SECRETS, {"metadata": {"name": "none"}}, name)

    # A pod that is made before the API server's admission knows that the quota is counted is not counted.
    await until(is_known, "the API server knows the quota and its counts")
    pod: Json = {"metadata": {"generateName": "p-"}, "spec": {"containers": [{"name": "a", "image": "example.com/a"}]}}
    for _ in range(2):
        await until(lambda: _admitted(api, name, pod), "the pod is admitted")
    with pytest.raises(Forbidden, match="exceeded quota: tenantry-quota"):
        await api.create(PODS, pod, name)

    async def still_two() -> bool:
        return len(await api.list(PODS, name)) == 2

    await stays(still_two, "two pods", seconds=0.2)
    assert operator.is_running
