"""The self-test of isolation, on a namespace that Tenantry guards and on one that it does not manage."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from tenantry.api import marks, reasons
from tenantry.api.errors import Forbidden, InputError
from tenantry.api.isolationreport import LATEST, IsolationReport
from tenantry.api.kubernetes import RBAC_GROUP, Namespace, ResourceQuota, RoleBinding
from tenantry.api.tenant import Tenant
from tenantry.audit import kinds, report, runner
from tenantry.audit.attempts import create, pod
from tenantry.audit.catalog import CHECKS
from tenantry.audit.check import CheckResult, Verdict, WithoutTenantry
from tenantry.audit.checks import network
from tenantry.audit.context import AuditContext, AuditNode
from tenantry.audit.gather import MAX_OTHERS, gather
from tenantry.audit.probe import run as probing
from tenantry.audit.probe.objects import ProbeImage
from tenantry.audit.verdict import AttemptOutcome, Audit
from tenantry.kube.client import Client
from tenantry.local.cluster import LocalCluster
from testkit.api import Api, tenant_json, until
from testkit.operators import Operator
from testkit.people import as_person
from testkit.requests import granted
from testkit.trees import Trees

pytest_plugins = ["testkit.fixtures"]

Json = dict[str, Any]

IMAGE = "registry.example.com/pause:1"
QUOTA = {
    "requests.cpu": "4",
    "limits.cpu": "8",
    "requests.memory": "8Gi",
    "limits.memory": "8Gi",
    "requests.ephemeral-storage": "10Gi",
    "requests.storage": "10Gi",
    "pods": "20",
    "persistentvolumeclaims": "10",
    "count/services": "10",
    "count/secrets": "50",
    "count/configmaps": "50",
}
NOT_YET = {"TNT-NET-011", "TNT-NET-012"}
"""What no rule refuses yet: hosts."""

PROBES = tuple(check for check in CHECKS if check.probe is not None)


def owner_of(tenant: str) -> str:
    """Return the owner of a test's tenant: what other tests gave to theirs, an audit would find."""
    return f"{tenant}-alice"


@pytest_asyncio.fixture
async def alice(tenancy: LocalCluster, tmp_path: Path, name: str) -> AsyncGenerator[Api]:
    """The owner, with a certificate of her own."""
    async with as_person(tenancy, tmp_path, owner_of(name)) as person:
        yield person


async def make_tenant(api: Api, name: str, **spec: object) -> None:
    """Make a tenant of alice's, and wait until it is ready."""
    await api.make_tenant(name, owners=[{"kind": "User", "name": owner_of(name)}], **spec)


@pytest_asyncio.fixture
async def fast(api: Api, operator: Operator, name: str) -> AsyncGenerator[str]:
    """A StorageClass, beside one that retains volumes, and another tenant with an Ingress."""
    assert operator.is_running
    rival, classes = f"{name}-rival", {f"{name}-fast": "Delete", f"{name}-kept": "Retain"}
    await api.make_tenant(rival, owners=[{"kind": "User", "name": "rita"}])
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    rule = {"host": f"{rival}.example", "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}
    await api.create(kinds.INGRESSES, {"metadata": {"name": "web"}, "spec": {"rules": [rule]}}, rival)
    for each, policy in classes.items():
        value = {"metadata": {"name": each}, "provisioner": "example.com/none", "reclaimPolicy": policy}
        await api.create(kinds.STORAGE_CLASSES, value)
    yield f"{name}-fast"
    for each in classes:
        await api.delete(kinds.STORAGE_CLASSES, each)


def guarded(fast: str) -> Json:
    """Return the spec of a tenant with every rule, whose volumes are of one class."""
    return {
        "quota": {"hard": QUOTA},
        "rules": {
            "podSecurity": {"level": "Restricted"},
            "images": {"allowed": ["registry[.]example[.]com/.*"], "pullPolicies": ["Always"]},
            "priorityClasses": {"allowed": []},
            "scheduling": {"nodeName": "Refuse", "nodeSelectors": [], "tolerations": []},
            "storageClasses": {"allowed": [fast], "default": fast, "reclaimPolicies": ["Delete"]},
            "hostnames": {"allowed": ["acme[.]example"]},
        },
    }


async def make_plain(api: Api, namespace: str, user: str) -> None:
    """Make a namespace that Tenantry does not manage, whose user is bound to admin."""
    await api.create(Namespace.resource, {"metadata": {"name": namespace}})
    binding = {
        "metadata": {"name": "admin"},
        "roleRef": {"kind": "ClusterRole", "name": "admin", "apiGroup": RBAC_GROUP},
        "subjects": [{"kind": "User", "name": user, "apiGroup": RBAC_GROUP}],
    }
    await api.create(RoleBinding.resource, binding, namespace)
    await takes_pods(api, namespace, user)


async def takes_pods(api: Api, namespace: str, user: str) -> None:
    """Wait until a user's valid pod is accepted: the API server reads bindings and quotas a moment later."""
    seen = AuditContext(namespace=namespace, user=user, tenant="", suffix="early", image=IMAGE)
    async with Client(msgspec.structs.replace(api.client.connection, impersonate=user)) as person:
        await until(lambda: is_taken(person, seen), f"{user} may make pods in {namespace}")


async def is_taken(person: Client, seen: AuditContext) -> bool:
    """Tell whether an honest pod is taken."""
    honest = create(kinds.PODS, pod(seen), seen.namespace)
    return (await runner.attempted(person, honest)).outcome == AttemptOutcome.THROUGH


async def audited(api: Api, person: Client, namespace: str, tenant: str = "") -> Audit:
    """Audit a namespace with a person's credentials; an administrator looks around."""
    user, groups = await runner.require(person)
    place = await gather(api.client, namespace=namespace, user=user, groups=groups, tenant=tenant, image=IMAGE)
    return await runner.audit(person, place, CHECKS)


async def impersonating(api: Api, namespace: str, user: str, tenant: str = "") -> Audit:
    """Audit a namespace as an administrator does: as another user."""
    async with Client(msgspec.structs.replace(api.client.connection, impersonate=user)) as person:
        return await audited(api, person, namespace, tenant)


async def in_force(person: Api, namespace: str) -> None:
    """Wait until the API server keeps all rules: it takes up policies some seconds after they are installed.

    It refuses everything where it does not know what the rules of a namespace are, or how much of its quota is used.
    """
    seen = AuditContext(namespace=namespace, user=owner_of(namespace), tenant=namespace, suffix="early", image=IMAGE)
    marked = {"metadata": {"name": seen.name, "labels": {marks.INHERITED_FROM: "x"}}}
    attempts = (
        create(kinds.PODS, pod(seen, {"hostPID": True}), namespace),
        create(kinds.CONFIG_MAPS, marked, namespace),
        network.policy(seen, "", ingress=[{"from": [{"namespaceSelector": network.ALL}]}]),
        network.service(seen, "", type="NodePort"),
    )

    async def so() -> bool:
        closed = all(
            [(await runner.attempted(person.client, each)).outcome == AttemptOutcome.REFUSED for each in attempts]
        )
        return closed and await is_taken(person.client, seen)

    await until(so, "the policies are in force")


def verdicts(audit: Audit) -> dict[str, Verdict]:
    """Return the verdict of each check."""
    return {each.id: each.verdict for each in audit.checks}


def told(results: list[CheckResult]) -> str:
    """Return what went wrong, for the message of an assertion."""
    return "\n".join(f"{each.id} {each.verdict}: {each.message}" for each in results)


def of(audit: Audit, check: str) -> CheckResult:
    """Return the result of a check."""
    return next(each for each in audit.checks if each.id == check)


async def test_what_fails_on_a_plain_namespace_passes_on_a_guarded_tenant(
    api: Api, alice: Api, operator: Operator, name: str, fast: str
) -> None:
    """X06, H06: check by check; and it holds when the operator is down."""
    await make_tenant(api, name, **guarded(fast))
    plain_name = f"{name}-plain"
    await make_plain(api, plain_name, f"{name}-mallory")
    await granted(alice, api, "more", name)
    ref = {"kind": "ClusterRole", "name": "view", "apiGroup": RBAC_GROUP}
    mine = {"name": "mine", "labels": {marks.MANAGED_BY: marks.MANAGER}}  # it says so, but is hers to change
    await alice.create(RoleBinding.resource, {"metadata": mine, "roleRef": ref}, name)
    await in_force(alice, name)
    await operator.stop()
    safe = await audited(api, alice.client, name, name)
    plain = await impersonating(api, plain_name, f"{name}-mallory")

    found, alone = verdicts(plain), {check.id: check.alone for check in CHECKS}
    # No cluster of these tests has a sandbox, or nodes that run the probes' pods.
    untried = {"TNT-POD-023", *(check.id for check in PROBES)}
    wrong = [
        each
        for each in plain.checks
        if each.id not in untried
        and (
            (alone[each.id] is WithoutTenantry.OPEN and each.verdict is not Verdict.FAILED)
            or (alone[each.id] is WithoutTenantry.REFUSED and each.verdict is not Verdict.PASSED)
        )
    ]
    assert not wrong, f"on the plain namespace:\n{told(wrong)}"
    is_open = {check for check, verdict in found.items() if verdict is Verdict.FAILED}
    assert len(is_open) >= 40
    bad = [each for each in safe.checks if each.id in is_open - NOT_YET and each.verdict is not Verdict.PASSED]
    assert not bad, f"on the guarded tenant:\n{told(bad)}"
    worse = [each for each in safe.checks if each.verdict in {Verdict.FAILED, Verdict.ERROR} and each.id not in NOT_YET]
    assert not worse, told(worse)
    assert plain.score < 60
    assert safe.score > 80


@pytest.mark.usefixtures("operator")
async def test_it_makes_and_changes_nothing(api: Api, name: str) -> None:
    """X06: not even where everything goes through."""
    await make_plain(api, name, f"{name}-mallory")
    await api.create(ResourceQuota.resource, {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "9"}}}, name)

    async def counted() -> bool:
        return bool((await api.get(ResourceQuota.resource, "q", name)).get("status", {}).get("used"))

    await until(counted, "Kubernetes has counted the quota")
    await takes_pods(api, name, f"{name}-mallory")
    some = (kinds.PODS, kinds.SERVICES, kinds.CONFIG_MAPS, kinds.SECRETS, kinds.CLAIMS, kinds.INGRESSES)
    some = (*some, kinds.ROLES, RoleBinding.resource, kinds.ENDPOINT_SLICES)

    async def all_of_them() -> list[list[Json]]:
        return [await api.list(resource, name) for resource in some]

    # Kubernetes makes one in each namespace, a moment after it.
    await until(lambda: api.find(kinds.CONFIG_MAPS, "kube-root-ca.crt", name), "Kubernetes' own ConfigMap is there")
    before = await all_of_them()
    audit = await impersonating(api, name, f"{name}-mallory")
    assert audit.summary.failed > 30
    assert await all_of_them() == before
    assert (await api.get(ResourceQuota.resource, "q", name))["spec"] == {"hard": {"pods": "9"}}


async def test_the_refusals_of_a_user_without_rights_prove_nothing(api: Api) -> None:
    """X06: RBAC refuses every attempt of a stranger, which must not look like isolation."""
    place = await gather(api.client, namespace="default", user="stranger", tenant="", image=IMAGE)
    async with Client(msgspec.structs.replace(api.client.connection, impersonate="stranger")) as person:
        audit = await runner.audit(person, place, CHECKS)
    assert (audit.score, audit.summary.passed) == (0, 0)
    (secrets,) = (each for each in audit.checks if each.id == "TNT-API-001")
    assert secrets.verdict is Verdict.SKIPPED
    assert "RBAC lets 'stranger' neither read nor create pods in 'default'" in secrets.message


async def test_it_is_never_made_as_an_administrator(api: Api) -> None:
    """X06: neither with an administrator's own credentials, nor as an impersonated one, nor as another user."""
    with pytest.raises(InputError, match="is an administrator, who may do everything"):
        await runner.require(api.client)
    as_master = msgspec.structs.replace(
        api.client.connection, impersonate="root", impersonate_groups=("system:masters",)
    )
    async with Client(as_master) as person:
        await runner.require(person, "root")
        place = await gather(api.client, namespace="default", user="root", tenant="", image=IMAGE)
        audit = await runner.audit(person, place, CHECKS)
    assert [each.id for each in audit.checks if each.verdict is Verdict.FAILED] == ["TNT-API-000"]
    assert (audit.score, audit.summary.skipped) == (0, len(CHECKS) - 1)
    assert not any(each.attempts for each in audit.checks[1:])
    async with Client(msgspec.structs.replace(api.client.connection, impersonate="bob")) as person:
        with pytest.raises(InputError, match="would be made as 'bob', not as 'alice'"):
            await runner.require(person, "alice")
        assert (await runner.require(person, "bob"))[0] == "bob"


@pytest.mark.usefixtures("operator")
async def test_it_finds_what_an_administrator_gave_by_mistake(api: Api, alice: Api, name: str) -> None:
    """X06: a ClusterRoleBinding to view shows as what it opens."""
    await make_tenant(api, name)
    carol = f"{name}-carol"
    careless: Json = {
        "metadata": {"name": carol},
        "roleRef": {"kind": "ClusterRole", "name": "view", "apiGroup": RBAC_GROUP},
        "subjects": [{"kind": "User", "name": carol, "apiGroup": RBAC_GROUP}],
    }
    await api.create(kinds.CLUSTER_ROLE_BINDINGS, careless)

    async def known() -> bool:
        return await api.may(careless["subjects"][0], "list", "", "pods")

    try:
        await until(known, "the API server knows of the binding")
        found = verdicts(await impersonating(api, name, carol, name))
    finally:
        await api.delete(kinds.CLUSTER_ROLE_BINDINGS, carol)
    opened = {"TNT-API-002", "TNT-API-003", "TNT-API-005", "TNT-API-006", "TNT-API-008"}
    assert {check for check, verdict in found.items() if verdict is Verdict.FAILED} >= opened
    assert found["TNT-API-001"] is Verdict.PASSED  # view does not read Secrets
    clean = verdicts(await audited(api, alice.client, name, name))
    assert {clean[check] for check in opened} == {Verdict.PASSED}


@pytest.mark.usefixtures("operator")
async def test_it_finds_what_another_tenant_gave(api: Api, name: str) -> None:
    """X06: a RoleBinding anywhere in the cluster, be there many namespaces; an owner's own other tenant is none."""
    carol, other = f"{name}-carol", f"{name}-other"
    await api.make_tenant(name, owners=[{"kind": "User", "name": carol}])
    await api.make_tenant(other, owners=[{"kind": "User", "name": carol}])
    for number in range(MAX_OTHERS + 1):
        await api.create(Namespace.resource, {"metadata": {"name": f"{name}-{number}"}})
    last = f"{name}-{MAX_OTHERS}"
    binding: Json = {
        "metadata": {"name": "friends"},
        "roleRef": {"kind": "ClusterRole", "name": "view", "apiGroup": RBAC_GROUP},
        "subjects": [{"kind": "User", "name": carol, "apiGroup": RBAC_GROUP}],
    }
    await api.create(RoleBinding.resource, binding, last)

    async def known() -> bool:
        return await api.may(binding["subjects"][0], "list", "", "pods", last)

    await until(known, "the API server knows of the binding")
    result = of(await impersonating(api, name, carol, name), "TNT-API-002")
    assert {attempt.what for attempt in result.attempts if attempt.outcome == AttemptOutcome.THROUGH} >= {
        f"list pods in {last!r}",
        f"list configmaps in {last!r}",
    }
    assert other not in str(result.attempts)


@pytest.mark.usefixtures("operator")
async def test_a_refusal_for_another_reason_is_no_pass(api: Api, alice: Api, name: str) -> None:
    """X06: where an honest pod is refused as well, nothing is known of the others."""
    spec: Json = {"owners": [{"kind": "User", "name": owner_of(name)}], "quota": {"hard": {"pods": "0"}}}
    await api.create(Tenant.resource, tenant_json(name, **spec))
    await api.condition(name, reasons.READY, holds=False, reason=reasons.NO_POD_FITS)
    await api.open(name)
    seen = AuditContext(namespace=name, user=owner_of(name), tenant=name, suffix="early", image=IMAGE)

    async def counted() -> bool:
        return "exceeded quota" in (await runner.attempted(alice.client, create(kinds.PODS, pod(seen), name))).message

    await until(counted, "the quota counts")
    audit = await audited(api, alice.client, name, name)
    result = of(audit, "TNT-POD-001")
    assert result.verdict is Verdict.SKIPPED
    assert "a legitimate request is refused, too" in result.message
    assert "exceeded quota" in result.message


@pytest.mark.usefixtures("operator")
async def test_the_report_is_read_by_owners_and_written_by_administrators(api: Api, alice: Api, name: str) -> None:
    """X06: with score, counts and what failed; the next one takes its place."""
    await make_tenant(api, name)
    audit = await audited(api, alice.client, name, name)
    await report.write(api.client, audit)
    found = await alice.get(IsolationReport.resource, LATEST, name)
    assert (found["spec"]["user"], found["status"]["score"]) == (owner_of(name), audit.score)
    assert found["status"]["summary"]["failed"] == audit.summary.failed == len(found["status"]["failed"])
    with pytest.raises(Forbidden):
        await alice.patch(IsolationReport.resource, LATEST, {"spec": {"user": "forged"}}, name)
    clean = msgspec.structs.replace(audit, checks=(), score=100)
    await report.write(api.client, clean)
    found = await alice.get(IsolationReport.resource, LATEST, name)
    assert (found["status"]["score"], found["status"].get("failed", [])) == (100, [])


@pytest.mark.usefixtures("operator")
async def test_a_tenant_of_which_nothing_is_said_is_guarded(api: Api, alice: Api, name: str) -> None:
    """X02, X06: pod security is Baseline, the network closed, and nodes are the scheduler's."""
    await make_tenant(api, name)
    await in_force(alice, name)
    audit = await audited(api, alice.client, name, name)
    standard = [f"TNT-POD-{number:03}" for number in range(1, 15)] + ["TNT-NODE-004", "TNT-NODE-008"]
    standard += [f"TNT-NET-{number:03}" for number in (1, 2, 3, 4)]
    wrong = [each for each in audit.checks if each.id in standard and each.verdict is not Verdict.PASSED]
    assert not wrong, told(wrong)


@pytest.mark.usefixtures("operator")
async def test_parents_and_subtenants_are_foreign_to_each_other(api: Api, alice: Api, trees: Trees, name: str) -> None:
    """E05, X06: a workspace is at home, a Subtenant is another tenant."""
    await make_tenant(api, name)
    bob = f"{name}-bob"
    work = await trees.make(name, "work")
    apart = await trees.make(name, "apart", {"mode": "Subtenant", "owners": [{"kind": "User", "name": bob}]})
    above = await audited(api, alice.client, name, name)
    below = await impersonating(api, apart, bob, name)
    inside = {"TNT-API-001", "TNT-API-002", "TNT-API-004", "TNT-API-005", "TNT-API-006", "TNT-API-013"}
    for audit, other in ((above, apart), (below, name)):
        wrong = [each for each in audit.checks if each.id in inside and each.verdict is not Verdict.PASSED]
        assert not wrong, told(wrong)
        tried = {attempt.what for attempt in of(audit, "TNT-API-001").attempts}
        assert f"list secrets in {other!r}" in tried
        assert (f"list secrets in {work!r}" in tried) is (audit is below)


@pytest.mark.usefixtures("operator")
async def test_the_gap_in_dns_is_named(api: Api, alice: Api, name: str) -> None:
    """H06: a CoreDNS that answers any client."""
    await make_tenant(api, name)
    assert of(await audited(api, alice.client, name, name), "TNT-NET-023").verdict is Verdict.SKIPPED
    corefile = ".:53 {\n    kubernetes cluster.local\n}\n"
    await api.create(
        kinds.CONFIG_MAPS, {"metadata": {"name": "coredns"}, "data": {"Corefile": corefile}}, "kube-system"
    )
    try:
        result = of(await audited(api, alice.client, name, name), "TNT-NET-023")
    finally:
        await api.delete(kinds.CONFIG_MAPS, "coredns", "kube-system")
    assert result.verdict is Verdict.FAILED
    assert "answers every pod" in result.message


@pytest.mark.usefixtures("operator")
async def test_probes_that_cannot_be_set_up_say_why(api: Api, alice: Api, name: str) -> None:
    """X06: no nodes, no image, or no right to make a namespace; and nothing is left."""
    await make_tenant(api, name)
    seen = await gather(api.client, namespace=name, user=owner_of(name), tenant=name, image=IMAGE)
    played = msgspec.structs.replace(seen, real_nodes=())
    real = msgspec.structs.replace(seen, real_nodes=(AuditNode(name="n1"),))
    image = ProbeImage(reference="tenantry.local/probe:1", is_there=True)
    for admin, place, runs, expected in (
        (api.client, played, image, "kwok nodes are simulated"),
        (api.client, real, "no image", "no image"),
        (alice.client, real, image, "the administrator may not set the probe up"),
    ):
        findings = await probing.probe(admin, alice.client, place, runs)
        audit = await runner.audit(alice.client, place, PROBES, findings)
        assert {each.verdict for each in audit.checks} == {Verdict.SKIPPED}
        assert all(expected in each.message for each in audit.checks), told(list(audit.checks))
    assert not [each for each in await api.list(Namespace.resource) if each["metadata"]["name"] == seen.name]
    assert await api.list(kinds.PODS, name) == []
