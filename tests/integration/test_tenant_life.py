"""A tenant's life on a real API server: made, kept as it is against hand edits, changed, deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from tenantry.api import reasons
from tenantry.api.errors import Forbidden
from tenantry.api.kubernetes import LimitRange, Namespace, NetworkPolicy, ResourceQuota, RoleBinding
from tenantry.api.tenant import Tenant
from tenantry.engine.conditions import find
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local.cluster import LocalCluster
from testkit.api import CONFIG_MAPS, EVENTS, SECONDS, SECRETS, Api, stays, tenant_json, until
from testkit.operators import Operator

pytest_plugins = ["testkit.fixtures"]

Json = dict[str, Any]
QUOTA = {"hard": {"cpu": "2000m", "limits.memory": "1024Mi", "pods": 5}}


async def _children(api: Api, name: str) -> dict[str, str]:
    """Return the uid of everything that Tenantry made for a tenant, by kind and key."""
    kinds = (Namespace, ResourceQuota, LimitRange, NetworkPolicy, RoleBinding)
    lists = await asyncio.gather(*(api.list(kind.resource) for kind in kinds))
    return {
        f"{kind.resource.kind}/{value['metadata']['name']}": value["metadata"]["uid"]
        for kind, values in zip(kinds, lists, strict=True)
        for value in values
        if _labels(value).get("tenantry.dev/tenant") == name
    }


def _labels(value: Json) -> dict[str, str]:
    return value["metadata"].get("labels") or {}


ALL = {
    "Namespace": 1,
    "ResourceQuota": 2,
    "LimitRange": 1,
    "NetworkPolicy": 1,
    "RoleBinding": 1,
}


async def test_a_tenant_gets_its_namespace_and_all_that_belongs_to_it(api: Api, operator: Operator, name: str) -> None:
    """E01, B03: labels, owner reference, rights, quota, defaults, policies."""
    tenant = await api.make_tenant(name, quota=QUOTA)
    kube_system = await api.get(Namespace.resource, "kube-system")
    namespace = (await api.get(Namespace.resource, name))["metadata"]
    assert namespace["labels"] == {
        "kubernetes.io/metadata.name": name,
        "app.kubernetes.io/managed-by": "tenantry",
        "tenantry.dev/kind": "core",
        "tenantry.dev/tenant": name,
        "tenantry.dev/tenant-uid": tenant.metadata.uid,
        "tenantry.dev/cluster-uid": kube_system["metadata"]["uid"],
        "tenantry.dev/network": "Isolated",
        "tenantry.dev/zone": tenant.metadata.uid,
        f"{name}.tree.tenantry.dev/depth": "0",
        "tenantry.dev/rules-warn": "true",
    }
    assert namespace["ownerReferences"][0]["uid"] == tenant.metadata.uid
    found = await _children(api, name)
    assert {kind: sum(key.startswith(f"{kind}/") for key in found) for kind in ALL} == ALL
    assert tenant.status.namespace == name
    assert operator.is_running


async def test_the_owner_has_an_administrators_rights_inside_and_none_outside(
    api: Api, operator: Operator, tenancy: LocalCluster, name: str
) -> None:
    """E01: by RBAC, in the tenant's namespace only; what limits the tenant is not the owner's to write."""
    await api.make_tenant(name, quota=QUOTA, owners=[{"kind": "Group", "name": f"{name}-devs"}])
    connection = msgspec.structs.replace(
        kubeconfig.load([tenancy.kubeconfig_path]), impersonate="zoe", impersonate_groups=(f"{name}-devs",)
    )
    async with Client(connection) as client:
        owner = Api(client)
        await owner.create(CONFIG_MAPS, {"metadata": {"name": "mine"}, "data": {"a": "b"}}, name)
        await owner.get(Namespace.resource, name)
        for attempt in (
            owner.list(SECRETS, "kube-system"),
            owner.list(Namespace.resource),
            owner.patch(Namespace.resource, name, {"metadata": {"labels": {"tenantry.dev/tenant": "other"}}}),
            owner.patch(ResourceQuota.resource, "tenantry-quota", {"spec": {"hard": {"pods": "99"}}}, name),
            owner.client.delete(LimitRange.resource, name, "tenantry-limits"),
            owner.create(Tenant.resource, tenant_json(f"{name}x")),
        ):
            with pytest.raises(Forbidden):
                await attempt
    assert operator.is_running


async def test_everything_is_gone_after_deletion(api: Api, operator: Operator, name: str) -> None:
    """E01: the namespace with all that people made in it, and the events' names are free again."""
    first = await api.make_tenant(name, quota=QUOTA)
    await api.create(CONFIG_MAPS, {"metadata": {"name": "theirs"}}, name)
    await api.delete(Tenant.resource, name)
    await api.gone(Namespace.resource, name)
    assert await _children(api, name) == {}
    again = await api.make_tenant(name)
    assert again.metadata.uid != first.metadata.uid
    assert await api.find(CONFIG_MAPS, "theirs", name) is None
    assert operator.is_running


async def test_a_tenant_made_again_at_once_waits_for_the_old_namespace(api: Api, operator: Operator, name: str) -> None:
    """E01: the old tenant's namespace is never given to the new one."""
    first = await api.make_tenant(name)
    await api.create(CONFIG_MAPS, {"metadata": {"name": "secret-of-the-first"}}, name)
    uid = (await api.get(Namespace.resource, name))["metadata"]["uid"]
    await api.delete(Tenant.resource, name)
    await api.create(Tenant.resource, tenant_json(name, owners=[{"kind": "User", "name": "bob"}]))
    await _replaced(api, name, uid)
    second = await api.ready(name)
    assert second.metadata.uid != first.metadata.uid
    namespace = await api.get(Namespace.resource, name)
    assert namespace["metadata"]["labels"]["tenantry.dev/tenant-uid"] == second.metadata.uid
    assert await api.find(CONFIG_MAPS, "secret-of-the-first", name) is None
    assert operator.is_running


async def test_a_namespace_that_exists_is_never_taken_over(api: Api, operator: Operator, name: str) -> None:
    """E01: a condition says why, nothing in it changes, and it resolves itself when the namespace goes."""
    await api.create(Namespace.resource, {"metadata": {"name": name, "labels": {"tenantry.dev/tenant": name}}})
    before = await api.get(Namespace.resource, name)
    await api.create(Tenant.resource, tenant_json(name))
    tenant = await api.condition(name, reasons.READY, holds=False, reason=reasons.NAMESPACE_EXISTS)
    stalled = find(tenant.status.conditions, reasons.STALLED)
    assert stalled is not None
    assert name in stalled.message
    assert "choose another name" in stalled.message
    assert await api.get(Namespace.resource, name) == before
    assert await api.list(RoleBinding.resource, name) == []
    await api.delete(Namespace.resource, name)
    await _replaced(api, name, before["metadata"]["uid"])
    await api.ready(name)
    assert find((await api.tenant(name)).status.conditions, reasons.STALLED) is None
    assert operator.is_running


async def test_a_namespace_that_goes_is_said_and_made_again(api: Api, operator: Operator, name: str) -> None:
    """E01: while it goes the tenant is not ready."""
    await api.make_tenant(name)
    uid = (await api.get(Namespace.resource, name))["metadata"]["uid"]
    # A finalizer holds the namespace until the test has seen what is said meanwhile.
    await api.create(CONFIG_MAPS, {"metadata": {"name": "keeps", "finalizers": ["example.com/keep"]}}, name)
    await api.delete(Namespace.resource, name)
    await api.condition(name, reasons.READY, holds=False, reason=reasons.NAMESPACE_TERMINATING)
    await api.patch(CONFIG_MAPS, "keeps", {"metadata": {"finalizers": None}}, name)
    await _replaced(api, name, uid)
    await api.ready(name)
    assert (await api.get(Namespace.resource, name))["metadata"]["uid"] != uid
    assert operator.is_running


async def _replaced(api: Api, name: str, uid: str) -> None:
    """Wait until a namespace has gone, whether or not another one of its name is there: that takes Kubernetes long."""

    async def so() -> bool:
        found = await api.find(Namespace.resource, name)
        return found is None or found["metadata"]["uid"] != uid

    await until(so, f"the namespace {name} has gone", seconds=2 * SECONDS)


# -- hand edits -----------------------------------------------------------------------------------

Edit = Callable[[Api, str], Awaitable[object]]


async def _strip_labels(api: Api, name: str) -> None:
    labels = {"app.kubernetes.io/managed-by": None, "tenantry.dev/tenant": None, "tenantry.dev/tenant-uid": "x"}
    await api.patch(Namespace.resource, name, {"metadata": {"labels": labels}})


async def _foreign_mark(api: Api, name: str) -> None:
    patch: Json = {"metadata": {"labels": {"tenantry.dev/suspended": "true"}, "annotations": {"tenantry.dev/x": "y"}}}
    await api.patch(Namespace.resource, name, patch)


async def _raise_quota(api: Api, name: str) -> None:
    await api.patch(ResourceQuota.resource, "tenantry-quota", {"spec": {"hard": {"pods": "99", "secrets": "1"}}}, name)


async def _drop_quota(api: Api, name: str) -> None:
    await api.patch(ResourceQuota.resource, "tenantry-quota", {"spec": {"hard": None}}, name)


async def _scope_quota(api: Api, name: str) -> None:
    """Scopes never change: a user deletes the quota and creates another one, with our labels."""
    live = await api.get(ResourceQuota.resource, "tenantry-quota", name)
    value: Json = {
        "metadata": {"name": "tenantry-quota", "labels": live["metadata"]["labels"]},
        "spec": {"hard": {"pods": "99"}, "scopes": ["Terminating"]},
    }
    await api.delete(ResourceQuota.resource, "tenantry-quota", name)
    for _ in range(20):
        try:
            await api.create(ResourceQuota.resource, value, name)
        except Exception:  # noqa: BLE001 - the operator was faster: try again
            await api.delete(ResourceQuota.resource, "tenantry-quota", name)
        else:
            return


async def _unlabel_quota(api: Api, name: str) -> None:
    await api.patch(ResourceQuota.resource, "tenantry-quota", {"metadata": {"labels": None}}, name)


async def _empty_limits(api: Api, name: str) -> None:
    limits = {"limits": [{"type": "Container", "default": {"memory": "2Gi"}}]}
    await api.patch(LimitRange.resource, "tenantry-limits", {"spec": limits}, name)


async def _open_network(api: Api, name: str) -> None:
    await api.patch(NetworkPolicy.resource, "tenantry-isolation", {"spec": {"ingress": [{}], "egress": [{}]}}, name)


async def _delete_network(api: Api, name: str) -> None:
    await api.delete(NetworkPolicy.resource, "tenantry-isolation", name)


async def _add_subject(api: Api, name: str) -> None:
    subjects = [{"kind": "User", "name": "mallory", "apiGroup": "rbac.authorization.k8s.io"}]
    await api.patch(RoleBinding.resource, "tenantry-owner", {"subjects": subjects}, name)


async def _delete_binding(api: Api, name: str) -> None:
    await api.delete(RoleBinding.resource, "tenantry-owner", name)


async def _other_role(api: Api, name: str) -> None:
    await api.delete(RoleBinding.resource, "tenantry-owner", name)
    value: Json = {
        "metadata": {"name": "tenantry-owner"},
        "roleRef": {"kind": "ClusterRole", "name": "view", "apiGroup": "rbac.authorization.k8s.io"},
    }
    for _ in range(20):
        try:
            await api.create(RoleBinding.resource, value, name)
        except Exception:  # noqa: BLE001 - the operator was faster: try again
            await api.delete(RoleBinding.resource, "tenantry-owner", name)
        else:
            return


EDITS: list[Edit] = [
    _strip_labels,
    _foreign_mark,
    _raise_quota,
    _drop_quota,
    _scope_quota,
    _unlabel_quota,
    _empty_limits,
    _open_network,
    _delete_network,
    _add_subject,
    _delete_binding,
    _other_role,
]


def _content(value: Json) -> Json:
    """Return the decision about an object."""
    volatile = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields")
    metadata = {key: each for key, each in value["metadata"].items() if key not in volatile}
    return {**{key: each for key, each in value.items() if key != "status"}, "metadata": metadata}


async def _contents(api: Api, name: str) -> list[Json]:
    kinds = (ResourceQuota, LimitRange, NetworkPolicy, RoleBinding)
    lists = await asyncio.gather(*(api.list(kind.resource, name) for kind in kinds))
    return [_content(value) for values in ([await api.get(Namespace.resource, name)], *lists) for value in values]


@pytest.mark.parametrize("edit", EDITS, ids=[edit.__name__.strip("_") for edit in EDITS])
async def test_what_is_edited_by_hand_is_put_back(api: Api, operator: Operator, name: str, edit: Edit) -> None:
    """E01: exactly as it was, the tenant stays ready, and an event says what was done."""
    await api.make_tenant(name, quota=QUOTA)
    # A tenant that was not ready at first has the summary on its namespace written once more.
    await operator.calm(name)
    before = await _contents(api, name)
    await edit(api, name)

    async def is_back() -> bool:
        return await _contents(api, name) == before

    await until(is_back, f"{edit.__name__} is undone")
    tenant = await api.ready(name)
    assert find(tenant.status.conditions, reasons.STALLED) is None

    async def said() -> bool:
        events = await api.list(EVENTS, "default")
        return any(
            each["regarding"].get("uid") == tenant.metadata.uid and each["reason"] == reasons.CORRECTED
            for each in events
        )

    await until(said, "an event tells of it")
    assert operator.is_running


async def test_a_repeated_correction_is_one_event_that_counts(api: Api, operator: Operator, name: str) -> None:
    """E01: repeats update one event."""
    tenant = await api.make_tenant(name)
    for _ in range(3):
        await _delete_network(api, name)
        await until(lambda: api.find(NetworkPolicy.resource, "tenantry-isolation", name), "it is back")

    async def counted() -> bool:
        events = await api.list(EVENTS, "default")
        own = [each for each in events if each["regarding"].get("uid") == tenant.metadata.uid]
        return [each["series"]["count"] for each in own if each.get("series")] == [3] and len(own) == 1

    await until(counted, "one event, three times")
    assert operator.is_running


async def test_others_labels_and_annotations_stay(api: Api, operator: Operator, name: str) -> None:
    """E01: only our own marks are ours."""
    await api.make_tenant(name)
    patch: Json = {"metadata": {"labels": {"team": "x", "tenantry.dev/kind": "y"}, "annotations": {"note": "n"}}}
    await api.patch(Namespace.resource, name, patch)

    async def put_back() -> bool:
        labels: dict[str, str] = (await api.get(Namespace.resource, name))["metadata"]["labels"]
        return labels["tenantry.dev/kind"] == "core"

    await until(put_back, "our label is back")
    metadata = (await api.get(Namespace.resource, name))["metadata"]
    assert metadata["labels"]["team"] == "x"
    assert metadata["annotations"]["note"] == "n"
    assert operator.is_running


async def test_a_changed_spec_changes_what_is_there_and_removes_what_is_not_wanted(
    api: Api, operator: Operator, name: str
) -> None:
    """E01, B03: the quota and its defaults go with the quota, policies with the isolation."""
    await api.make_tenant(name, quota=QUOTA)
    spec: Json = {
        "quota": {"hard": None},
        "isolation": {"network": "Open"},
        "owners": [{"kind": "ServiceAccount", "name": "robot", "namespace": "ci"}],
    }
    await api.patch(Tenant.resource, name, {"spec": spec})
    await api.ready(name)

    async def only_people() -> bool:
        return set(await _children(api, name)) == {
            f"Namespace/{name}",
            "NetworkPolicy/tenantry-isolation",
            "ResourceQuota/tenantry-counts",
            "RoleBinding/tenantry-owner",
        }

    await until(only_people, "quota, defaults and the second policy are gone")
    binding = await api.get(RoleBinding.resource, "tenantry-owner", name)
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "robot", "namespace": "ci"}]
    assert operator.is_running


async def test_a_tenant_that_is_as_it_should_be_is_left_alone(api: Api, operator: Operator, name: str) -> None:
    """E01: a second look writes nothing; neither do changes that are not ours to mind."""
    await api.make_tenant(name, quota=QUOTA)
    since = await operator.calm(name)
    await api.patch(Tenant.resource, name, {"metadata": {"annotations": {"note": "n"}}})
    await api.patch(Namespace.resource, name, {"metadata": {"annotations": {"note": "n"}}})
    await api.create(CONFIG_MAPS, {"metadata": {"name": "theirs"}}, name)

    async def looked() -> bool:
        return bool(operator.looks(since, name, controller="tenant"))

    await until(looked, "the change of the Tenant was looked at")

    async def is_silent() -> bool:
        return not operator.written(since, name)

    await stays(is_silent, "nothing is written", seconds=0.5)


async def test_many_tenants_at_once_all_become_ready(api: Api, operator: Operator, name: str) -> None:
    """E01: created, changed and deleted at the same time; nothing of the deleted ones is left."""
    names = [f"{name}-{number}" for number in range(30)]
    await asyncio.gather(*(api.create(Tenant.resource, tenant_json(each, quota=QUOTA)) for each in names))
    await asyncio.gather(*(api.delete(Tenant.resource, each) for each in names[::3]))
    kept = [each for index, each in enumerate(names) if index % 3]
    await asyncio.gather(*(api.ready(each) for each in kept))
    await asyncio.gather(*(api.gone(Namespace.resource, each) for each in names[::3]))
    for each in kept:
        assert len(await _children(api, each)) == sum(ALL.values())
    assert operator.is_running
