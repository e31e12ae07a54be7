"""Requests on a real API server: the whole way of each kind, and how grants end."""

from __future__ import annotations

import asyncio
import datetime as dt
import sys
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tenantry.api import reasons
from tenantry.api.errors import Forbidden
from tenantry.api.kubernetes import ClusterRoleBinding, Namespace, RoleBinding
from tenantry.api.requests import ClusterRoleRequest, Request, RoleRequest, TenantRequest
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.api.tenant import Tenant
from tenantry.controllers.requests.desired import MOST_PENDING
from tenantry.engine.clock import rfc3339
from tenantry.engine.conditions import find
from tenantry.install import apply, manifests
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local.cluster import LocalCluster, UpOptions
from testkit import versions
from testkit.api import CONFIG_MAPS, EVENTS, ROLES, Api, stays, until
from testkit.clock import ManualClock
from testkit.operators import Operator
from testkit.refusals import tried
from testkit.requests import People, ask, decide, member, role_request, said
from testkit.trees import Trees

pytest_plugins = ["testkit.fixtures"]

Json = dict[str, Any]

HOUR = 3600
VIEW = {"kind": "ClusterRole", "name": "view"}


# -- the whole way --------------------------------------------------------------------------------


async def test_a_tenant_is_asked_for_approved_and_made(api: Api, operator: Operator, people: People, name: str) -> None:
    """E16: with who asked as its owner, once and not again, and it stays when the request goes."""
    del operator
    bob = await people.person("bob")
    asked = {"tenant": name, "quota": {"hard": {"cpu": "4"}}, "justification": "a shop"}
    await bob.create(TenantRequest.resource, {"metadata": {"name": name}, "spec": asked})
    await said(api, TenantRequest, name, holds=False, reason=reasons.AWAITING_DECISION)
    await decide(api, TenantRequest, name, decision="Approved", reason="welcome")
    request = await said(api, TenantRequest, name, holds=True, reason=reasons.GRANTED)
    assert (request.status.decided_by, request.status.granted) == ("admin", name)
    approved = find(request.status.conditions, reasons.APPROVED)
    assert approved is not None
    assert "welcome" in approved.message
    tenant = await api.ready(name)
    assert [owner.name for owner in tenant.spec.owners] == ["bob"]
    assert tenant.spec.quota.hard == {"cpu": "4"}
    await api.open(name)
    await bob.create(CONFIG_MAPS, {"metadata": {"name": "mine"}}, name)

    await api.delete(TenantRequest.resource, name)
    await api.gone(TenantRequest.resource, name)
    assert (await api.ready(name)).metadata.uid == tenant.metadata.uid


async def test_a_tenant_that_was_deleted_is_not_made_again(
    api: Api, operator: Operator, people: People, name: str
) -> None:
    """E16: an approval is used once."""
    bob = await people.person("bob")
    await bob.create(TenantRequest.resource, {"metadata": {"name": name}, "spec": {"tenant": name}})
    await decide(api, TenantRequest, name)
    await said(api, TenantRequest, name, holds=True, reason=reasons.GRANTED)
    await api.ready(name)
    await api.delete(Tenant.resource, name)
    await api.gone(Tenant.resource, name)
    await operator.stop()
    await operator.start()
    await operator.leads()

    async def none() -> bool:
        return await api.find(Tenant.resource, name) is None

    await stays(none, "the tenant is gone")


async def test_a_role_is_asked_for_and_the_owner_approves(
    api: Api, operator: Operator, people: People, name: str
) -> None:
    """E16: it lets in, is put back when an administrator deletes it, and ends with the request."""
    del operator
    await api.make_tenant(name)
    await member(api, "bob", name)
    alice, bob = await people.person("alice"), await people.person("bob")
    with pytest.raises(Forbidden):
        await bob.create(CONFIG_MAPS, {"metadata": {"name": "mine"}}, name)
    await ask(bob, RoleRequest, role_request("more"), name)
    await decide(alice, RoleRequest, "more", name)
    request = await said(api, RoleRequest, "more", name, holds=True, reason=reasons.GRANTED)
    assert request.status.decided_by == "alice"
    await until(partial(_writes, bob, name), "bob is in")

    await api.delete(RoleBinding.resource, request.status.granted, name)

    async def back() -> bool:
        return await api.find(RoleBinding.resource, request.status.granted, name) is not None

    await until(back, "the binding is put back")
    await bob.delete(RoleRequest.resource, "more", name)
    await api.gone(RoleBinding.resource, request.status.granted, name)

    async def out() -> bool:
        return not await _writes(bob, name)

    await until(out, "bob is out")


async def test_a_cluster_role_is_asked_for_and_an_administrator_approves(
    api: Api, operator: Operator, people: People, name: str
) -> None:
    """E16: a user who may request cluster-wide roles gets one for a while."""
    del operator
    bob = await people.person("bob")
    with pytest.raises(Forbidden):
        await bob.create(ClusterRoleRequest.resource, {"metadata": {"name": name}, "spec": {"roleRef": VIEW}})
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "tenantry-cluster-requester"}
    subject = {"kind": "User", "name": "bob", "apiGroup": "rbac.authorization.k8s.io"}
    staff = {"metadata": {"name": f"staff-{name}"}, "roleRef": ref, "subjects": [subject]}
    await api.create(ClusterRoleBinding.resource, staff)
    try:
        asked = {"roleRef": VIEW, "durationSeconds": HOUR}
        await ask(bob, ClusterRoleRequest, {"metadata": {"name": name}, "spec": asked})
        await decide(api, ClusterRoleRequest, name)
        request = await said(api, ClusterRoleRequest, name, holds=True, reason=reasons.GRANTED)
        assert request.status.expires_at

        async def reads() -> bool:
            try:
                return bool(await bob.list(CONFIG_MAPS, "kube-system"))
            except Forbidden:
                return False

        await until(reads, "bob reads what is the cluster's")
        await bob.delete(ClusterRoleRequest.resource, name)
        await api.gone(ClusterRoleBinding.resource, request.status.granted)
    finally:
        await api.delete(ClusterRoleBinding.resource, f"staff-{name}")


async def test_a_denied_request_gives_nothing(api: Api, operator: Operator, people: People, name: str) -> None:
    """E16: and says so."""
    del operator
    bob = await people.person("bob")
    await bob.create(TenantRequest.resource, {"metadata": {"name": name}, "spec": {"tenant": name}})
    await decide(api, TenantRequest, name, decision="Denied", reason="no room")
    request = await said(api, TenantRequest, name, holds=False, reason=reasons.DENIED)
    denied = find(request.status.conditions, reasons.DENIED)
    assert denied is not None
    assert denied.message == "by admin: no room"
    assert await api.find(Tenant.resource, name) is None


@pytest.mark.long
async def test_the_first_request_after_an_install_is_taken(tenantry_home: Path) -> None:
    """E16: `install` waits until the API server writes into requests who makes them, and not before."""
    made: list[Json] = []

    async def install_and_ask(path: Path) -> None:
        async with Client(kubeconfig.load([path])) as client:
            objects = manifests.foundation(manifests.LOCAL_USER)
            await apply.apply(client, objects)
            await apply.in_force(client)
            asked: tuple[tuple[type[Request], Json], ...] = (
                (TenantRequest, {"tenant": "acme"}),
                (ClusterRoleRequest, {"roleRef": VIEW}),
            )
            for kind, spec in asked:
                made.append(await Api(client).create(kind.resource, {"metadata": {"name": "first"}, "spec": spec}))

    local = LocalCluster("first", root=tenantry_home)
    try:
        await local.up(UpOptions(throwaway=True, install=install_and_ask))
    finally:
        await local.down(purge=True)
    assert [value["spec"]["requester"]["name"] for value in made] == ["admin", "admin"]


@pytest.mark.long
async def test_the_command_waits_until_requests_can_be_made(tenantry_home: Path) -> None:
    """E16: right after an installation the API server takes none, or takes them without saying who asks."""
    said: list[tuple[int | None, Json, str]] = []

    async def install_and_ask(path: Path) -> None:
        async with Client(kubeconfig.load([path])) as client:
            await apply.apply(client, manifests.foundation(manifests.LOCAL_USER))
        asked = ("request", "create", "tenant", "acme", "-o", "json", "--kubeconfig", str(path))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tenantry", *asked), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        out, err = await process.communicate()
        said.append((process.returncode, msgspec.json.decode(out or b"{}"), err.decode()))

    local = LocalCluster("early", root=tenantry_home)
    try:
        await local.up(UpOptions(throwaway=True, install=install_and_ask))
    finally:
        await local.down(purge=True)
    ((code, made, talk),) = said
    assert code == 0, talk
    assert made["spec"]["requester"]["name"] == "admin"


async def test_of_too_many_pending_requests_the_newest_are_withdrawn(
    api: Api, operator: Operator, people: People, name: str
) -> None:
    """E16: with an event, and for each requester apart; a decision makes room."""
    del operator
    bob, carol = await people.person(f"bob-{name}"), await people.person("carol")

    async def asked(who: Api, suffix: str) -> None:
        value = {"metadata": {"name": f"{name}-{suffix}"}, "spec": {"tenant": name}}
        await who.create(TenantRequest.resource, value)

    async def left() -> set[str]:
        found = await api.list(TenantRequest.resource)
        return {each["metadata"]["name"].removeprefix(f"{name}-") for each in found if each["spec"]["tenant"] == name}

    for index in range(MOST_PENDING):
        await asked(bob, f"a{index}")
    await asked(carol, "carol")
    for index in range(3):
        await asked(bob, f"b{index}")
    first = {*(f"a{index}" for index in range(MOST_PENDING)), "carol"}

    async def withdrawn() -> bool:
        return await left() == first

    await until(withdrawn, "the newest are gone")

    async def told() -> bool:
        notes = [each["note"] for each in await api.list(EVENTS, "default") if each["reason"] == "LimitReached"]
        return any(f"'bob-{name}' has 20" in note for note in notes)

    await until(told, "an event says why")
    await decide(api, TenantRequest, f"{name}-a0", decision="Denied")
    await said(api, TenantRequest, f"{name}-a0", holds=False, reason=reasons.DENIED)
    await asked(bob, "b0")
    await said(api, TenantRequest, f"{name}-b0", holds=False, reason=reasons.AWAITING_DECISION)


async def test_programs_of_one_namespace_ask_for_no_more_than_one_person(
    api: Api, operator: Operator, name: str
) -> None:
    """E16: a user who may create one ServiceAccount can create a hundred."""
    del operator
    owners = [{"kind": "User", "name": "alice"}]
    for index in range(MOST_PENDING + 1):
        program = f"system:serviceaccount:{name}:{index % 2}"
        # Of one second the names decide which is the newest: mostly not the one that was made last.
        value = {"metadata": {"name": f"{name}-{99 - index}"}, "spec": {"tenant": name, "owners": owners}}
        async with Client(msgspec.structs.replace(api.client.connection, impersonate=program)) as client:
            await Api(client).create(TenantRequest.resource, value)

    async def withdrawn() -> bool:
        notes = [each["note"] for each in await api.list(EVENTS, "default") if each["reason"] == "LimitReached"]
        left = [each for each in await api.list(TenantRequest.resource) if each["spec"]["tenant"] == name]
        return len(left) == MOST_PENDING and any(f"'system:serviceaccounts:{name}' has 20" in note for note in notes)

    await until(withdrawn, "the one too many is gone, and an event says why")


# -- what becomes of grants -----------------------------------------------------------------------


async def test_requests_in_the_rules_are_approved_by_themselves(
    api: Api, operator: Operator, people: People, name: str
) -> None:
    """E16: by the mail domain of who asks, up to a quota; others wait for a person."""
    del operator
    rule = {"name": "students", "domains": ["uni.example"], "maxQuota": {"cpu": "2"}}
    await api.create(TenancyDefaults.resource, {"metadata": {"name": "default"}, "spec": {"autoApprove": [rule]}})
    try:
        bob = await people.person("bob@uni.example")
        for tenant, cpu in ((name, "2"), (f"{name}x", "3")):
            spec = {"tenant": tenant, "quota": {"hard": {"requests.cpu": cpu}}}
            await bob.create(TenantRequest.resource, {"metadata": {"name": tenant}, "spec": spec})
        request = await said(api, TenantRequest, name, holds=True, reason=reasons.GRANTED)
        assert request.status.decided_by == "tenantry:operator"
        assert "'students'" in request.status.reason
        await said(api, TenantRequest, name, type_="Approved", holds=True, reason=reasons.DECIDED_AUTOMATICALLY)
        await said(api, TenantRequest, f"{name}x", holds=False, reason=reasons.AWAITING_DECISION)
    finally:
        await api.delete(TenancyDefaults.resource, "default")


async def test_a_suspended_tenants_grants_rest(api: Api, operator: Operator, people: People, name: str) -> None:
    """E16, E02: and are back when it goes on."""
    del operator
    await api.make_tenant(name)
    await member(api, "bob", name)
    alice, bob = await people.person("alice"), await people.person("bob")
    await ask(bob, RoleRequest, role_request("more"), name)
    await decide(alice, RoleRequest, "more", name)
    await said(api, RoleRequest, "more", name, holds=True, reason=reasons.GRANTED)
    await api.patch(Tenant.resource, name, {"spec": {"suspended": True}})
    await said(api, RoleRequest, "more", name, holds=False, reason=reasons.TENANT_SUSPENDED)
    await api.gone(RoleBinding.resource, "request-more", name)
    await api.condition(name, reasons.SUSPENDED, holds=True)
    await api.patch(Tenant.resource, name, {"spec": {"suspended": False}})
    await said(api, RoleRequest, "more", name, holds=True, reason=reasons.GRANTED)
    await until(partial(_writes, bob, name), "bob is back")


async def test_the_end_of_a_namespace_is_no_failure_of_its_grants(
    api: Api, operator: Operator, people: People, trees: Trees, name: str
) -> None:
    """E16: Kubernetes deletes the binding of a request first, and refuses to create it again."""
    await api.make_tenant(name)
    owner = {"kind": "User", "name": "bob"}
    child = await trees.make(name, "team", {"mode": "Workspace", "owners": [owner]})
    await ask(await people.person("bob"), RoleRequest, role_request("more"), child)
    await decide(api, RoleRequest, "more", child)
    await said(api, RoleRequest, "more", child, holds=True, reason=reasons.GRANTED)
    await api.delete(Subnamespace.resource, "team", name)
    await api.gone(Namespace.resource, child)
    lines = [line for line in operator.log.read_text().splitlines() if f'"key": "{child}/more"' in line]
    assert lines
    assert [line for line in lines if "being terminated" in line] == []


async def _writes(who: Api, namespace: str) -> bool:
    """Return whether a user has a right; the API server applies a changed binding a moment later."""
    try:
        await tried(who, CONFIG_MAPS, {"metadata": {"name": "theirs"}}, namespace)
    except Forbidden:
        return False
    return True


async def test_a_tenants_name_that_is_taken_is_told(api: Api, operator: Operator, people: People, name: str) -> None:
    """E16: no other tenant changes."""
    del operator
    # The operator knows it: it hears of tenants and of requests apart.
    await api.make_tenant(name)
    bob = await people.person("bob")
    await bob.create(TenantRequest.resource, {"metadata": {"name": name}, "spec": {"tenant": name}})
    await said(api, TenantRequest, name, holds=False, reason=reasons.TENANT_EXISTS)
    await decide(api, TenantRequest, name)
    await said(api, TenantRequest, name, type_="Approved", holds=True, reason=reasons.DECIDED)
    assert [owner.name for owner in (await api.ready(name)).spec.owners] == ["alice"]


@pytest.mark.usefixtures("operator")
async def test_a_tenants_name_that_is_taken_meanwhile_is_told(api: Api, people: People, name: str) -> None:
    """E16: as soon as it is taken, and as soon as it is free again."""
    bob = await people.person("bob")
    await bob.create(TenantRequest.resource, {"metadata": {"name": name}, "spec": {"tenant": name}})
    await said(api, TenantRequest, name, holds=False, reason=reasons.AWAITING_DECISION)
    await api.make_tenant(name)
    await said(api, TenantRequest, name, holds=False, reason=reasons.TENANT_EXISTS)
    await api.delete(Tenant.resource, name)
    await said(api, TenantRequest, name, holds=False, reason=reasons.AWAITING_DECISION)


# -- ends -----------------------------------------------------------------------------------------


@versions.changes_without_the_operator
async def test_a_grant_for_a_while_is_warned_of_and_ends(
    api: Api, clock: ManualClock, people: People, name: str
) -> None:
    """E16, X05: counted from the grant; the binding is gone then, the request says so."""
    await api.make_tenant(name)
    await member(api, "bob", name)
    alice, bob = await people.person("alice"), await people.person("bob")
    await ask(bob, RoleRequest, role_request("more", durationSeconds=8 * HOUR), name)
    clock.advance(2 * HOUR)
    length, before = dt.timedelta(hours=8), clock.now()
    await decide(alice, RoleRequest, "more", name)
    request = await said(api, RoleRequest, "more", name, holds=True, reason=reasons.GRANTED)
    # The clock goes on a little meanwhile.
    assert rfc3339(before + length) <= request.status.expires_at <= rfc3339(clock.now() + length)
    clock.advance(7 * HOUR + 60)

    async def warned() -> bool:
        found = await api.client.get(RoleRequest, "more", name)
        told = find(found.status.conditions, reasons.EXPIRING)
        return told is not None and "within an hour" in told.message

    await until(warned, "it is warned of")
    clock.advance(HOUR)
    await said(api, RoleRequest, "more", name, holds=False, reason=reasons.EXPIRED)
    await api.gone(RoleBinding.resource, "request-more", name)
    with pytest.raises(Forbidden, match="never changes"):
        await decide(alice, RoleRequest, "more", name, decision="Denied")


@versions.changes_without_the_operator
async def test_an_unknown_role_is_told_and_given_once_it_is_there(
    api: Api, clock: ManualClock, people: People, name: str
) -> None:
    """E16: a missing role is not bound before it exists; the operator looks for it less and less often."""
    await api.make_tenant(name)
    await member(api, "bob", name)
    bob = await people.person("bob")
    await ask(bob, RoleRequest, role_request("more", roleRef={"kind": "Role", "name": "later"}), name)
    await said(api, RoleRequest, "more", name, holds=False, reason=reasons.ROLE_NOT_FOUND)
    await decide(api, RoleRequest, "more", name)
    await said(api, RoleRequest, "more", name, type_="Approved", holds=True, reason=reasons.DECIDED)
    await api.create(ROLES, {"metadata": {"name": "later"}, "rules": []}, name)

    async def none() -> bool:
        return await api.find(RoleBinding.resource, "request-more", name) is None

    clock.advance(29)
    await stays(none, "nothing is bound")
    clock.advance(2)
    await said(api, RoleRequest, "more", name, holds=True, reason=reasons.GRANTED)


@versions.changes_without_the_operator
async def test_a_tenant_for_a_while_is_suspended_at_the_end(
    api: Api, clock: ManualClock, people: People, name: str
) -> None:
    """E16, X05: as any tenant whose lease ends; nothing is lost."""
    bob = await people.person("bob")
    spec = {"tenant": name, "durationSeconds": 2 * HOUR}
    await bob.create(TenantRequest.resource, {"metadata": {"name": name}, "spec": spec})
    await decide(api, TenantRequest, name)
    await said(api, TenantRequest, name, holds=True, reason=reasons.GRANTED)
    await api.ready(name)
    clock.advance(3 * HOUR)
    await api.condition(name, reasons.SUSPENDED, holds=True, reason=reasons.EXPIRED)
