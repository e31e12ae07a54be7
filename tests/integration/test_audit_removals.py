"""Each check of the audit fails where its protection is removed.

A namespace without Tenantry's policies, a user with every right but that of administrators, and a cluster with an open
CoreDNS, a class that keeps volumes and a sandbox that no pod must use: nothing protects there. Checks whose protection
no API server can lose are in `ELSEWHERE`, with the unit test that removes it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec
import pytest

from tenantry.api import marks
from tenantry.api.kubernetes import RBAC_GROUP, ClusterRole, ClusterRoleBinding, Namespace, ResourceQuota
from tenantry.api.model import Resource
from tenantry.audit import kinds, runner
from tenantry.audit.catalog import CHECKS
from tenantry.audit.check import Verdict
from tenantry.audit.gather import gather
from tenantry.audit.verdict import Audit
from tenantry.kube.client import Client
from tenantry.views.installation import differences
from testkit.api import SECONDS, Api, until
from testkit.installation import without_repairs
from testkit.unprotected import ELSEWHERE

pytest_plugins = ["testkit.fixtures"]

Json = dict[str, Any]

IMAGE = "registry.example.com/pause:1"
VERBS = (
    *("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "impersonate", "bind"),
    *("escalate", "approve", "sign", "attest", "administer", "use", "proxy"),
)
"""Every verb by its name: `*` is how an audit knows an administrator, as whom it is not made."""

EVERYTHING: list[Json] = [
    {"apiGroups": ["*"], "resources": ["*"], "verbs": list(VERBS)},
    {"nonResourceURLs": ["*"], "verbs": ["get", "post", "put", "delete"]},
]
OPERATORS_LEASE = "tenantry-operator-lease"
COREFILE = ".:53 {\n    kubernetes cluster.local\n}\n"
INGRESS: Json = {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "web", "port": {"number": 80}}}}


def subject(user: str) -> Json:
    return {"kind": "User", "name": user, "apiGroup": RBAC_GROUP}


def made(name: str, user: str) -> list[tuple[Resource, Json, str]]:
    """Return what removes protection: the kind, the object and the namespace of each."""
    volume = {"storageClassName": name, "persistentVolumeReclaimPolicy": "Retain", "accessModes": ["ReadWriteOnce"]}
    volume |= {"capacity": {"storage": "1Mi"}, "hostPath": {"path": "/none"}}
    volume |= {"claimRef": {"namespace": name, "name": "data"}}
    schema = {
        "priorityLevelConfiguration": {"name": "workload-low"},
        "matchingPrecedence": 100,
        "rules": [
            {
                "subjects": [{"kind": "User", "user": {"name": user}}],
                "resourceRules": [
                    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": True, "namespaces": ["*"]}
                ],
            }
        ],
    }
    ours = {marks.MANAGED_BY: marks.MANAGER, marks.TENANT: "acme"}
    return [
        (ClusterRole.resource, {"metadata": {"name": user}, "rules": EVERYTHING}, ""),
        (
            ClusterRoleBinding.resource,
            {
                "metadata": {"name": user},
                "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": user},
                "subjects": [subject(user)],
            },
            "",
        ),
        (kinds.FLOW_SCHEMAS, {"metadata": {"name": user}, "spec": schema}, ""),
        (kinds.STORAGE_CLASSES, {"metadata": {"name": name}, "provisioner": "x.y/z", "reclaimPolicy": "Retain"}, ""),
        (kinds.RUNTIME_CLASSES, {"metadata": {"name": name}, "handler": "runsc"}, ""),
        (
            kinds.VOLUMES,
            {"metadata": {"name": name}, "spec": {**volume, "claimRef": {"namespace": name, "name": "d"}}},
            "",
        ),
        (kinds.CONFIG_MAPS, {"metadata": {"name": "coredns"}, "data": {"Corefile": COREFILE}}, "kube-system"),
        (
            kinds.INGRESSES,
            {
                "metadata": {"name": name},
                "spec": {"rules": [{"host": f"{name}.example", "http": {"paths": [INGRESS]}}]},
            },
            "default",
        ),
        (ResourceQuota.resource, {"metadata": {"name": "made", "labels": ours}, "spec": {"hard": {"pods": 9}}}, name),
        (
            kinds.PODS,
            {"metadata": {"name": "web"}, "spec": {"containers": [{"name": "c", "image": IMAGE}]}},
            name,
        ),
    ]


@asynccontextmanager
async def unprotected(api: Api, name: str, user: str) -> AsyncGenerator[None]:
    """Remove protection while the context is open."""
    await api.create(Namespace.resource, {"metadata": {"name": name}})
    await api.default_account(name)
    async with AsyncExitStack() as stack:
        for resource, value, namespace in made(name, user):
            await api.create(resource, value, namespace)
            stack.push_async_callback(api.delete, resource, value["metadata"]["name"], namespace)
        # The operator restores this label only if it repairs FlowSchemas, which it does not.
        await stack.enter_async_context(without_repairs(api.client))
        label = {"metadata": {"labels": {marks.MANAGED_BY: "x"}}}
        await api.patch(kinds.FLOW_SCHEMAS, OPERATORS_LEASE, label)
        back = {"metadata": {"labels": {marks.MANAGED_BY: marks.MANAGER}}}
        stack.push_async_callback(api.patch, kinds.FLOW_SCHEMAS, OPERATORS_LEASE, back)
        await until(lambda: api.may(subject(user), "list", "", "pods"), "the API server knows of the rights")
        yield


async def audited(api: Api, namespace: str, user: str, *groups: str) -> Audit:
    """Audit the namespace as a user."""
    acting = msgspec.structs.replace(api.client.connection, impersonate=user, impersonate_groups=groups)
    installation = await differences(api.client)
    async with Client(acting) as person:
        place = await gather(
            api.client, namespace=namespace, user=user, tenant="", image=IMAGE, installation=installation
        )
        return await runner.audit(person, place, CHECKS)


@pytest.mark.usefixtures("operator")
async def test_each_check_fails_without_its_protection(api: Api, name: str) -> None:
    """X06: a check that has no removal here, and none in ELSEWHERE, fails this test."""
    user, failed = f"{name}-mallory", set[str]()

    async def known() -> bool:
        # The API server takes the FlowSchema into use a moment after it is written.
        for who, *groups in ((user,), (f"{name}-bob",), ("root", "system:masters")):
            audit = await audited(api, name, who, *groups)
            failed.update(each.id for each in audit.checks if each.verdict is Verdict.FAILED)
        return {check.id for check in CHECKS} <= failed | ELSEWHERE.keys()

    async with unprotected(api, name, user):
        try:
            await until(known, "every check has failed", seconds=2 * SECONDS)
        except AssertionError:
            missing = sorted({check.id for check in CHECKS} - failed - ELSEWHERE.keys())
            pytest.fail(f"nothing removes the protection of {missing}")
