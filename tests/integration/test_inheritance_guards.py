"""Who may touch what is inherited, and which kinds can be: on a real API server, with people's own certificates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tenantry.api import reasons
from tenantry.api.errors import Forbidden, Invalid
from tenantry.api.model import Resource
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.engine.conditions import is_true
from tenantry.local.cluster import LocalCluster
from testkit.api import CONFIG_MAPS, CRDS, EVENTS, SECRETS, Api, stays, until
from testkit.operators import Operator
from testkit.people import as_person
from testkit.refusals import refusal
from testkit.trees import Trees

pytest_plugins = ["testkit.fixtures"]

# Every test needs the operator that leads.
pytestmark = [pytest.mark.early, pytest.mark.usefixtures("operator")]

Json = dict[str, Any]
MARK = "tenantry.dev/inherited-from"
CLUSTER_ROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)


def workspace(**modes: object) -> Json:
    """Return the spec of a workspace of alice's that inherits so."""
    return {"mode": "Workspace", "owners": [{"kind": "User", "name": "alice"}], "inheritance": modes}


def config(name: str, **metadata: object) -> Json:
    """Return a ConfigMap, as in YAML."""
    return {"metadata": {"name": name, **metadata}, "data": {"a": "b"}}


# -- the policy -----------------------------------------------------------------------------------


async def test_an_owner_cannot_touch_a_copy_and_is_told_where_to(
    api: Api, trees: Trees, tenancy: LocalCluster, tmp_path: Path, name: str
) -> None:
    """E06: neither edit nor delete, whole or in a collection; the message names the source."""
    await api.make_tenant(name)
    await api.create(CONFIG_MAPS, config("thing"), name)
    child = await trees.make(name, "team", workspace(configMaps="Sync"))
    async with as_person(tenancy, tmp_path, "alice") as alice:
        url = f"/api/v1/namespaces/{child}/configmaps"
        for attempt in (
            alice.patch(CONFIG_MAPS, "thing", {"data": {"a": "mine"}}, child),
            alice.patch(CONFIG_MAPS, "thing", {"metadata": {"labels": {MARK: None}}}, child),
            alice.patch(CONFIG_MAPS, "thing", {"metadata": {"finalizers": ["example.com/keep"]}}, child),
            alice.client.delete(CONFIG_MAPS, child, "thing"),
            alice.client.request("DELETE", f"{url}?labelSelector={MARK.replace('/', '%2F')}"),
        ):
            with pytest.raises(Forbidden) as refused:
                await attempt
            assert f"ConfigMap 'thing' is inherited from namespace '{name}': change it there" in str(refused.value)
            assert "spec.inheritance of Subnamespace 'team'" in str(refused.value)
        await alice.patch(CONFIG_MAPS, "thing", {"data": {"a": "mine"}}, name)
        await alice.create(CONFIG_MAPS, config("own"), child)
        await alice.patch(CONFIG_MAPS, "own", {"data": {"a": "mine"}}, child)
        await alice.delete(CONFIG_MAPS, "own", child)

    async def followed() -> bool:
        return bool((await api.get(CONFIG_MAPS, "thing", child))["data"] == {"a": "mine"})

    await until(followed, "the copy follows the source")


async def test_an_owner_cannot_make_an_object_that_looks_inherited(
    api: Api, trees: Trees, tenancy: LocalCluster, tmp_path: Path, name: str
) -> None:
    """E06: the operator would delete it as a leftover, or leave it alone as its own."""
    await api.make_tenant(name)
    child = await trees.make(name, "team", workspace())
    async with as_person(tenancy, tmp_path, "alice") as alice:
        with pytest.raises(Forbidden, match=f"must not have the label {MARK}"):
            await alice.create(CONFIG_MAPS, config("fake", labels={MARK: name}), child)
        await alice.create(CONFIG_MAPS, config("own"), child)
        with pytest.raises(Forbidden, match=f"must not have the label {MARK}"):
            await alice.patch(CONFIG_MAPS, "own", {"metadata": {"labels": {MARK: name}}}, child)
        await alice.patch(CONFIG_MAPS, "own", {"metadata": {"annotations": {"tenantry.dev/inherit": "none"}}}, child)


async def test_secrets_cannot_be_read_through_a_child(
    api: Api, tenancy: LocalCluster, tmp_path: Path, name: str
) -> None:
    """E06: who cannot read the parent's objects of a kind cannot have them inherited."""
    await api.make_tenant(name)
    role = {
        "metadata": {"name": "sub-maker"},
        "rules": [{"apiGroups": ["tenantry.dev"], "resources": ["subnamespaces"], "verbs": ["*"]}],
    }
    roles = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role")
    bindings = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
    await api.create(roles, role, name)
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "sub-maker"}
    subjects = [{"kind": "User", "name": "mallory", "apiGroup": "rbac.authorization.k8s.io"}]
    await api.create(bindings, {"metadata": {"name": "m"}, "roleRef": reference, "subjects": subjects}, name)
    # The API server is told of a new binding a moment after it was written.
    await until(
        lambda: api.may(subjects[0], "create", "tenantry.dev", "subnamespaces", name), "mallory's rights are known"
    )
    async with as_person(tenancy, tmp_path, "mallory") as mallory:

        def child(called: str, **modes: object) -> Json:
            owners = [{"kind": "User", "name": "mallory"}]
            return {"metadata": {"name": called}, "spec": {**workspace(**modes), "owners": owners}}

        for modes in ({"secrets": "Sync"}, {"secrets": "Copy"}, {"configMaps": "Sync"}, {"serviceAccounts": "Copy"}):
            with pytest.raises(Forbidden, match="may not list"):
                await mallory.create(Subnamespace.resource, child("thief", **modes), name)
        await mallory.create(Subnamespace.resource, child("mine"), name)
        with pytest.raises(Forbidden, match="may not list"):
            await mallory.patch(Subnamespace.resource, "mine", {"spec": {"inheritance": {"secrets": "Sync"}}}, name)
        others = {"others": [{"resource": "widgets.example.com", "mode": "Copy"}]}
        with pytest.raises(Forbidden, match="may not list"):
            await mallory.patch(Subnamespace.resource, "mine", {"spec": {"inheritance": others}}, name)
    async with as_person(tenancy, tmp_path, "alice") as alice:
        await alice.patch(Subnamespace.resource, "mine", {"spec": {"inheritance": {"secrets": "Sync"}}}, name)


# -- kinds beyond the seven -----------------------------------------------------------------------


def definition(plural: str) -> Json:
    """Return the CRD of a kind with a free spec and a status."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    root = {"type": "object", "properties": {"spec": schema, "status": schema}}
    version: Json = {"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}}
    return {
        "metadata": {"name": f"{plural}.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": plural[:-1], "kind": plural[:-1].title()},
            "versions": [{**version, "schema": {"openAPIV3Schema": root}}],
        },
    }


async def allow(api: Api, *kinds: Json) -> None:
    """Make TenancyDefaults that allow these kinds, and none else."""
    await api.delete(TenancyDefaults.resource, "default")
    await api.create(TenancyDefaults.resource, {"metadata": {"name": "default"}, "spec": {"inheritableKinds": kinds}})


@pytest.mark.long
async def test_another_kind_comes_down_where_an_administrator_allows_it(api: Api, trees: Trees, name: str) -> None:
    """E06: allowed, served, and granted to the operator; until then the child says what is missing."""
    plural = f"{name}s"
    kind = f"{plural}.example.com"
    widgets = Resource("example.com", "v1", plural, plural[:-1].title())
    await api.make_tenant(name)
    spec = workspace(others=[{"resource": kind, "mode": "Sync"}], configMaps="Sync")
    await trees.ask(name, "team", spec)
    await trees.condition(name, "team", reasons.INHERITED, holds=False, reason=reasons.KIND_NOT_INHERITABLE)
    assert "TenancyDefaults 'default'" in await trees.message(name, "team", reasons.INHERITED)
    allowed = {"group": "example.com", "version": "v1", "plural": plural, "kind": plural[:-1].title()}
    await allow(api, allowed)

    async def says(text: str) -> bool:
        return text in await trees.message(name, "team", reasons.INHERITED)

    # The operator is asked about before the kind itself: RBAC does not know which kinds are served.
    await until(lambda: says("tenantry.dev/aggregate-to-operator"), "the missing rights are told")
    defaults = await api.client.get(TenancyDefaults, "default")
    assert not is_true(defaults.status.conditions, reasons.READY)
    verbs = ["get", "list", "watch", "create", "update", "delete"]
    role = {
        "metadata": {"name": f"inherit-{plural}", "labels": {"tenantry.dev/aggregate-to-operator": "true"}},
        "rules": [{"apiGroups": ["example.com"], "resources": [plural], "verbs": verbs}],
    }
    await api.create(CLUSTER_ROLES, role)
    await until(lambda: says("is not served"), "the missing kind is told")
    await api.create(CRDS, definition(plural))
    made = await trees.condition(name, "team", reasons.INHERITED, holds=True)
    child = made.status.namespace
    await api.create(widgets, {"metadata": {"name": "one"}, "spec": {"size": 1}, "status": {"phase": "old"}}, name)

    async def copied(size: int) -> bool:
        found = await api.find(widgets, "one", child)
        return found is not None and found["spec"] == {"size": size}

    await until(lambda: copied(1), "the widget comes down")
    await api.patch(widgets, "one", {"metadata": {"finalizers": ["example.com/keep"]}}, child)
    await api.patch(widgets, "one", {"spec": {"size": 2}}, name)
    await until(lambda: copied(2), "the copy follows")
    assert (await api.get(widgets, "one", child))["metadata"]["finalizers"] == ["example.com/keep"]
    await api.patch(widgets, "one", {"metadata": {"finalizers": None}}, child)
    await api.delete(widgets, "one", name)
    await api.gone(widgets, "one", child)
    await allow(api)
    await trees.condition(name, "team", reasons.INHERITED, holds=False, reason=reasons.KIND_NOT_INHERITABLE)
    await api.delete(TenancyDefaults.resource, "default")
    await api.delete(CRDS, kind)
    await api.delete(CLUSTER_ROLES, f"inherit-{plural}")


@pytest.mark.parametrize(
    "kind",
    [
        {"group": "", "version": "v1", "plural": "secrets", "kind": "Secret"},
        {"group": "", "version": "v1", "plural": "pods", "kind": "Pod"},
        {"group": "apps", "version": "v1", "plural": "replicasets", "kind": "ReplicaSet"},
        {"group": "tenantry.dev", "version": "v1alpha1", "plural": "subnamespaces", "kind": "Subnamespace"},
    ],
    ids=lambda kind: str(kind["plural"]),
)
async def test_kinds_that_are_never_inherited_cannot_be_allowed(api: Api, kind: Json) -> None:
    """E06: the seven have fields of their own, others are made by controllers."""
    value = {"metadata": {"name": "default"}, "spec": {"inheritableKinds": [kind]}}
    with pytest.raises(Invalid, match="must not be a kind that"):
        await api.create(TenancyDefaults.resource, value)


async def test_only_the_defaults_called_default_can_be_made(api: Api) -> None:
    """E06: another name would count for nothing."""
    with pytest.raises(Invalid, match="must be default"):
        await api.create(TenancyDefaults.resource, {"metadata": {"name": "other"}, "spec": {}})


async def test_a_quota_that_is_full_is_told_once_and_the_copy_comes_when_there_is_room(
    api: Api, operator: Operator, trees: Trees, name: str
) -> None:
    """E06: a refusal of the API server's is in the status, and it is tried again."""
    quotas = Resource("", "v1", "resourcequotas", "ResourceQuota")
    await api.make_tenant(name)
    child = await trees.make(name, "team", workspace(secrets="Sync"))
    await api.create(quotas, {"metadata": {"name": "none"}, "spec": {"hard": {"secrets": "0"}}}, child)

    async def counts() -> bool:
        status: Json = (await api.get(quotas, "none", child)).get("status", {})
        told = await refusal(api, SECRETS, {"metadata": {"name": "any"}}, child)
        return "secrets" in status.get("hard", {}) and "exceeded quota" in told

    # Its status comes first: the API server itself is told of it a moment later.
    await until(counts, "the quota is in force")
    await api.create(SECRETS, {"metadata": {"name": "thing"}, "data": {"a": "Yg=="}}, name)

    async def refused() -> bool:
        return "exceeded quota" in await trees.message(name, "team", reasons.INHERITED)

    await until(refused, "the refusal is told")
    await stays(refused, "it goes on being told", seconds=0.5)

    async def told() -> list[str]:
        events = await api.list(EVENTS, name)
        return [each["note"] for each in events if each.get("reason") == reasons.REFUSED]

    await until(told, "there is an event")
    assert len(await told()) == 1, "one event, whatever the number of tries"
    warned = [line for line in operator.log.read_text().splitlines() if "quota: none" in line and '"warning"' in line]
    assert warned == [], "and no warning for each of them"
    await api.delete(quotas, "none", child)
    await until(lambda: api.find(SECRETS, "thing", child), "the copy comes")
    await trees.condition(name, "team", reasons.INHERITED, holds=True)
