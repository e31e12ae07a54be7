"""A suspended tenant on a real API server: only administrators read or write, and no data is lost."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tenantry.api import reasons
from tenantry.api.errors import Forbidden, Unauthorized
from tenantry.api.kubernetes import Namespace, RoleBinding
from tenantry.api.tenant import Tenant
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local.cluster import LocalCluster
from testkit.api import (
    CONFIG_MAPS,
    CRON_JOBS,
    JOBS,
    PODS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    Api,
    stays,
    tenant_json,
    until,
)
from testkit.operators import Operator
from testkit.people import as_person
from testkit.suspensions import CONTAINER, JOB, RBAC, resume, subject_of, suspend

pytest_plugins = ["testkit.fixtures"]

Json = dict[str, Any]


@asynccontextmanager
async def _as_program(cluster: LocalCluster, api: Api, namespace: str, account: str) -> AsyncGenerator[Api]:
    """Give the API server as a program with a token of a service account sees it."""
    request: Json = {"metadata": {"name": account}, "spec": {"expirationSeconds": 3600}}
    answer = await api.create(SERVICE_ACCOUNTS, {**request, **TOKEN_REQUEST}, namespace, subresource="token")
    connection = msgspec.structs.replace(
        kubeconfig.load([cluster.kubeconfig_path]), certificate=None, key=None, token=answer["status"]["token"]
    )
    async with Client(connection) as client:
        yield Api(client)


TOKEN_REQUEST: Json = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}


async def _account(api: Api, name: str, account: str) -> None:
    await api.create(SERVICE_ACCOUNTS, {"metadata": {"name": account}}, name)
    role: Json = {"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}
    await api.create(ROLES, {"metadata": {"name": account}, **role}, name)
    await api.create(
        RoleBinding.resource,
        {
            "metadata": {"name": account, "annotations": {"note": "theirs"}},
            "roleRef": {"kind": "Role", "name": account, "apiGroup": RBAC},
            "subjects": [subject_of(name, account)],
        },
        name,
    )
    # The API server is told of a new binding a moment after it was written.
    await until(lambda: api.may(subject_of(name, account), "list", "", "secrets", name), f"{account} has its rights")


async def test_the_owner_neither_reads_nor_writes_while_suspended_and_does_again_after(
    api: Api, operator: Operator, tenancy: LocalCluster, name: str, tmp_path: Path
) -> None:
    """E02: with a real client certificate, which cannot be revoked."""
    user = f"{name}-alice"
    await api.make_tenant(name, owners=[{"kind": "User", "name": user}])
    async with as_person(tenancy, tmp_path, user) as owner:
        await owner.create(SECRETS, {"metadata": {"name": "kept"}, "stringData": {"a": "b"}}, name)
        before = await api.get(SECRETS, "kept", name)
        await suspend(api, name)
        for attempt in (
            owner.list(SECRETS, name),
            owner.get(SECRETS, "kept", name),
            owner.get(Namespace.resource, name),
            owner.create(CONFIG_MAPS, {"metadata": {"name": "new"}}, name),
            owner.patch(SECRETS, "kept", {"metadata": {"labels": {"a": "b"}}}, name),
            owner.client.delete(SECRETS, name, "kept"),
            owner.list(RoleBinding.resource, name),
            owner.list(PODS, name),
        ):
            with pytest.raises(Forbidden):
                await attempt
        await resume(api, name)
        assert await owner.get(SECRETS, "kept", name) == before, "nothing is lost"
        await owner.create(CONFIG_MAPS, {"metadata": {"name": "new"}}, name)
    assert operator.is_running


async def test_programs_lose_their_rights_and_get_no_new_tokens(
    api: Api, operator: Operator, tenancy: LocalCluster, name: str, tmp_path: Path
) -> None:
    """E02: an earlier token reads nothing, and no user of the tenant gets a new one."""
    user = f"{name}-alice"
    await api.make_tenant(name, owners=[{"kind": "User", "name": user}])
    await _account(api, name, "robot")
    async with _as_program(tenancy, api, name, "robot") as robot, as_person(tenancy, tmp_path, user) as owner:
        await robot.list(SECRETS, name)
        await suspend(api, name, "robot")
        for attempt in (
            robot.list(SECRETS, name),
            robot.create(CONFIG_MAPS, {"metadata": {"name": "new"}}, name),
            robot.create(SERVICE_ACCOUNTS, {"metadata": {"name": "robot"}, **TOKEN_REQUEST}, name, subresource="token"),
            owner.create(SERVICE_ACCOUNTS, {"metadata": {"name": "robot"}, **TOKEN_REQUEST}, name, subresource="token"),
        ):
            with pytest.raises((Forbidden, Unauthorized)):
                await attempt
        await resume(api, name, "robot")
        await robot.list(SECRETS, name)
    assert operator.is_running


async def test_a_user_with_cluster_wide_rights_gets_the_reason_of_the_refusal(
    api: Api, operator: Operator, tenancy: LocalCluster, name: str, tmp_path: Path
) -> None:
    """E02: the policy's half, for who has rights by a ClusterRoleBinding; reads are RBAC's half and stay."""
    user = f"{name}-sre"
    binding: Json = {
        "metadata": {"name": user},
        "roleRef": {"kind": "ClusterRole", "name": "edit", "apiGroup": RBAC},
        "subjects": [{"kind": "User", "name": user, "apiGroup": RBAC}],
    }
    everywhere = msgspec.structs.replace(RoleBinding.resource, plural="clusterrolebindings", namespaced=False)
    everywhere = msgspec.structs.replace(everywhere, kind="ClusterRoleBinding")
    await api.create(everywhere, binding)
    await api.make_tenant(name)
    await _account(api, name, "robot")
    sees_it = {"kind": "User", "name": user}
    await until(lambda: api.may(sees_it, "create", "", "configmaps", name), "the API server knows the binding")
    try:
        async with as_person(tenancy, tmp_path, user) as sre:
            await sre.create(CONFIG_MAPS, {"metadata": {"name": "before"}}, name)
            await suspend(api, name)
            with pytest.raises(Forbidden, match=rf"Tenant '{name}' is suspended: nothing can be changed until"):
                await sre.create(CONFIG_MAPS, {"metadata": {"name": "after"}}, name)
            with pytest.raises(Forbidden, match="is suspended"):
                await sre.client.delete(CONFIG_MAPS, name, "before")
            with pytest.raises(Forbidden, match="is suspended"):
                await sre.create(
                    SERVICE_ACCOUNTS, {"metadata": {"name": "robot"}, **TOKEN_REQUEST}, name, subresource="token"
                )
            await sre.create(CONFIG_MAPS, {"metadata": {"name": f"of-{name}"}}, "default")
    finally:
        await api.delete(everywhere, user)
    assert operator.is_running


async def test_kubectl_create_token_is_refused(api: Api, operator: Operator, tenancy: LocalCluster, name: str) -> None:
    """E02: as a user types it, with the right to edit everywhere but not to administer tenants."""
    await api.make_tenant(name)
    await _account(api, name, "robot")
    await suspend(api, name)
    done = tenancy.kubectl("create", "token", "robot", "-n", name, "--as", f"system:serviceaccount:{name}:robot")
    assert done.returncode != 0
    assert "orbidden" in done.stderr
    assert operator.is_running


async def test_administrators_go_on(api: Api, operator: Operator, name: str) -> None:
    """E02: administrators can still read and repair."""
    await api.make_tenant(name, suspended=True)
    await api.create(CONFIG_MAPS, {"metadata": {"name": "by-an-administrator"}}, name)
    assert await api.find(CONFIG_MAPS, "by-an-administrator", name)
    assert operator.is_running


async def test_nothing_new_runs_while_suspended_and_it_does_again_after(
    api: Api, operator: Operator, name: str
) -> None:
    """E02: a CronJob makes no Job, a Job no pod; what is there stays."""
    await api.make_tenant(name, isolation={"network": "Open"})
    template: Json = {"spec": JOB}
    cron: Json = {"metadata": {"name": "each"}, "spec": {"schedule": "* * * * *", "jobTemplate": template}}
    await api.create(CRON_JOBS, cron, name)
    await api.create(JOBS, {"metadata": {"name": "before"}, **template}, name)
    await until(lambda: api.list(PODS, name), "the job made its pod")
    await suspend(api, name)
    controller = "system:serviceaccount:kube-system:cronjob-controller"
    connection = msgspec.structs.replace(api.client.connection, impersonate=controller)
    async with Client(connection) as client:
        with pytest.raises(Forbidden, match="is suspended"):
            await Api(client).create(JOBS, {"metadata": {"name": "by-cron"}, **template}, name)
    connection = msgspec.structs.replace(connection, impersonate="system:serviceaccount:kube-system:job-controller")
    async with Client(connection) as client:
        pod: Json = {"metadata": {"name": "by-job"}, "spec": {"containers": [CONTAINER]}}
        with pytest.raises(Forbidden, match="is suspended"):
            await Api(client).create(PODS, pod, name)
    by_administrator = "by-an-administrator"
    await api.create(JOBS, {"metadata": {"name": by_administrator}, **template}, name)

    # The CronJob has made one as well, where a minute ended meanwhile.
    before = await _pods(api, name)
    assert by_administrator not in before.values()

    async def nothing_new() -> bool:
        return await _pods(api, name) == before

    await stays(nothing_new, "no job makes a pod", seconds=1.5)
    assert await api.find(JOBS, "before", name), "what was there is there"
    await resume(api, name)

    async def runs() -> bool:
        return by_administrator in (await _pods(api, name)).values()

    await until(runs, "the job makes its pod once the tenant is back")
    assert operator.is_running


async def _pods(api: Api, namespace: str) -> dict[str, str]:
    """Return which job made each pod of a namespace, by the pod's name."""
    found = [each["metadata"] for each in await api.list(PODS, namespace)]
    return {meta["name"]: meta["labels"]["batch.kubernetes.io/job-name"] for meta in found}


async def test_a_suspended_tenant_can_be_deleted(api: Api, operator: Operator, name: str) -> None:
    """E02, E01: and everything in it goes."""
    await api.make_tenant(name)
    await api.create(SECRETS, {"metadata": {"name": "theirs"}}, name)
    await suspend(api, name)
    await api.delete(Tenant.resource, name)
    await api.gone(Namespace.resource, name)
    assert operator.is_running


async def test_a_tenant_can_be_made_suspended(api: Api, operator: Operator, name: str) -> None:
    """E02: no user ever has access."""
    await api.create(Tenant.resource, tenant_json(name, suspended=True))
    await api.condition(name, reasons.SUSPENDED, holds=True)
    assert "subjects" not in await api.get(RoleBinding.resource, "tenantry-owner", name)
    await resume(api, name)
    assert (await api.get(RoleBinding.resource, "tenantry-owner", name))["subjects"][0]["name"] == "alice"
    assert operator.is_running
