"""A tenant's quota over its tree of namespaces, on a real API server."""

from __future__ import annotations

from typing import Any

from tenantry.api import reasons
from tenantry.api.kubernetes import Namespace, ResourceQuota
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenantresourcequota import TenantResourceQuota
from tenantry.testing.api import Api, until
from tenantry.testing.operators import Operator
from tenantry.world.shares import read

pytest_plugins = ["tenantry.testing.fixtures"]

Json = dict[str, Any]
ADA: Json = {"kind": "User", "name": "ada"}
WHOLE: Json = {"hard": {"cpu": 10, "memory": "10Gi", "count/configmaps": 100}}


async def make(api: Api, parent: str, name: str, **hard: object) -> Json:
    """Make a Subnamespace that asks for a share."""
    spec: Json = {"mode": "Workspace", "owners": [ADA], "quota": {"hard": _keys(hard)}}
    return await api.create(Subnamespace.resource, {"metadata": {"name": name}, "spec": spec}, parent)


def _keys(hard: dict[str, object]) -> dict[str, object]:
    return {key.replace("_", "/"): value for key, value in hard.items()}


async def ask(api: Api, parent: str, name: str, **hard: object) -> None:
    """Change what a Subnamespace asks for."""
    live = await api.get(Subnamespace.resource, name, parent)
    gone = dict.fromkeys(live["spec"].get("quota", {}).get("hard", {}))
    patch = {"spec": {"quota": {"hard": {**gone, **_keys(hard)}}}}
    await api.patch(Subnamespace.resource, name, patch, parent)


async def child(api: Api, parent: str, name: str, *, ready: bool = True, reason: str = "") -> Json:
    """Wait until a Subnamespace is ready, or not for a reason, for its spec as it is now; return it."""

    async def so() -> Json | None:
        live = await api.get(Subnamespace.resource, name, parent)
        status: Json = live.get("status", {})
        conditions = {each["type"]: each for each in status.get("conditions", [])}
        found = conditions.get(reasons.READY)
        current = status.get("observedGeneration") == live["metadata"]["generation"]
        right = found is not None and (found["status"] == "True") is ready and reason in {"", found["reason"]}
        return {**live, "told": found["message"]} if found is not None and current and right else None

    return await until(so, f"Subnamespace {parent}/{name} ready={ready} {reason}")


async def shares(api: Api, name: str) -> dict[str, dict[str, int]]:
    """Return what the ResourceQuotas of a tenant say, by namespace; in force or not."""
    found: dict[str, dict[str, int]] = {}
    for value in await api.list(ResourceQuota.resource):
        if value["metadata"].get("labels", {}).get("tenantry.dev/tenant") == name:
            assert value["metadata"]["name"] == "tenantry-quota"
            found[value["metadata"]["namespace"]] = read(value["spec"]["hard"])
    return found


async def become(api: Api, name: str, wanted: dict[str, dict[str, int | str]]) -> None:
    """Wait until shares are so."""
    numbers = {namespace: read(hard) for namespace, hard in wanted.items()}

    async def so() -> bool:
        found = await shares(api, name)
        return all({k: found.get(n, {}).get(k) for k in hard} == hard for n, hard in numbers.items())

    try:
        await until(so, "the shares")
    except AssertionError:
        assert await shares(api, name) == numbers
        raise


async def test_a_child_gets_its_share_from_its_parent(api: Api, operator: Operator, name: str) -> None:
    """E09: q(tree) = q(core) + the children's; what a child does not name it has 0 of; it comes back at the end."""
    await api.make_tenant(name, quota=WHOLE)
    await make(api, name, "lab", cpu=4, memory="2Gi")
    live = await child(api, name, "lab")
    lab = live["status"]["namespace"]
    await become(
        api,
        name,
        {
            # The configmap that Kubernetes puts into every namespace is beyond the lab's share: nobody else gets it.
            name: {"requests.cpu": 6, "requests.memory": "8Gi", "count/configmaps": 99},
            lab: {"requests.cpu": 4, "requests.memory": "2Gi", "count/configmaps": 0},
        },
    )
    found = await api.get(ResourceQuota.resource, "tenantry-quota", lab)
    assert found["status"]["hard"] == found["spec"]["hard"]
    whole = await api.client.get(TenantResourceQuota, name)
    assert read(whole.status.hard) == read({"requests.cpu": 10, "requests.memory": "10Gi", "count/configmaps": 100})
    await api.delete(Subnamespace.resource, "lab", name)
    await api.gone(Namespace.resource, lab)
    await become(api, name, {name: {"requests.cpu": 10, "requests.memory": "10Gi", "count/configmaps": 100}})
    assert operator.is_running
