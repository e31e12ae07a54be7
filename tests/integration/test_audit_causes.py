"""What an audit makes of refusals that have another cause than a guard, and of what it looked past."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tenantry.api.kubernetes import RBAC_GROUP, Namespace, ResourceQuota, RoleBinding
from tenantry.audit import kinds, runner
from tenantry.audit.catalog import CHECKS
from tenantry.audit.check import CheckResult, Verdict
from tenantry.audit.gather import gather
from tenantry.audit.verdict import AttemptOutcome, Audit, score
from tenantry.install.waves import policy_resource
from tenantry.kube.client import Client
from testkit.api import PODS, Api, until
from testkit.installation import without_repairs
from testkit.trees import Trees

pytest_plugins = ["testkit.fixtures"]

Json = dict[str, Any]

BINDINGS = policy_resource("Validating", "Binding")
IMAGE = "registry.example.com/pause:1"
MAKES_PODS: Json = {"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}
OPENS_SHELLS: Json = {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create"]}
INGRESSES: Json = {"apiGroups": ["networking.k8s.io"], "resources": ["ingresses"], "verbs": ["*"]}


async def give(api: Api, namespace: str, user: str, rule: Json) -> None:
    """Grant a user a right in a namespace."""
    await api.create(kinds.ROLES, {"metadata": {"name": "given"}, "rules": [rule]}, namespace)
    ref = {"kind": "Role", "name": "given", "apiGroup": RBAC_GROUP}
    people = [{"kind": "User", "name": user, "apiGroup": RBAC_GROUP}]
    await api.create(
        RoleBinding.resource, {"metadata": {"name": "given"}, "roleRef": ref, "subjects": people}, namespace
    )


def ingress(host: str) -> Json:
    """Return an Ingress of one host."""
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    rule = {"host": host, "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}
    return {"metadata": {"name": "web"}, "spec": {"rules": [rule]}}


async def audited(
    api: Api, namespace: str, user: str, hoped: Callable[[dict[str, CheckResult]], bool]
) -> dict[str, CheckResult]:
    """Return the results by their ids, once what was just written is in force."""
    last: list[Audit] = []

    async with Client(msgspec.structs.replace(api.client.connection, impersonate=user)) as person:

        async def so() -> bool:
            place = await gather(api.client, namespace=namespace, user=user, tenant="", image=IMAGE)
            last[:] = [await runner.audit(person, place, CHECKS)]
            return hoped({each.id: each for each in last[0].checks})

        await until(so, "what was written is in force")
    return {each.id: each for each in last[0].checks}


@pytest.mark.usefixtures("operator")
async def test_what_may_not_be_looked_at_is_not_known_to_be_closed(api: Api, name: str) -> None:
    """X06: a user who creates pods, but reads neither network policies nor quotas."""
    mallory = f"{name}-mallory"
    await api.create(Namespace.resource, {"metadata": {"name": name}})
    await give(api, name, mallory, MAKES_PODS)
    found = await audited(api, name, mallory, lambda each: each["TNT-POD-001"].verdict is Verdict.FAILED)
    looks = ("TNT-API-019", "TNT-NET-001", "TNT-NET-002", "TNT-QTA-004")
    assert {check: found[check].verdict for check in looks} == dict.fromkeys(looks, Verdict.SKIPPED)
    assert "may not be read" in found["TNT-NET-001"].message


@pytest.mark.usefixtures("operator")
@pytest.mark.parametrize(("most", "expected"), [("1", Verdict.ERROR), ("0", Verdict.PASSED)])
async def test_a_full_quota_is_no_guard_but_one_of_nothing_is(
    api: Api, name: str, most: str, expected: Verdict
) -> None:
    """X06: with one Ingress less, its user would have the next."""
    mallory = f"{name}-mallory"
    await api.create(Namespace.resource, {"metadata": {"name": name}})
    await give(api, name, mallory, INGRESSES)
    if most != "0":
        await api.create(kinds.INGRESSES, ingress("mine.example"), name)
    hard = {"count/ingresses.networking.k8s.io": most}
    await api.create(ResourceQuota.resource, {"metadata": {"name": "q"}, "spec": {"hard": hard}}, name)

    def is_counted(found: dict[str, CheckResult]) -> bool:
        tried = found["TNT-NET-012"].attempts
        return bool(tried) and all("exceeded quota" in each.message for each in tried)

    found = await audited(api, name, mallory, is_counted)
    assert found["TNT-NET-012"].verdict is expected, found["TNT-NET-012"].message


@pytest.mark.usefixtures("operator")
async def test_a_full_quota_does_not_improve_the_score(api: Api, name: str) -> None:
    """X06: what is no longer refused for what it is, was not shown."""
    mallory = f"{name}-mallory"
    await api.create(Namespace.resource, {"metadata": {"name": name}})
    await give(api, name, mallory, MAKES_PODS)
    await api.create(ResourceQuota.resource, {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}}, name)
    before = await audited(api, name, mallory, lambda each: each["TNT-POD-001"].verdict is Verdict.FAILED)
    await api.create(PODS, {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": IMAGE}]}}, name)
    after = await audited(api, name, mallory, lambda each: "exceeded quota" in each["TNT-POD-001"].message)
    assert after["TNT-POD-001"].verdict is Verdict.ERROR
    assert score(after.values()) <= score(before.values())


@pytest.mark.usefixtures("operator")
async def test_what_one_container_may_have_is_no_quota(api: Api, name: str) -> None:
    """X06: many small pods take the nodes as well as a large one."""
    alice = f"{name}-alice"
    limits = {"containers": {"max": {"cpu": "1", "memory": "1Gi"}}}
    await api.make_tenant(name, owners=[{"kind": "User", "name": alice}], rules=limits)
    found = await audited(api, name, alice, lambda each: "containers.max" in each["TNT-QTA-001"].message)
    for check in ("TNT-QTA-001", "TNT-QTA-002"):
        assert found[check].verdict is Verdict.SKIPPED
        assert "before the quota is checked" in found[check].message


@pytest.mark.usefixtures("operator")
async def test_a_required_class_does_not_hide_that_claims_may_name_a_volume(api: Api, name: str) -> None:
    """X06: volumes that others left are of a class, too."""
    alice, fast = f"{name}-alice", f"{name}-fast"
    await api.create(kinds.STORAGE_CLASSES, {"metadata": {"name": fast}, "provisioner": "example.com/none"})
    try:
        rules = {"storageClasses": {"allowed": [fast], "default": fast, "existingVolumes": "Allow"}}
        await api.make_tenant(name, owners=[{"kind": "User", "name": alice}], rules=rules)
        found = await audited(api, name, alice, lambda each: each["TNT-STO-004"].verdict is Verdict.PASSED)
    finally:
        await api.delete(kinds.STORAGE_CLASSES, fast)
    result = found["TNT-STO-003"]
    through = [each.what for each in result.attempts if each.outcome == AttemptOutcome.THROUGH]
    assert [what.partition(" in ")[0] for what in through] == [
        "create a PersistentVolumeClaim on a volume by name",
        "create a PersistentVolumeClaim on volumes by label",
    ]
    assert "existingVolumes" in result.fix


@pytest.mark.usefixtures("operator")
async def test_hosts_of_the_same_tree_are_not_of_others(api: Api, trees: Trees, name: str) -> None:
    """E05, X06: a host is one tenant's, in whichever of its namespaces."""
    await api.make_tenant(name)
    work = await trees.make(name, "work")
    host = f"shop.{name}.example"
    await api.create(kinds.INGRESSES, ingress(host), work)
    for namespace, is_foreign in ((name, False), (work, False), ("default", True)):
        place = await gather(api.client, namespace=namespace, user="x", tenant="", image=IMAGE)
        assert (host in (place.hosts or ())) is is_foreign


@pytest.mark.usefixtures("operator")
async def test_a_shell_in_pods_of_others_is_found_by_the_right_to_open_it(api: Api, name: str) -> None:
    """X06: clients open it with POST, which roles give as `create` alone."""
    mallory, other = f"{name}-mallory", f"{name}-other"
    for each in (name, other):
        await api.create(Namespace.resource, {"metadata": {"name": each}})
    await give(api, other, mallory, OPENS_SHELLS)
    found = await audited(api, name, mallory, lambda each: each["TNT-API-006"].verdict is Verdict.FAILED)
    assert found["TNT-API-005"].verdict is Verdict.FAILED
    assert f"may create pods/exec in {other!r}" in found["TNT-API-005"].message


@pytest.mark.usefixtures("operator")
async def test_claims_that_are_refused_do_not_hide_that_volumes_are_bound(api: Api, name: str) -> None:
    """X06: a claim of a class without provisioner is admitted, and Kubernetes then binds what others left."""
    alice, volume = f"{name}-alice", f"{name}-left"
    await api.make_tenant(name, owners=[{"kind": "User", "name": alice}])
    spec: Json = {"capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/none"}}
    await api.create(kinds.VOLUMES, {"metadata": {"name": volume}, "spec": {**spec, "storageClassName": "left"}})
    try:
        guarded = await audited(api, name, alice, lambda each: each["TNT-STO-003"].verdict is Verdict.PASSED)
        assert all(each.outcome == AttemptOutcome.REFUSED for each in guarded["TNT-STO-003"].attempts)
        async with without_repairs(api.client):
            await api.delete(BINDINGS, "tenantry-existing-volumes")
            found = await audited(api, name, alice, lambda each: each["TNT-STO-003"].verdict is Verdict.FAILED)
    finally:
        await api.delete(kinds.VOLUMES, volume)
    assert volume in found["TNT-STO-003"].message
