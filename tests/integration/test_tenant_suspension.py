"""A suspended tenant on a real API server: only administrators read or write, and no data is lost."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tenantry.api import reasons
from tenantry.api.errors import Forbidden, Unauthorized
from tenantry.api.kubernetes import Namespace, RoleBinding
from tenantry.api.marks import SUSPENDED_SUBJECTS
from tenantry.api.model import Resource
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.kube import kubeconfig, wire
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

pytest_plugins = ["testkit.fixtures"]

FEW = 60
BINDINGS = int(os.environ.get("TENANTRY_TEST_BINDINGS", FEW))
"""How many bindings the largest tenant of these tests has."""

LONG = 120.0
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")

Json = dict[str, Any]
RBAC = "rbac.authorization.k8s.io"
CONTAINER: Json = {"name": "main", "image": "example.com/app:1"}
JOB: Json = {"template": {"spec": {"restartPolicy": "Never", "containers": [CONTAINER]}}}


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


async def _suspend(api: Api, name: str, *accounts: str) -> None:
    await api.patch(Tenant.resource, name, {"spec": {"suspended": True}})
    await api.condition(name, reasons.SUSPENDED, holds=True)
    await until(lambda: _agrees(api, name, accounts, is_open=False), "policies and RBAC have seen it")


async def _resume(api: Api, name: str, *accounts: str) -> None:
    await api.patch(Tenant.resource, name, {"spec": {"suspended": False}})
    await api.condition(name, reasons.SUSPENDED, holds=False)
    await until(lambda: _agrees(api, name, accounts, is_open=True), "policies and RBAC have seen it")


async def _agrees(api: Api, name: str, accounts: tuple[str, ...], *, is_open: bool) -> bool:
    """Tell whether the API server decides as it should: it sees labels and bindings a moment after they are written."""
    owner = (await api.tenant(name)).spec.owners[0]
    people = [{"kind": "User", "name": owner.name}, *(_subject(name, account) for account in accounts)]
    let_in = [await api.may(each, "list", "", "pods", name) for each in people]
    controller = "system:serviceaccount:kube-system:cronjob-controller"
    connection = msgspec.structs.replace(api.client.connection, impersonate=controller)
    job: Json = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "dry"}, "spec": JOB}
    async with Client(connection) as client:
        path, body = wire.path(JOBS, name), msgspec.json.encode(job)
        try:
            await client.request("POST", path, query={"dryRun": "All"}, body=body)
        except Forbidden as error:
            if "is suspended" not in str(error):
                return False  # for another reason than that
            makes_jobs = False
        else:
            makes_jobs = True
    return all(each is is_open for each in (*let_in, makes_jobs))


def _subject(name: str, account: str) -> Json:
    return {"kind": "ServiceAccount", "name": account, "namespace": name}


async def _account(api: Api, name: str, account: str) -> None:
    await api.create(SERVICE_ACCOUNTS, {"metadata": {"name": account}}, name)
    role: Json = {"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}
    await api.create(ROLES, {"metadata": {"name": account}, **role}, name)
    await api.create(
        RoleBinding.resource,
        {
            "metadata": {"name": account, "annotations": {"note": "theirs"}},
            "roleRef": {"kind": "Role", "name": account, "apiGroup": RBAC},
            "subjects": [_subject(name, account)],
        },
        name,
    )
    # The API server is told of a new binding a moment after it was written.
    await until(lambda: api.may(_subject(name, account), "list", "", "secrets", name), f"{account} has its rights")


async def test_the_owner_neither_reads_nor_writes_while_suspended_and_does_again_after(
    api: Api, operator: Operator, tenancy: LocalCluster, name: str, tmp_path: Path
) -> None:
    """E02: with a real client certificate, which cannot be revoked."""
    user = f"{name}-alice"
    await api.make_tenant(name, owners=[{"kind": "User", "name": user}])
    async with as_person(tenancy, tmp_path, user) as owner:
        await owner.create(SECRETS, {"metadata": {"name": "kept"}, "stringData": {"a": "b"}}, name)
        before = await api.get(SECRETS, "kept", name)
        await _suspend(api, name)
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
        await _resume(api, name)
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
        await _suspend(api, name, "robot")
        for attempt in (
            robot.list(SECRETS, name),
            robot.create(CONFIG_MAPS, {"metadata": {"name": "new"}}, name),
            robot.create(SERVICE_ACCOUNTS, {"metadata": {"name": "robot"}, **TOKEN_REQUEST}, name, subresource="token"),
            owner.create(SERVICE_ACCOUNTS, {"metadata": {"name": "robot"}, **TOKEN_REQUEST}, name, subresource="token"),
        ):
            with pytest.raises((Forbidden, Unauthorized)):
                await attempt
        await _resume(api, name, "robot")
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
            await _suspend(api, name)
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
    await _suspend(api, name)
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
    await _suspend(api, name)
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
    await _resume(api, name)

    async def runs() -> bool:
        return by_administrator in (await _pods(api, name)).values()

    await until(runs, "the job makes its pod once the tenant is back")
    assert operator.is_running


async def _pods(api: Api, namespace: str) -> dict[str, str]:
    """Return which job made each pod of a namespace, by the pod's name."""
    found = [each["metadata"] for each in await api.list(PODS, namespace)]
    return {meta["name"]: meta["labels"]["batch.kubernetes.io/job-name"] for meta in found}


async def test_every_foreign_binding_is_closed_and_given_back_exactly(api: Api, operator: Operator, name: str) -> None:
    """E02: for every name and subject, also a binding created while the tenant is suspended."""
    await api.make_tenant(name)
    subjects: list[Json] = [
        {"kind": "User", "name": "zoe", "apiGroup": RBAC},
        {"kind": "Group", "name": 'gr\u00fcppe "x"', "apiGroup": RBAC},
        {"kind": "ServiceAccount", "name": "robot", "namespace": "elsewhere"},
    ]
    role = {"kind": "ClusterRole", "name": "view", "apiGroup": RBAC}
    for each in ("plain", "system:odd", "a b", "why?", "no#1", "\u00fc"):
        await api.create(
            RoleBinding.resource, {"metadata": {"name": each}, "roleRef": role, "subjects": subjects}, name
        )
    await api.create(RoleBinding.resource, {"metadata": {"name": "empty"}, "roleRef": role}, name)
    before = await _bindings(api, name)
    await _suspend(api, name)
    assert all(not value["subjects"] for value in (await _bindings(api, name)).values())
    await api.create(RoleBinding.resource, {"metadata": {"name": "late"}, "roleRef": role, "subjects": subjects}, name)

    async def is_closed() -> bool:
        return not (await _bindings(api, name))["late"]["subjects"]

    await until(is_closed, "the late binding is closed")
    await _resume(api, name)

    async def all_back() -> bool:
        now = await _bindings(api, name)
        return now == {**before, "late": {"subjects": subjects, "annotations": {}, "roleRef": role}}

    await until(all_back, "every binding is as it was")
    assert operator.is_running


async def _bindings(api: Api, namespace: str) -> dict[str, Json]:
    return {
        value["metadata"]["name"]: {
            "subjects": value.get("subjects") or [],
            "annotations": value["metadata"].get("annotations") or {},
            "roleRef": value["roleRef"],
        }
        for value in await api.list(RoleBinding.resource, namespace)
    }


async def test_a_suspension_stops_writes_in_the_whole_tree_before_it_empties_many_bindings(
    api: Api, operator: Operator, tenancy: LocalCluster, name: str, tmp_path: Path
) -> None:
    """E02: all namespaces first, then all bindings, each of which comes back; the lease stays.

    TENANTRY_TEST_BINDINGS=2000 measures it, and holds it to its targets.
    """
    user, lease = f"{name}-alice", await api.get(LEASES, "tenantry-operator", "tenantry-system")
    places = [name, *(await _children(api, name, 3, user))]

    async def bind(number: int) -> None:
        subjects: list[Json] = [{"kind": "User", "name": f"{name}-{number}", "apiGroup": RBAC}]
        ref = {"kind": "ClusterRole", "name": "view", "apiGroup": RBAC}
        value = {"metadata": {"name": f"b-{number}"}, "roleRef": ref, "subjects": subjects}
        await api.create(RoleBinding.resource, value, places[number % len(places)])

    for start in range(0, BINDINGS, 50):
        await asyncio.gather(*(bind(number) for number in range(start, min(start + 50, BINDINGS))))
    began = time.monotonic()
    await api.patch(Tenant.resource, name, {"spec": {"suspended": True}})
    async with as_person(tenancy, tmp_path, user) as owner:
        for place in places:
            await until(partial(_is_refused, owner, place), f"writes in {place} are refused", seconds=LONG)
    refused = time.monotonic() - began
    labelled = [await api.get(Namespace.resource, place) for place in places]

    async def closed() -> bool:
        found = [each for place in places for each in await api.list(RoleBinding.resource, place)]
        return not any(each.get("subjects") for each in found)

    await until(closed, "no binding has subjects", seconds=LONG)
    emptied = time.monotonic() - began
    bindings = [each for place in places for each in await api.list(RoleBinding.resource, place)]
    last = max(int(each["metadata"]["resourceVersion"]) for each in labelled)
    ours = [each for each in bindings if each["metadata"]["name"].startswith("b-")]
    assert min(int(each["metadata"]["resourceVersion"]) for each in ours) > last
    for number in (0, BINDINGS - 1):
        user_of: Json = {"kind": "User", "name": f"{name}-{number}"}
        place = places[number % len(places)]
        await until(partial(_may_not_list, api, user_of, place), "RBAC has seen it", seconds=LONG)
    await api.condition(name, reasons.SUSPENDED, holds=True)
    now = await api.get(LEASES, "tenantry-operator", "tenantry-system")
    assert now["spec"]["leaseTransitions"] == lease["spec"]["leaseTransitions"]
    if BINDINGS > FEW:
        print(f"{BINDINGS} bindings: writes refused after {refused:.1f} s, bindings empty after {emptied:.1f} s")
        assert refused < 2
        assert emptied < 20
    assert operator.is_running
    await api.patch(Tenant.resource, name, {"spec": {"suspended": False}})
    await until(partial(_has_all, api, places, bindings), "all subjects are back", seconds=LONG)


async def _children(api: Api, name: str, count: int, user: str) -> list[str]:
    """Create a tenant with Workspaces of the same owner; return their namespaces."""
    owners, counted = [{"kind": "User", "name": user}], "count/rolebindings.rbac.authorization.k8s.io"
    await api.make_tenant(name, owners=owners, quota={"hard": {counted: (count + 1) * BINDINGS}})
    found: list[str] = []
    for number in range(count):
        child = f"c{number}"
        spec = {"mode": "Workspace", "owners": owners, "quota": {"hard": {counted: BINDINGS}}}
        await api.create(Subnamespace.resource, {"metadata": {"name": child}, "spec": spec}, name)

        async def namespace(child: str = child) -> str:
            value = await api.get(Subnamespace.resource, child, name)
            return str(value.get("status", {}).get("namespace", ""))

        found.append(await until(namespace, f"{child} has a namespace"))
    return found


async def _is_refused(owner: Api, namespace: str) -> bool:
    try:
        await owner.client.request(
            "POST",
            wire.path(CONFIG_MAPS, namespace),
            query={"dryRun": "All"},
            body=b'{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "probe"}}',
        )
    except Forbidden:
        return True
    return False


async def _may_not_list(api: Api, subject: Json, namespace: str) -> bool:
    return not await api.may(subject, "list", "", "pods", namespace)


async def _has_all(api: Api, places: list[str], before: list[Json]) -> bool:
    found = [each for place in places for each in await api.list(RoleBinding.resource, place)]
    return len(found) == len(before) and all(each.get("subjects") for each in found)


async def test_a_binding_cannot_outlive_a_suspension(
    api: Api, operator: Operator, tenancy: LocalCluster, name: str, tmp_path: Path
) -> None:
    """E02: an owner writes no rubbish where the operator keeps the subjects; who has it there loses the rights, too."""
    user = f"{name}-alice"
    await api.make_tenant(name, owners=[{"kind": "User", "name": user}])
    async with as_person(tenancy, tmp_path, user) as owner:
        await owner.create(
            RoleBinding.resource,
            {
                "metadata": {"name": "back-door"},
                "roleRef": {"kind": "ClusterRole", "name": "view", "apiGroup": RBAC},
                "subjects": [{"kind": "User", "name": user, "apiGroup": RBAC}],
            },
            name,
        )
        rubbish: Json = {"metadata": {"annotations": {SUSPENDED_SUBJECTS: "rubbish"}}}
        with pytest.raises(Forbidden, match="must not be set, changed or removed"):
            await owner.patch(RoleBinding.resource, "back-door", rubbish, name)
        await api.patch(RoleBinding.resource, "back-door", rubbish, name)
        await _suspend(api, name)
        with pytest.raises(Forbidden):
            await owner.list(PODS, name)
    assert operator.is_running


MALLORY: Json = {"kind": "User", "name": "mallory", "apiGroup": RBAC}
OVERSIZED: list[tuple[Json, str]] = [
    ({"metadata": {"annotations": {"a": "x" * 40_000}}}, "annotations must not be longer"),
    ({"subjects": [{**MALLORY, "name": f"user-{number}"} for number in range(1000)]}, "subjects must be fewer"),
    ({"subjects": [MALLORY, {**MALLORY, "name": "\u0001" * 30_000}]}, "subjects must be fewer"),
]


@pytest.mark.parametrize(("change", "why"), OVERSIZED, ids=["annotations", "many", "long"])
async def test_no_binding_is_too_large_to_be_closed(
    api: Api, operator: Operator, name: str, change: Json, why: str
) -> None:
    """E02: closing one moves its subjects into an annotation, which has to have room; also by a later change."""
    await api.make_tenant(name)
    owner = msgspec.structs.replace(api.client.connection, impersonate="alice")
    role = {"kind": "ClusterRole", "name": "view", "apiGroup": RBAC}
    async with Client(owner) as client:
        alice = Api(client)
        door: Json = {"metadata": {"name": "door"}, "roleRef": role, "subjects": [MALLORY]}
        await until(lambda: _may(alice, door, name), "alice's rights are seen")
        with pytest.raises(Forbidden, match=why):
            await alice.patch(RoleBinding.resource, "door", change, name)
        new: Json = {**door, **change, "metadata": {"name": "new", **change.get("metadata", {})}}
        with pytest.raises(Forbidden, match=why):
            await alice.create(RoleBinding.resource, new, name)
    assert operator.is_running


async def _may(api: Api, binding: Json, namespace: str) -> bool:
    try:
        await api.create(RoleBinding.resource, binding, namespace)
    except Forbidden:
        return False
    return True


async def test_the_largest_binding_that_is_allowed_is_closed_and_given_back(
    api: Api, operator: Operator, name: str
) -> None:
    """E02: with the characters that JSON makes the most of."""
    await api.make_tenant(name)
    subjects: list[Json] = [
        {"kind": "User", "name": f"{number:03}" + "\u0001" * 15, "apiGroup": RBAC} for number in range(500)
    ]
    value: Json = {
        "metadata": {"name": "large", "annotations": {"a": "\u20ac" * 29_000}},
        "roleRef": {"kind": "ClusterRole", "name": "view", "apiGroup": RBAC},
        "subjects": subjects,
    }
    owner = msgspec.structs.replace(api.client.connection, impersonate="alice")
    async with Client(owner) as client:
        await until(lambda: _may(Api(client), value, name), "alice's rights are seen")
    await _suspend(api, name)

    async def is_closed() -> bool:
        return "subjects" not in await api.get(RoleBinding.resource, "large", name)

    # The operator may be told of it after it was told of the suspension.
    await until(is_closed, "the large binding is closed")
    await _resume(api, name)
    assert (await api.get(RoleBinding.resource, "large", name))["subjects"] == subjects
    assert operator.is_running


async def test_a_suspended_tenant_can_be_deleted(api: Api, operator: Operator, name: str) -> None:
    """E02, E01: and everything in it goes."""
    await api.make_tenant(name)
    await api.create(SECRETS, {"metadata": {"name": "theirs"}}, name)
    await _suspend(api, name)
    await api.delete(Tenant.resource, name)
    await api.gone(Namespace.resource, name)
    assert operator.is_running


async def test_a_tenant_can_be_made_suspended(api: Api, operator: Operator, name: str) -> None:
    """E02: no user ever has access."""
    await api.create(Tenant.resource, tenant_json(name, suspended=True))
    await api.condition(name, reasons.SUSPENDED, holds=True)
    assert "subjects" not in await api.get(RoleBinding.resource, "tenantry-owner", name)
    await _resume(api, name)
    assert (await api.get(RoleBinding.resource, "tenantry-owner", name))["subjects"][0]["name"] == "alice"
    assert operator.is_running
