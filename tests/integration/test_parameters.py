"""Parameters of policies: an upgrade from the version that kept them in ConfigMaps, and a flood of objects."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import pytest_asyncio

from tenantry.api import marks
from tenantry.api.errors import Forbidden, InputError, NotFound
from tenantry.api.hostregister import HOSTS_MARK, PREFIX
from tenantry.api.kubernetes import RBAC_GROUP, Namespace, ResourceQuota, RoleBinding
from tenantry.api.model import Resource
from tenantry.api.policyparameters import MOST_BYTES, PolicyParameters, parameters, texts_of
from tenantry.api.rules import Rules
from tenantry.api.tenancyrules import MAPS, OWN_MARK
from tenantry.controllers import tenancyrules
from tenantry.engine.lease import Lease
from tenantry.engine.tasks import in_background
from tenantry.install import apply, manifests
from tenantry.install.rights import OPERATOR
from tenantry.install.upgrade import RETIRED
from tenantry.install.waves import policy_resource
from tenantry.kube import kubeconfig, wire
from tenantry.kube.client import MERGE_PATCH, Client
from tenantry.local import components
from tenantry.local.cluster import LocalCluster, UpOptions
from tenantry.world import hosts
from tenantry.world.hosts import HostHolder
from tenantry.world.inheritance import COPIES, SCALED, SOURCE
from testkit import olderversion
from testkit.api import CONFIG_MAPS, PODS, SECONDS, Api, until
from testkit.everykind import kinds, long
from testkit.hosts import CLUSTER_ROLES
from testkit.people import as_person
from testkit.refusals import refusal

Json = dict[str, Any]

OWN, SHARED = "own-rules", "shared-rules"
FLOOD_MEGABYTES = int(os.environ.get("TENANTRY_TEST_FLOOD_MEGABYTES", "15"))
"""How much one tenant stores; `make test-release` stores as much as an attacker did."""

PARAMETER_KINDS = (
    PolicyParameters.resource,
    ResourceQuota.resource,
    Namespace.resource,
    Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False),
)
"""The kinds of which policies have parameters."""

EVIL = {"metadata": {"name": "evil"}, "spec": {"hostNetwork": True, "containers": [{"name": "c", "image": "busybox"}]}}
GOOD = {"metadata": {"name": "good"}, "spec": {"containers": [{"name": "c", "image": "busybox"}]}}
EDITOR = {
    "metadata": {"name": "mallory"},
    "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": "edit"},
    "subjects": [{"apiGroup": RBAC_GROUP, "kind": "User", "name": "mallory"}],
}
WEB = {
    "metadata": {"name": "web", "labels": {marks.INHERITED_FROM: "acme"}},
    "spec": {
        "replicas": 0,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "busybox"}]},
        },
    },
}


TAKEN = {"metadata": {"name": "tenantry-taken"}}


async def _install_older(path: Path) -> None:
    """Install the older version, and the objects that its operator makes for two namespaces of tenants."""
    async with Client(kubeconfig.load([path])) as client:
        api = Api(client)
        await apply.apply(client, olderversion.foundation())
        labels = {marks.TENANT_UID: "acme-uid", marks.TENANT: "acme", marks.ZONE: "acme-uid"}
        await api.create(Namespace.resource, {"metadata": {"name": SHARED, "labels": labels}})
        await api.create(Namespace.resource, {"metadata": {"name": OWN, "labels": {**labels, OWN_MARK: "own"}}})
        for child in tenancyrules.shared(Rules()):
            if not isinstance(child.object, PolicyParameters):
                continue
            made = olderversion.config_map(child.object)
            for namespace in (marks.SYSTEM_NAMESPACE, OWN):
                await api.create(CONFIG_MAPS, made, namespace)
        await api.create(SCALED[0], WEB, OWN)


@pytest_asyncio.fixture(scope="module")
async def older(tenantry_home: Path) -> AsyncGenerator[LocalCluster]:
    """A cluster with the older version."""
    local = LocalCluster("older", root=tenantry_home)
    await local.up(UpOptions(throwaway=True, install=_install_older, timeout_seconds=3 * SECONDS))
    yield local
    await local.down(purge=True)


@pytest_asyncio.fixture
async def admin(older: LocalCluster) -> AsyncGenerator[Api]:
    """An administrator of it."""
    async with Client(kubeconfig.load([older.kubeconfig_path])) as client:
        yield Api(client)


class Answers(NamedTuple):
    """What the API server said during an upgrade, in order.

    Args:
        evil: To pods and scalings that rules refuse, after the name of the request.
        good: To pods that rules allow.
    """

    evil: list[str]
    good: list[str]


async def _try(api: Api, owner: Api, answers: Answers) -> None:
    """Try what rules refuse and what they allow, over and over, and record each answer."""
    while True:
        for namespace in (OWN, SHARED):
            answers.evil.append(f"pod in {namespace}: {await refusal(api, PODS, EVIL, namespace)}")
            answers.good.append(await refusal(api, PODS, GOOD, namespace))
        answers.evil.append(f"scale: {await _scaling(owner)}")
        answers.evil.append(f"name: {await refusal(owner, CONFIG_MAPS, TAKEN, OWN)}")


async def _scaling(owner: Api) -> str:
    """Return why an owner may not scale an inherited workload; "" if it is allowed."""
    path, patch = f"{wire.path(SCALED[0], OWN, 'web')}/scale", msgspec.json.encode({"spec": {"replicas": 3}})
    try:
        await owner.client.request("PATCH", path, query={"dryRun": "All"}, body=patch, content_type=MERGE_PATCH)
    except Forbidden as error:
        return str(error)
    return ""


@pytest_asyncio.fixture(scope="module")
async def upgraded(older: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """The answers of the older version, of this one, and of each moment between them."""
    objects, answers = manifests.foundation(manifests.LOCAL_USER), Answers([], [])
    folder = tmp_path_factory.mktemp("mallory")
    async with Client(kubeconfig.load([older.kubeconfig_path])) as client, as_person(older, folder, "mallory") as owner:
        api = Api(client)
        await api.create(RoleBinding.resource, EDITOR, OWN)

        async def is_refused() -> bool:
            return "is inherited" in await _scaling(owner)

        await until(is_refused, "the older version refuses to scale the copy")
        async with in_background(_try(api, owner, answers)):
            await apply.found(client, objects)
            await _more(answers)
            await apply.guard(client, objects)
            await _more(answers)
    return answers


async def _more(answers: Answers) -> None:
    since = len(answers.evil)

    async def tried() -> bool:
        return len(answers.evil) > since + 10

    await until(tried, "the API server has answered ten more times")


async def _parameters(api: Api, namespace: str) -> dict[str, dict[str, str]]:
    found = await api.list(PolicyParameters.resource, namespace)
    return {each["metadata"]["name"]: texts_of(each["metadata"].get("annotations")) for each in found}


async def test_rules_hold_at_each_moment_of_an_upgrade_from_config_maps(admin: Api, upgraded: Answers) -> None:
    """H06, X06: no pod that a rule refuses starts meanwhile, and none that it allows is refused for long."""
    expected = ("podSecurity.hostNamespaces", "is inherited", "is Tenantry's")
    assert [said for said in upgraded.evil if not any(text in said for text in expected)] == []
    assert [said for said in upgraded.good if said] == []
    for namespace in (OWN, marks.SYSTEM_NAMESPACE):
        assert not [each for each in await admin.list(CONFIG_MAPS, namespace) if "labels" in each["metadata"]]
    own = await _parameters(admin, OWN)
    assert own[MAPS["enforce"]] == (await _parameters(admin, marks.SYSTEM_NAMESPACE))[MAPS["enforce"]]
    assert own[COPIES] == {SOURCE: "acme", "deployments": "\nweb\n"}


@pytest.mark.usefixtures("upgraded")
async def test_an_upgrade_deletes_policies_of_the_older_version_that_others_replace(admin: Api) -> None:
    """X12: each policy costs memory, and CPU with every request."""
    for kind, names in RETIRED.items():
        for resource in (policy_resource(kind), policy_resource(kind, "Binding")):
            found = {each["metadata"]["name"] for each in await admin.list(resource)}
            assert found
            assert not found & set(names)


@pytest.mark.long
@pytest.mark.usefixtures("upgraded")
async def test_a_flood_of_every_kind_delays_no_other_tenant_after_a_restart(admin: Api, older: LocalCluster) -> None:
    """H06: a pod passes, and one that a rule refuses is refused, as soon as the API server is ready."""
    # The rules allow no more: objects.maxSizes, and tenantry-closable for bindings.
    sizes = {resource.plural: 25_000 if resource.plural == "rolebindings" else 60_000 for resource, _ in kinds(OWN)}
    for number in range(FLOOD_MEGABYTES * 1_000_000 // sum(sizes.values())):
        flood = [(each, long(value, f"flood-{number}", "x" * sizes[each.plural])) for each, value in kinds(OWN)]
        await asyncio.gather(*(admin.create(resource, value, OWN) for resource, value in flood))
    await older.restart_component(components.APISERVER, timeout_seconds=2 * SECONDS)
    made = await admin.create(PODS, GOOD, SHARED)
    assert made["metadata"]["uid"]
    with pytest.raises(Forbidden, match=r"podSecurity\.hostNamespaces"):
        await admin.create(PODS, EVIL, SHARED)


@pytest.mark.long
@pytest.mark.usefixtures("upgraded")
async def test_an_upgrade_that_cannot_copy_rules_changes_nothing(admin: Api) -> None:
    """X06: the installed version still runs, and the owner of the rules can shorten them with it."""
    labels = {OWN_MARK: "enforce", marks.MANAGED_BY: marks.MANAGER}
    long = {"metadata": {"name": MAPS["enforce"], "labels": labels}, "data": {"refused": "x" * MOST_BYTES}}
    await admin.create(CONFIG_MAPS, long, "default")
    new = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "of-the-new-version"}}
    objects = [new, *manifests.foundation(manifests.LOCAL_USER)]
    try:
        with pytest.raises(InputError, match="with the version that is installed"):
            await apply.found(admin.client, objects)
        with pytest.raises(NotFound):
            await admin.get(Namespace.resource, "of-the-new-version")
    finally:
        await admin.delete(CONFIG_MAPS, MAPS["enforce"], "default")


@pytest.mark.usefixtures("upgraded")
async def test_an_upgrade_between_two_shapes_of_the_register_gives_subtenants_their_hosts(admin: Api) -> None:
    """H06, X12: not while an operator runs that would take them back."""
    host, labels = "shop.example", {marks.TENANT_UID: "acme-uid", marks.ZONE: "zone", marks.KIND: marks.KIND_SUBTENANT}
    await admin.create(Namespace.resource, {"metadata": {"name": "below", "labels": labels}})
    ((part, texts),) = hosts.register({host: HostHolder("acme-uid", "below")}).items()
    older = parameters(f"{PREFIX}{part}", marks.SYSTEM_NAMESPACE, HOSTS_MARK, texts)
    await admin.client.create(older)
    now = f"{dt.datetime.now(dt.UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
    spec = {"holderIdentity": "older", "renewTime": now, "leaseDurationSeconds": 600}
    await admin.create(Lease.resource, {"metadata": {"name": OPERATOR}, "spec": spec}, marks.SYSTEM_NAMESPACE)
    objects = manifests.foundation(manifests.LOCAL_USER)
    try:
        with pytest.raises(InputError, match="scale deployment tenantry-operator"):
            await apply.found(admin.client, objects)
    finally:
        await admin.delete(Lease.resource, OPERATOR, marks.SYSTEM_NAMESPACE)
    await apply.apply(admin.client, objects)
    found = await admin.get(older.resource, older.metadata.name, marks.SYSTEM_NAMESPACE)
    assert hosts.holders_in(texts_of(found["metadata"]["annotations"])) == {host: HostHolder("zone", "below")}


async def test_no_parameters_are_of_a_kind_that_owners_write(admin: Api) -> None:
    """H06: the API server waits for each object of such a kind before it answers, and an owner could make many."""
    kinds = {
        (kind["apiVersion"], kind["kind"])
        for each in manifests.foundation(manifests.LOCAL_USER)
        if (kind := each["spec"].get("paramKind") if isinstance(each.get("spec"), dict) else None)
    }
    resources = {(each.api_version, each.kind): each for each in PARAMETER_KINDS}
    assert resources.keys() == kinds

    async def written() -> set[tuple[str, str]]:
        role = await admin.get(CLUSTER_ROLES, marks.OWNER_ROLE)
        return {
            (group, resource)
            for rule in role.get("rules") or ()
            for group in rule.get("apiGroups", ())
            for resource in rule.get("resources", ())
            if set(rule["verbs"]) & {"create", "update", "patch", "*"}
        }

    async def aggregated() -> set[tuple[str, str]] | None:
        found = await written()
        return found if ("", "configmaps") in found else None

    found = await until(aggregated, "Kubernetes has aggregated the rights of owners")
    assert not {(each.group, each.plural) for each in resources.values()} & found
