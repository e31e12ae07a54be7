"""Who may ask and who may decide, on a real API server: what it refuses, also while the operator is stopped."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import pytest

from tenantry.api import reasons
from tenantry.api.errors import AlreadyExists, ApiError, Conflict, Forbidden, Invalid
from tenantry.api.kubernetes import RBAC_GROUP, ClusterRole, ClusterRoleBinding, RoleBinding
from tenantry.api.marks import SYSTEM_NAMESPACE
from tenantry.api.policyparameters import PolicyParameters, texts_of
from tenantry.api.requests import APPROVALS, Decision, Request, RoleRequest, TenantRequest
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.api.tenant import Tenant
from tenantry.controllers.requesters.desired import role_name
from tenantry.kube import kubeconfig, wire
from tenantry.kube.client import Client
from tenantry.local.cluster import LocalCluster
from testkit import attempts, versions
from testkit.api import ROLES, Api, until
from testkit.operators import Operator
from testkit.requests import People, ask, decide, member, role_request, said
from testkit.trees import Trees, subtenant

pytest_plugins = ["testkit.fixtures"]

Json = dict[str, Any]


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


async def test_a_stranger_cannot_send_requests_in_a_namespace(
    api: Api, operator: Operator, people: People, name: str
) -> None:
    """E16: strangers cannot in a tenant's namespace, and no user can in a namespace without a tenant."""
    del operator
    await api.make_tenant(name)
    stranger = await people.person("mallory")
    with pytest.raises(Forbidden):
        await stranger.create(RoleRequest.resource, role_request("more"), name)
    with pytest.raises(Forbidden, match="does not belong to a tenant"):
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


@versions.changes_without_the_operator
async def test_a_request_cannot_be_held_by_a_finalizer(api: Api, operator: Operator, people: People, name: str) -> None:
    """E16: it would outlast the limit of pending ones, and a grant its withdrawal while the operator is stopped."""
    await attempts.make_careless(api, name, f"alice-{name}")
    alice, bob = await people.person(f"alice-{name}"), await people.person("bob")
    await ask(alice, RoleRequest, role_request("free"), name)
    await operator.stop()
    held = {"finalizers": ["a.example/b"]}
    told = "metadata.finalizers of a request must not be set"
    tenants, roles = TenantRequest.resource, RoleRequest.resource
    with pytest.raises(Forbidden, match=told):
        await bob.create(tenants, {"metadata": {"name": name, **held}, "spec": {"tenant": name}})
    with pytest.raises(Forbidden, match=told):
        await alice.create(roles, {**role_request("held"), "metadata": {"name": "held", **held}}, name)
    with pytest.raises(Forbidden, match=told):
        await alice.patch(roles, "free", {"metadata": held}, name)
    await alice.patch(roles, "free", {"metadata": {"labels": {"a": "b"}}}, name)
    await api.patch(roles, "free", {"metadata": held}, name)
    await alice.patch(roles, "free", {"metadata": {"finalizers": None}}, name)
    await alice.delete(roles, "free", name)
    await api.gone(roles, "free", name)


@versions.changes_without_the_operator
async def test_a_request_for_a_tenant_is_read_by_its_requester_alone(
    api: Api, operator: Operator, people: People, name: str
) -> None:
    """E16: another user does not read it by its name, nor its requester a later request of that name."""
    bob, carol = await people.person(f"bob-{name}"), await people.person(f"carol-{name}")
    wanted = {"metadata": {"name": name}, "spec": {"tenant": name, "justification": "private"}}
    await bob.create(TenantRequest.resource, wanted)

    async def reads(who: Api, request: str) -> bool:
        try:
            await who.get(TenantRequest.resource, request)
        except Forbidden:
            return False
        return True

    await until(partial(reads, bob, name), "bob reads the own request")
    assert not await reads(carol, name)
    only = {"fieldSelector": f"metadata.name={name}"}
    with pytest.raises(Forbidden):
        await carol.client.list(TenantRequest, selectors=only)
    assert [each.metadata.name for each in await bob.client.list(TenantRequest, selectors=only)] == [name]

    await operator.stop()
    await bob.delete(TenantRequest.resource, name)
    with pytest.raises(AlreadyExists):
        await carol.create(TenantRequest.resource, wanted)  # the name is free once bob's right to it has ended
    await operator.start()
    await operator.leads()
    await api.gone(TenantRequest.resource, name)
    roles = [each["metadata"]["name"] for each in await api.list(ClusterRole.resource)]
    assert role_name(f"bob-{name}") not in roles
    await carol.create(TenantRequest.resource, wanted)
    await until(partial(reads, carol, name), "carol reads the own request")
    assert not await reads(bob, name)


async def test_who_asked_for_a_tenant_withdraws_it(api: Api, people: People, name: str) -> None:
    """E16: as the refusal of the own decision suggests; only approvers and requesters can."""
    bob, carol = await people.person("bob"), await people.person("carol")
    await bob.create(TenantRequest.resource, {"metadata": {"name": name}, "spec": {"tenant": name}})
    with pytest.raises(Forbidden, match="only the requester"):
        await carol.delete(TenantRequest.resource, name)
    await bob.delete(TenantRequest.resource, name)
    await api.gone(TenantRequest.resource, name)


# -- who may not decide ---------------------------------------------------------------------------


async def test_a_requester_cannot_decide_the_own_request(
    api: Api, operator: Operator, people: People, name: str
) -> None:
    """E16: not even an owner, nor an administrator; nor on what they, or a group of theirs, would get."""
    del operator
    await api.make_tenant(name)
    await member(api, "bob", name)
    alice, bob = await people.person("alice"), await people.person("bob")
    await alice.create(RoleRequest.resource, role_request("own"), name)
    with pytest.raises(Forbidden, match="another user must decide"):
        await decide(alice, RoleRequest, "own", name)
    await ask(bob, RoleRequest, role_request("for-her", subjects=[{"kind": "User", "name": "alice"}]), name)
    with pytest.raises(Forbidden, match="you, or a group of yours, would get the role"):
        await decide(alice, RoleRequest, "for-her", name)
    await api.create(TenantRequest.resource, {"metadata": {"name": name}, "spec": {"tenant": f"{name}x"}})
    with pytest.raises(Forbidden, match="another user must decide"):
        await decide(api, TenantRequest, name)


async def test_a_customers_requests_are_the_customers(api: Api, operator: Operator, people: People, name: str) -> None:
    """E16, E05: the owner of the Subtenant decides there; its parent's owner neither sees nor decides them."""
    del operator
    await api.make_tenant(name)
    namespace = await Trees(api).make(name, "shop", subtenant("carol"))
    await member(api, "bob", namespace)
    alice, bob, carol = [await people.person(user) for user in ("alice", "bob", "carol")]
    await ask(bob, RoleRequest, role_request("more"), namespace)
    with pytest.raises(Forbidden):
        await alice.list(RoleRequest.resource, namespace)
    with pytest.raises(Forbidden):
        await decide(alice, RoleRequest, "more", namespace)
    await decide(carol, RoleRequest, "more", namespace)
    await said(api, RoleRequest, "more", namespace, holds=True, reason=reasons.GRANTED)
    await api.patch(Tenant.resource, name, {"spec": {"suspended": True}})
    await said(api, RoleRequest, "more", namespace, holds=False, reason=reasons.TENANT_SUSPENDED)


async def test_an_approver_cannot_grant_more_than_direct_rights(
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


async def test_an_own_service_account_is_not_a_second_person(
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


async def test_a_program_approves_no_tenant_that_it_would_own(api: Api, people: People, name: str) -> None:
    """E16: as people do not; another one is its to approve."""
    bob = await people.person("bob")
    for suffix in ("own", "other"):
        owner = {"kind": "ServiceAccount", "namespace": name, "name": suffix}
        spec = {"tenant": f"{name}-{suffix}", "owners": [owner]}
        await bob.create(TenantRequest.resource, {"metadata": {"name": f"{name}-{suffix}"}, "spec": spec})
    subject = {"kind": "ServiceAccount", "namespace": name, "name": "own"}
    ref = {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": "tenantry-admin"}
    await api.create(ClusterRoleBinding.resource, {"metadata": {"name": name}, "roleRef": ref, "subjects": [subject]})
    program = f"system:serviceaccount:{name}:own"
    may = partial(api.may, subject, "approve", "tenantry.dev", "tenantrequests")
    try:
        await until(may, "the API server knows the binding")
        async with Client(msgspec.structs.replace(api.client.connection, impersonate=program)) as client:
            with pytest.raises(Forbidden, match="you would own the tenant"):
                await decide(Api(client), TenantRequest, f"{name}-own")
            decided = await decide(Api(client), TenantRequest, f"{name}-other")
    finally:
        await api.delete(ClusterRoleBinding.resource, name)
    assert decided["status"]["decidedBy"] == program


async def test_who_may_write_the_status_but_not_approve_decides_nothing(
    api: Api, operator: Operator, people: People, name: str
) -> None:
    """E16: and only the operator writes its fields there."""
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
        with pytest.raises(Forbidden, match="users may only write"):
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


@versions.changes_without_the_operator
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
    with pytest.raises(Forbidden, match="another user must decide"):
        await decide(alice, RoleRequest, "own", name)
    await decide(alice, RoleRequest, "more", name)
    await operator.start()
    await said(api, RoleRequest, "more", name, holds=True, reason=reasons.GRANTED)


@pytest.mark.parametrize("domain", ["", "@uni.example", "bob@uni.example"])
async def test_a_domain_that_no_address_has_is_refused(api: Api, domain: str) -> None:
    """E16: with an @ it would never fit; an empty one fits a name that ends with an @."""
    rule = {"name": "wrong", "domains": ["uni.example", domain]}
    with pytest.raises(Invalid, match="must be mail domains without the @"):
        await api.create(TenancyDefaults.resource, {"metadata": {"name": "default"}, "spec": {"autoApprove": [rule]}})


async def test_the_operator_itself_decides_nothing(
    api: Api, operator: Operator, tenancy: LocalCluster, people: People, name: str
) -> None:
    """E16: not on roles, and on tenants only what TenancyDefaults says; where there are none, on nothing."""
    del operator
    assert await api.find(TenancyDefaults.resource, "default") is None
    await api.make_tenant(name)
    await member(api, "bob", name)
    bob = await people.person("bob")
    await ask(bob, RoleRequest, role_request("more"), name)
    await bob.create(TenantRequest.resource, {"metadata": {"name": name}, "spec": {"tenant": f"{name}x"}})
    async with Client(kubeconfig.load([tenancy.paths.kubeconfig("operator")])) as client:
        for kind, namespace, asked in ((RoleRequest, name, "more"), (TenantRequest, "", name)):
            await until(partial(_refused, client, kind, asked, namespace), f"it is refused for {kind.__name__}")
        rule = {"name": "students", "domains": ["uni.example"]}
        await api.create(TenancyDefaults.resource, {"metadata": {"name": "default"}, "spec": {"autoApprove": [rule]}})
        try:

            async def told() -> bool:
                # An operator that has only begun has written nothing into what the installation made.
                found = await api.get(PolicyParameters.resource, APPROVALS, SYSTEM_NAMESPACE)
                listed = texts_of(found["metadata"].get("annotations"))
                return "students" in listed.get("reasons", "")

            await until(told, "the policy may know of the rule")
            await until(partial(_refused, client, TenantRequest, name, ""), "it names no rule")
            other = "TenancyDefaults spec.autoApprove 'staff'"
            await until(partial(_refused, client, TenantRequest, name, "", other), "there is no such rule")
        finally:
            await api.delete(TenancyDefaults.resource, "default")


@versions.changes_without_the_operator
async def test_nothing_is_decided_while_what_may_be_automatic_is_gone(
    api: Api, operator: Operator, people: People, name: str
) -> None:
    """E16: it fails closed, and the operator puts it back."""
    bob = await people.person("bob")
    await bob.create(TenantRequest.resource, {"metadata": {"name": name}, "spec": {"tenant": name}})
    await operator.stop()
    await api.delete(PolicyParameters.resource, APPROVALS, SYSTEM_NAMESPACE)

    path = wire.path(TenantRequest.resource, "", name, "status")
    denies = msgspec.json.encode({"status": {"decision": "Denied"}})

    async def decided(*, refused: bool) -> bool:
        try:
            await api.client.request(
                "PATCH", path, query={"dryRun": "All"}, body=denies, content_type="application/merge-patch+json"
            )
        except Invalid as error:
            if f"'{APPROVALS}' denied request: failed to configure binding" not in str(error):
                raise
            return refused
        return not refused

    await until(partial(decided, refused=True), "the policy has seen that it is gone")
    await operator.start()
    await until(partial(decided, refused=False), "it is back")


async def _refused(client: Client, kind: type[Request], name: str, namespace: str, reason: str = "") -> bool:
    """Tell whether approving a request, as it is now, would be refused because of who does it."""
    found = await client.get(kind, name, namespace)
    status = msgspec.structs.replace(found.status, decision=Decision.APPROVED, reason=reason)
    body = wire.encode(msgspec.structs.replace(found, status=status))
    try:
        await client.request(
            "PUT", wire.path(kind.resource, namespace, name, "status"), query={"dryRun": "All"}, body=body
        )
    except Forbidden as error:
        return "the operator" in str(error)
    except Conflict:
        return False
    pytest.fail("the operator may approve it")
