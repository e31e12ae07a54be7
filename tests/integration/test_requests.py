"""Requests on a real API server: who may ask, who may decide, and what becomes of it."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from tenantry.api import reasons
from tenantry.api.errors import ApiError, Conflict, Forbidden, Invalid
from tenantry.api.kubernetes import ClusterRoleBinding, Namespace, RoleBinding
from tenantry.api.model import KubernetesObject
from tenantry.api.requests import ClusterRoleRequest, Decision, Request, RoleRequest, TenantRequest
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.api.tenant import Tenant
from tenantry.controllers.operator import controllers
from tenantry.engine.clock import rfc3339
from tenantry.engine.conditions import find, is_true
from tenantry.engine.events import Recorder
from tenantry.engine.metrics import Metrics
from tenantry.engine.runtime import Engine
from tenantry.kube import kubeconfig, wire
from tenantry.kube.client import Client
from tenantry.local.cluster import LocalCluster
from tenantry.testing.api import CONFIG_MAPS, ROLES, Api, stays, tenant_json, until
from tenantry.testing.clock import ManualClock
from tenantry.testing.operators import Operator
from tenantry.testing.people import as_person

pytest_plugins = ["tenantry.testing.fixtures"]

Json = dict[str, Any]

HOUR = 3600
VIEW = {"kind": "ClusterRole", "name": "view"}


class People:
    """The API server as different people see it, each with a client certificate."""

    def __init__(self, cluster: LocalCluster, folder: Path, stack: AsyncExitStack) -> None:
        self._cluster = cluster
        self._folder = folder
        self._stack = stack

    async def person(self, user: str) -> Api:
        """Return the API server as a person sees it."""
        return await self._stack.enter_async_context(as_person(self._cluster, self._folder, user))


@pytest_asyncio.fixture
async def people(tenancy: LocalCluster, tmp_path: Path) -> AsyncGenerator[People]:
    """Anybody, with a certificate."""
    async with AsyncExitStack() as stack:
        yield People(tenancy, tmp_path, stack)


async def decide(who: Api, request: type[KubernetesObject], name: str, namespace: str = "", **status: object) -> Json:
    """Write a decision as somebody."""
    patch = {"status": status or {"decision": "Approved"}}
    data = await who.client.merge_patch(request.resource, namespace, name, patch, subresource="status")
    return msgspec.json.decode(data)


async def said(
    api: Api, kind: type[Request], name: str, namespace: str = "", *, type_: str = "Ready", holds: bool, reason: str
) -> Request:
    """Wait until a condition is so, and return the request."""

    async def so() -> Request | None:
        found = await api.client.get(kind, name, namespace)
        condition = find(found.status.conditions, type_)
        right = is_true(found.status.conditions, type_) is holds
        return found if right and condition is not None and condition.reason == reason else None

    return await until(so, f"{kind.__name__} {name} has {type_}={holds} {reason}")


async def member(api: Api, user: str, namespace: str, role: str = "view") -> None:
    """Let somebody into a namespace."""
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    subject = {"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}
    value = {"metadata": {"name": f"{user}-{role}"}, "roleRef": ref, "subjects": [subject]}
    await api.create(RoleBinding.resource, value, namespace)


async def ask(who: Api, kind: type[Request], value: Json, namespace: str = "") -> Json:
    """Make a request, once whoever asks may: a new binding counts a moment after it is made."""

    async def made() -> Json | None:
        try:
            return await who.create(kind.resource, value, namespace)
        except Forbidden as error:
            if "cannot create resource" not in str(error):
                raise
            return None

    return await until(made, f"{kind.__name__} can be made")


def role_request(name: str, **spec: object) -> Json:
    """Return a request for the role edit, as in YAML."""
    return {"metadata": {"name": name}, "spec": {"roleRef": {"kind": "ClusterRole", "name": "edit"}, **spec}}


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
    """E16: it lets in, is put back when changed by hand, and ends with the request."""
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
    await bob.create(CONFIG_MAPS, {"metadata": {"name": "mine"}}, name)

    await alice.delete(RoleBinding.resource, request.status.granted, name)

    async def back() -> bool:
        return await api.find(RoleBinding.resource, request.status.granted, name) is not None

    await until(back, "the binding is put back")
    await bob.delete(RoleRequest.resource, "more", name)
    await api.gone(RoleBinding.resource, request.status.granted, name)
    with pytest.raises(Forbidden):
        await bob.create(CONFIG_MAPS, {"metadata": {"name": "another"}}, name)


async def test_a_cluster_role_is_asked_for_and_an_administrator_approves(
    api: Api, operator: Operator, people: People, name: str
) -> None:
    """E16: whoever may ask for roles of the cluster gets one for a while."""
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
        assert await bob.list(CONFIG_MAPS, "kube-system")
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


# -- who may not ----------------------------------------------------------------------------------


async def test_what_a_client_says_of_itself_is_overwritten(api: Api, people: People, name: str) -> None:
    """E16: requester and status at creation are the API server's to write."""
    bob = await people.person("bob")
    forged = {"tenant": name, "requester": {"name": "carol", "groups": ["system:masters"]}}
    value = {"metadata": {"name": name}, "spec": forged, "status": {"decision": "Approved", "decidedBy": "admin"}}
    made = await bob.create(TenantRequest.resource, value)
    assert made["spec"]["requester"] == {"name": "bob", "groups": ["system:authenticated"]}
    assert made["status"] == {"decision": "Pending"}
    with pytest.raises(Invalid, match="must not change"):
        await api.patch(TenantRequest.resource, name, {"spec": {"requester": {"name": "carol"}}})
    decided = await decide(api, TenantRequest, name, decision="Denied", decidedBy="carol")
    assert decided["status"]["decidedBy"] == "admin"


async def test_nobody_asks_where_they_are_not(api: Api, operator: Operator, people: People, name: str) -> None:
    """E16: strangers do not in a tenant's namespace, and nobody does in one that is no tenant's."""
    del operator
    await api.make_tenant(name)
    stranger = await people.person("mallory")
    with pytest.raises(Forbidden):
        await stranger.create(RoleRequest.resource, role_request("more"), name)
    with pytest.raises(Forbidden, match="no tenant's"):
        await api.create(RoleRequest.resource, role_request(name), "default")
    with pytest.raises(Forbidden):
        await stranger.list(TenantRequest.resource)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"subjects": [{"kind": "Group", "name": "system:masters"}]}, "must not begin with system:"),
        ({"subjects": [{"kind": "User", "name": "tenantry:operator"}]}, "must not begin with system:"),
        ({"subjects": [{"kind": "ServiceAccount", "name": "x"}]}, "Unsupported value"),
        ({"durationSeconds": 5}, "at least 60"),
    ],
)
async def test_wrong_requests_are_refused(api: Api, operator: Operator, name: str, spec: Json, message: str) -> None:
    """E16: with what they must be."""
    del operator
    await api.make_tenant(name)
    with pytest.raises(Invalid, match=message):
        await api.create(RoleRequest.resource, role_request("wrong", **spec), name)


# -- who may not decide ---------------------------------------------------------------------------


async def test_nobody_decides_on_what_they_asked_for(api: Api, operator: Operator, people: People, name: str) -> None:
    """E16: not even an owner, nor an administrator; nor on what they, or a group of theirs, would get."""
    del operator
    await api.make_tenant(name)
    await member(api, "bob", name)
    alice, bob = await people.person("alice"), await people.person("bob")
    await alice.create(RoleRequest.resource, role_request("own"), name)
    with pytest.raises(Forbidden, match="somebody else must decide"):
        await decide(alice, RoleRequest, "own", name)
    await ask(bob, RoleRequest, role_request("for-her", subjects=[{"kind": "User", "name": "alice"}]), name)
    with pytest.raises(Forbidden, match="you, or a group of yours, would get the role"):
        await decide(alice, RoleRequest, "for-her", name)
    await api.create(TenantRequest.resource, {"metadata": {"name": name}, "spec": {"tenant": f"{name}x"}})
    with pytest.raises(Forbidden, match="somebody else must decide"):
        await decide(api, TenantRequest, name)


async def test_nobody_gives_what_they_could_not_give_themselves(
    api: Api, operator: Operator, people: People, name: str
) -> None:
    """E16, H02: the operator is no way to more: it takes the verb bind, and approve, and for a tenant create."""
    del operator
    await api.make_tenant(name)
    await member(api, "bob", name)
    alice, bob = await people.person("alice"), await people.person("bob")
    asked = role_request("all", roleRef={"kind": "ClusterRole", "name": "cluster-admin"})
    await ask(bob, RoleRequest, asked, name)
    with pytest.raises(Forbidden, match="the verb bind"):
        await decide(alice, RoleRequest, "all", name)
    await decide(alice, RoleRequest, "all", name, decision="Denied")
    await ask(bob, RoleRequest, role_request("more"), name)
    carol = await people.person("carol")
    await member(api, "carol", name, "edit")
    with pytest.raises(Forbidden):
        await decide(carol, RoleRequest, "more", name)
    await bob.create(TenantRequest.resource, {"metadata": {"name": name}, "spec": {"tenant": f"{name}x"}})
    with pytest.raises(Forbidden):
        await decide(alice, TenantRequest, name)


async def test_a_service_account_of_ones_own_is_nobody_else(
    api: Api, operator: Operator, people: People, name: str
) -> None:
    """E16: an owner may act as the ServiceAccounts of the namespace, which are no second pair of eyes."""
    del operator
    owners = [{"kind": "User", "name": "alice"}, {"kind": "ServiceAccount", "name": "default", "namespace": name}]
    await api.make_tenant(name, owners=owners)
    alice = await people.person("alice")
    await ask(alice, RoleRequest, role_request("own"), name)
    puppet = f"system:serviceaccount:{name}:default"
    async with Client(msgspec.structs.replace(alice.client.connection, impersonate=puppet)) as client:
        with pytest.raises(Forbidden, match="a ServiceAccount decides nothing"):
            await decide(Api(client), RoleRequest, "own", name)


async def test_who_may_write_the_status_but_not_approve_decides_nothing(
    api: Api, operator: Operator, people: People, name: str
) -> None:
    """E16: and what the operator says there is nobody's to write."""
    del operator
    await api.make_tenant(name)
    await member(api, "bob", name)
    rules = [{"apiGroups": ["tenantry.dev"], "resources": ["rolerequests/status"], "verbs": ["patch"]}]
    await api.create(ROLES, {"metadata": {"name": "writes"}, "rules": rules}, name)
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "writes"}
    subject = {"kind": "User", "name": "carol", "apiGroup": "rbac.authorization.k8s.io"}
    await api.create(
        RoleBinding.resource, {"metadata": {"name": "writes"}, "roleRef": ref, "subjects": [subject]}, name
    )
    alice, bob, carol = [await people.person(user) for user in ("alice", "bob", "carol")]
    await ask(bob, RoleRequest, role_request("more"), name)
    await said(api, RoleRequest, "more", name, holds=False, reason=reasons.AWAITING_DECISION)

    async def refused() -> bool:
        with pytest.raises(Forbidden) as error:
            await decide(carol, RoleRequest, "more", name)
        return "the verb approve" in str(error.value)

    await until(refused, "carol is refused for the missing verb")
    changes: list[Json] = [{"granted": "x"}, {"expiresAt": "2036-01-01T00:00:00Z"}, {"conditions": []}]
    for wrong in changes:
        with pytest.raises(Forbidden, match="can be written by people"):
            await decide(alice, RoleRequest, "more", name, **wrong)


async def test_a_decision_is_for_ever(api: Api, operator: Operator, people: People, name: str) -> None:
    """E16: neither it, nor its reason, nor who decided changes."""
    del operator
    bob = await people.person("bob")
    await bob.create(TenantRequest.resource, {"metadata": {"name": name}, "spec": {"tenant": name}})
    await decide(api, TenantRequest, name, decision="Denied", reason="no")
    changes: list[Json] = [{"decision": "Approved"}, {"decision": "Pending"}, {"reason": "yes"}, {"decidedBy": "bob"}]
    for change in changes:
        with pytest.raises(Forbidden):
            await decide(api, TenantRequest, name, **change)
    with pytest.raises(ApiError):
        await decide(api, TenantRequest, name, decision="Perhaps")


async def test_decisions_are_checked_while_the_operator_is_stopped(
    api: Api, operator: Operator, people: People, name: str
) -> None:
    """E16, A10: the API server does it; the operator makes of it what was decided, when it is back."""
    await api.make_tenant(name)
    await member(api, "bob", name)
    await operator.stop()
    alice, bob = await people.person("alice"), await people.person("bob")
    await ask(bob, RoleRequest, role_request("more"), name)
    await alice.create(RoleRequest.resource, role_request("own"), name)
    with pytest.raises(Forbidden, match="somebody else must decide"):
        await decide(alice, RoleRequest, "own", name)
    await decide(alice, RoleRequest, "more", name)
    await operator.start()
    await said(api, RoleRequest, "more", name, holds=True, reason=reasons.GRANTED)


async def test_the_operator_itself_decides_nothing(
    api: Api, operator: Operator, tenancy: LocalCluster, people: People, name: str
) -> None:
    """E16: not on roles, and on tenants only what TenancyDefaults says."""
    del operator
    await api.make_tenant(name)
    await member(api, "bob", name)
    bob = await people.person("bob")
    await ask(bob, RoleRequest, role_request("more"), name)
    await bob.create(TenantRequest.resource, {"metadata": {"name": name}, "spec": {"tenant": f"{name}x"}})
    await api.create(TenancyDefaults.resource, {"metadata": {"name": "default"}, "spec": {}})
    try:
        async with Client(kubeconfig.load([tenancy.paths.kubeconfig("operator")])) as client:
            for kind, namespace, asked in ((RoleRequest, name, "more"), (TenantRequest, "", name)):
                await until(partial(_refused, client, kind, asked, namespace), f"it is refused for {kind.__name__}")
    finally:
        await api.delete(TenancyDefaults.resource, "default")


async def _refused(client: Client, kind: type[Request], name: str, namespace: str) -> bool:
    """Tell whether approving a request, as it is now, would be refused because of who does it."""
    found = await client.get(kind, name, namespace)
    status = msgspec.structs.replace(found.status, decision=Decision.APPROVED)
    body = wire.encode(msgspec.structs.replace(found, status=status))
    try:
        await client.request(
            "PUT", wire.path(kind.resource, namespace, name, "status"), query={"dryRun": "All"}, body=body
        )
    except Forbidden as error:
        return "the operator" in str(error)
    except Conflict:
        return False
    return False  # the policy has not heard of its parameters yet


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


async def test_an_unknown_role_is_told_and_given_once_it_is_there(
    api: Api, operator: Operator, people: People, name: str
) -> None:
    """E16: nothing is bound to a role that somebody may make later, until it is there."""
    await api.make_tenant(name)
    await member(api, "bob", name)
    bob = await people.person("bob")
    await ask(bob, RoleRequest, role_request("more", roleRef={"kind": "Role", "name": "later"}), name)
    await said(api, RoleRequest, "more", name, holds=False, reason=reasons.ROLE_NOT_FOUND)
    await decide(api, RoleRequest, "more", name)
    await said(api, RoleRequest, "more", name, type_="Approved", holds=True, reason=reasons.DECIDED)
    assert await api.find(RoleBinding.resource, "request-more", name) is None
    await api.create(ROLES, {"metadata": {"name": "later"}, "rules": []}, name)
    await operator.stop()  # it would look again after half a minute
    await operator.start()
    await said(api, RoleRequest, "more", name, holds=True, reason=reasons.GRANTED)


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
    await until(lambda: _sees(bob, name), "bob is back")


async def _sees(who: Api, namespace: str) -> bool:
    try:
        await who.create(CONFIG_MAPS, {"metadata": {"name": "back"}}, namespace)
    except Forbidden:
        return False
    return True


async def test_a_tenants_name_that_is_taken_is_told(api: Api, operator: Operator, people: People, name: str) -> None:
    """E16: nobody else's tenant is touched."""
    del operator
    await api.create(Tenant.resource, tenant_json(name))
    bob = await people.person("bob")
    await bob.create(TenantRequest.resource, {"metadata": {"name": name}, "spec": {"tenant": name}})
    await said(api, TenantRequest, name, holds=False, reason=reasons.TENANT_EXISTS)
    await decide(api, TenantRequest, name)
    await said(api, TenantRequest, name, type_="Approved", holds=True, reason=reasons.DECIDED)
    assert [owner.name for owner in (await api.ready(name)).spec.owners] == ["alice"]


# -- ends -----------------------------------------------------------------------------------------


@pytest_asyncio.fixture
async def clock(tenancy: LocalCluster, the_operator: Operator) -> AsyncGenerator[ManualClock]:
    """The clock of the only engine that runs."""
    await the_operator.stop()
    turned = ManualClock(dt.datetime.now(dt.UTC))
    connection = kubeconfig.load([tenancy.paths.kubeconfig("operator")])
    async with Client(connection, field_manager="tenantry-operator") as client:
        uid = (await client.get(Namespace, "kube-system")).metadata.uid
        recorder = Recorder(client, turned, "test")
        engine = Engine(client, controllers(uid), clock=turned, metrics=Metrics(), recorder=recorder)
        running = asyncio.create_task(engine.run())
        yield turned
        engine.stop()
        await running


async def test_a_grant_for_a_while_is_warned_of_and_ends(
    api: Api, clock: ManualClock, people: People, name: str
) -> None:
    """E16, X05: counted from the grant; the binding is gone then, the request says so."""
    await api.make_tenant(name)
    await member(api, "bob", name)
    alice, bob = await people.person("alice"), await people.person("bob")
    await ask(bob, RoleRequest, role_request("more", durationSeconds=8 * HOUR), name)
    clock.advance(2 * HOUR)
    await decide(alice, RoleRequest, "more", name)
    request = await said(api, RoleRequest, "more", name, holds=True, reason=reasons.GRANTED)
    end = clock.now() + dt.timedelta(hours=8)
    assert request.status.expires_at == rfc3339(end)
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
