"""X10: the trees of the Hierarchical Namespace Controller become tenants, and what is in them stays."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import pytest_asyncio
import yaml

from tenantry.api.errors import ApiError
from tenantry.api.kubernetes import Namespace, ResourceQuota, RoleBinding
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.cli.imports.running import WEBHOOKS
from tenantry.local.cluster import LocalCluster
from tenantry.world.hnc.objects import (
    QUOTA_NAME,
    HierarchicalResourceQuota,
    HierarchyConfiguration,
    HncConfiguration,
    SubnamespaceAnchor,
)
from testkit.api import CONFIG_MAPS, CRDS, PODS, ROLES, SECRETS, Api, stays, until
from testkit.operators import Operator
from testkit.trees import Trees

pytest_plugins = ["testkit.fixtures"]

Json = dict[str, Any]
SECONDS = 180.0
"""For a command that waits for a whole tree."""
KINDS = (SubnamespaceAnchor, HierarchyConfiguration, HierarchicalResourceQuota, HncConfiguration)
ADMIN = "rbac.authorization.k8s.io"
QUOTAS = ResourceQuota.resource


class Said(NamedTuple):
    """How the command ended, and what it printed."""

    code: int
    stdout: str
    stderr: str


class Importer:
    """`tenantry import hnc` on the cluster of these tests."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        command = ("-m", "tenantry", "import", "hnc", "--kubeconfig", str(self.kubeconfig), *arguments)
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(sys.executable, "-u", *command, stdout=pipe, stderr=pipe)

    async def run(self, *arguments: str) -> Said:
        process = await self.start(*arguments)
        out, err = await asyncio.wait_for(process.communicate(), SECONDS)
        return Said(process.returncode or 0, out.decode(), err.decode())

    async def done(self, *arguments: str) -> Said:
        """Run it and see that it succeeds."""
        said = await self.run(*arguments)
        assert said.code == 0, said
        return said


@pytest_asyncio.fixture(scope="module")
async def hnc(api: Api) -> AsyncGenerator[None]:
    """HNC's kinds and its configuration: secrets are propagated, too."""
    text = (Path(__file__).parent / "hnc" / "crds.yaml").read_text()
    for kind in yaml.safe_load_all(text):
        await api.create(CRDS, kind)

    async def served() -> bool:
        try:
            return all([await api.list(kind.resource) == [] for kind in KINDS])
        except ApiError:
            return False

    await until(served, "HNC's kinds are served")
    spec = {"resources": [{"resource": "secrets", "mode": "Propagate"}]}
    await api.create(HncConfiguration.resource, {"metadata": {"name": "config"}, "spec": spec})
    yield
    for kind in yaml.safe_load_all(text):
        await api.delete(CRDS, kind["metadata"]["name"])


@pytest_asyncio.fixture
async def importer(tenancy: LocalCluster, hnc: None) -> Importer:
    """The command."""
    assert hnc is None
    return Importer(tenancy.kubeconfig_path)


async def make_namespace(api: Api, name: str, parent: str = "", *, anchored: bool = True) -> None:
    """Make a namespace as HNC leaves it, with something in it."""
    labels = {f"{name}.tree.hnc.x-k8s.io/depth": "0", "team": "kept"}
    annotations = {"hnc.x-k8s.io/subnamespace-of": parent} if parent and anchored else {}
    await api.create(Namespace.resource, {"metadata": {"name": name, "labels": labels, "annotations": annotations}})
    if parent:
        if anchored:
            await api.create(SubnamespaceAnchor.resource, {"metadata": {"name": name}}, parent)
        place = {"metadata": {"name": "hierarchy"}, "spec": {"parent": parent}}
        await api.create(HierarchyConfiguration.resource, place, name)
    await api.create(CONFIG_MAPS, {"metadata": {"name": "settings"}, "data": {"here": name}}, name)
    spec = {
        "automountServiceAccountToken": False,
        "containers": [{"name": "main", "image": "registry.invalid/main"}],
        # Nodes of other tests come and go, and pods that got one go with it.
        "nodeSelector": {"kubernetes.io/hostname": "nowhere"},
    }

    async def admitted() -> bool:
        try:
            return bool(await api.create(PODS, {"metadata": {"name": "worker"}, "spec": spec}, name))
        except ApiError:
            return False  # its service account is not there yet

    await until(admitted, f"a pod in {name!r}")


class Forest(NamedTuple):
    """A tree of HNC's: a root, a child that an anchor made, and below that a full namespace."""

    root: str
    team: str
    squad: str


async def make_forest(api: Api, name: str) -> Forest:
    """Make one, with an administrator."""
    forest = Forest(name, f"{name}-team", f"{name}-squad")
    await make_namespace(api, forest.root)
    await make_namespace(api, forest.team, forest.root)
    await make_namespace(api, forest.squad, forest.team, anchored=False)
    binding = {
        "metadata": {"name": "leads"},
        "roleRef": {"apiGroup": ADMIN, "kind": "ClusterRole", "name": "admin"},
        "subjects": [{"apiGroup": ADMIN, "kind": "Group", "name": "leads"}],
    }
    await api.create(RoleBinding.resource, binding, forest.root)
    return forest


async def identities(api: Api, forest: Forest) -> dict[str, str]:
    """Return the uids of the namespaces and of what was put into them."""
    found: dict[str, str] = {}
    for name in forest:
        found[name] = (await api.get(Namespace.resource, name))["metadata"]["uid"]
        for kind, inner in ((PODS, "worker"), (CONFIG_MAPS, "settings")):
            found[f"{name}/{inner}"] = (await api.get(kind, inner, name))["metadata"]["uid"]
    return found


async def versions(api: Api, forest: Forest) -> list[str]:
    """Return the resourceVersions of what an import writes."""
    objects = [await api.get(Namespace.resource, name) for name in forest]
    objects += [await api.get(Tenant.resource, forest.root)]
    objects += [
        await api.get(Subnamespace.resource, child, parent)
        for parent, child in ((forest.root, forest.team), (forest.team, forest.squad))
    ]
    return [found["metadata"]["resourceVersion"] for found in objects]


async def see_that_it_is_imported(api: Api, forest: Forest) -> None:
    """See that the tree is a tenant's, as it would be if Tenantry had made it."""
    await api.ready(forest.root)
    trees = Trees(api)
    for parent, child in ((forest.root, forest.team), (forest.team, forest.squad)):
        assert (await trees.ready(parent, child)).status.namespace == child
        labels = await trees.labels(child)
        assert labels["tenantry.dev/tenant"] == forest.root
        assert labels[f"{forest.root}.tree.tenantry.dev/depth"] == ("1" if child == forest.team else "2")
        # HNC's own marks, and the tenant's, are as they were.
        assert labels[f"{child}.tree.hnc.x-k8s.io/depth"] == "0"
        assert labels["team"] == "kept"
        owners: Json = await api.get(RoleBinding.resource, "tenantry-owner", child)
        assert [subject["name"] for subject in owners["subjects"]] == ["leads"]


@pytest.mark.usefixtures("operator")
async def test_a_tree_is_printed_and_nothing_is_done(api: Api, importer: Importer, name: str) -> None:
    """X10: the owners are found in the root's RoleBindings."""
    forest = await make_forest(api, name)
    said = await importer.done(name, "-o", "json")
    tenant, team, squad = msgspec.json.decode(said.stdout)["items"]
    assert (tenant["kind"], tenant["spec"]["owners"]) == ("Tenant", [{"kind": "Group", "name": "leads"}])
    assert [(sub["metadata"]["namespace"], sub["spec"]["adopt"]["namespace"]) for sub in (team, squad)] == [
        (forest.root, forest.team),
        (forest.team, forest.squad),
    ]
    assert team["spec"]["inheritance"] == {"roles": "Sync", "roleBindings": "Sync", "secrets": "Sync"}
    assert f"note: {forest.squad}: not created by an anchor" in said.stderr
    assert await api.find(Tenant.resource, name) is None
    # What is printed is what the API server takes.
    for document in yaml.safe_load_all((await importer.done(name)).stdout):
        assert document["apiVersion"] == "tenantry.dev/v1alpha1"


async def test_a_tree_is_adopted_and_what_is_in_it_stays(
    api: Api, importer: Importer, operator: Operator, name: str
) -> None:
    """X10: namespaces and pods keep their uids, and a second run writes nothing."""
    forest = await make_forest(api, name)
    before = await identities(api, forest)
    said = await importer.done(name, "--apply", "--yes")
    assert f"tenant '{name}': created" in said.stderr
    assert "HNC's own marks and copies are as they were" in said.stderr
    await see_that_it_is_imported(api, forest)
    assert await identities(api, forest) == before
    # It writes once more what it has come to know of each level since.
    await operator.calm(name)
    written = await versions(api, forest)
    await importer.done(name, "--apply", "--yes")
    assert await versions(api, forest) == written
    await api.delete(Tenant.resource, name)


@pytest.mark.usefixtures("operator")
async def test_what_hnc_kept_back_is_not_handed_down(api: Api, importer: Importer, name: str) -> None:
    """X10, E06: exceptions from propagation hold from the first moment; everything else is handed down."""
    forest = await make_forest(api, name)
    for secret, said in (
        ("open", {}),
        ("closed", {"propagate.hnc.x-k8s.io/none": "true"}),
        ("picked", {"propagate.hnc.x-k8s.io/treeSelect": f"!{forest.team}"}),
    ):
        await api.create(SECRETS, {"metadata": {"name": secret, "annotations": said}}, forest.root)
    await importer.done(name, "--apply", "--yes")

    async def handed_down() -> bool:
        return await api.find(SECRETS, "open", forest.squad) is not None

    await until(handed_down, "the open secret is in the lowest namespace")

    async def kept_back() -> bool:
        return not [
            secret
            for secret in ("closed", "picked")
            for child in (forest.team, forest.squad)
            if await api.find(SECRETS, secret, child) is not None
        ]

    await stays(kept_back, "the closed ones are not")
    await api.delete(Tenant.resource, name)


@pytest.mark.usefixtures("operator")
@pytest.mark.parametrize("lines", [1, 2, 3, 4, 5])
async def test_an_import_that_is_killed_goes_on(api: Api, importer: Importer, name: str, lines: int) -> None:
    """X10: whatever was done when it ended."""
    forest = await make_forest(api, name)
    before = await identities(api, forest)
    process = await importer.start(name, "--apply", "--yes")
    assert process.stderr is not None
    seen = 0
    while seen < lines:
        line = await asyncio.wait_for(process.stderr.readline(), SECONDS)
        assert line, "it ended before it was killed"
        seen += b": created" in line or b"is the tenant's" in line or b"is ready" in line
    with suppress(ProcessLookupError):  # it has come to its end meanwhile
        process.kill()
    await process.wait()
    await importer.done(name, "--apply", "--yes")
    await see_that_it_is_imported(api, forest)
    assert await identities(api, forest) == before
    await api.delete(Tenant.resource, name)


@pytest.mark.long
@pytest.mark.usefixtures("operator")
async def test_deleting_the_tenant_deletes_what_was_adopted(api: Api, importer: Importer, name: str) -> None:
    """X10, E08: an adopted namespace is a child like any other."""
    forest = await make_forest(api, name)
    await importer.done(name, "--apply", "--yes")
    await see_that_it_is_imported(api, forest)
    await api.delete(Tenant.resource, name)
    for each in forest:
        await api.gone(Namespace.resource, each)


@pytest.mark.usefixtures("operator")
async def test_quotas_that_promise_too_much_are_refused(api: Api, importer: Importer, name: str) -> None:
    """X10: nothing is done before a person decides; with --fit it is."""
    forest = await make_forest(api, name)
    for namespace, pods in ((forest.root, 5), (forest.team, 9)):
        quota = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": pods}}}
        await api.create(HierarchicalResourceQuota.resource, quota, namespace)
    refused = await importer.run(name, "--apply", "--yes")
    assert refused.code == 2
    assert f"blocks: {name}: pods is 5, and 9 is needed" in refused.stderr
    assert await api.find(Tenant.resource, name) is None
    printed = msgspec.json.decode((await importer.done(name, "--fit", "-o", "json")).stdout)["items"]
    assert printed[0]["spec"]["quota"]["hard"] == {"pods": "5"}
    assert printed[1]["spec"]["quota"]["hard"] == {"pods": "5"}


@pytest.mark.usefixtures("operator")
async def test_a_running_hnc_is_to_be_stopped_first(api: Api, importer: Importer, name: str) -> None:
    """X10: the two would work against each other."""
    await make_forest(api, name)
    webhooks = "hnc-validating-webhook-configuration"
    await api.create(WEBHOOKS[0], {"metadata": {"name": webhooks}, "webhooks": []})
    try:
        refused = await importer.run(name, "--apply", "--yes")
    finally:
        await api.delete(WEBHOOKS[0], webhooks)
    assert refused.code == 2
    assert f"kubectl delete validatingwebhookconfiguration {webhooks}" in refused.stderr
    assert await api.find(Tenant.resource, name) is None


@pytest.mark.usefixtures("operator")
async def test_another_tenants_namespace_is_not_taken(api: Api, importer: Importer, name: str) -> None:
    """X10: and nothing of the tree is touched."""
    forest = await make_forest(api, name)
    other = await api.make_tenant(f"{name}x")
    labels = {"tenantry.dev/tenant": other.metadata.name, "tenantry.dev/tenant-uid": other.metadata.uid}
    await api.patch(Namespace.resource, forest.squad, {"metadata": {"labels": labels}})
    refused = await importer.run(name, "--apply", "--yes")
    assert refused.code == 2
    assert f"the namespace '{forest.squad}' belongs to the tenant '{name}x' already" in refused.stderr
    assert await api.find(Tenant.resource, name) is None


async def test_roles_of_hnc_are_read_as_copies(api: Api, importer: Importer, name: str) -> None:
    """X10: what HNC copied is neither an exception nor an owner."""
    forest = await make_forest(api, name)
    copied = {"hnc.x-k8s.io/inherited-from": forest.root}
    annotations = {"propagate.hnc.x-k8s.io/none": "true"}
    await api.create(ROLES, {"metadata": {"name": "r", "labels": copied, "annotations": annotations}}, forest.team)
    said = await importer.done(name)
    assert "mark:" not in said.stderr


@pytest.mark.usefixtures("operator")
async def test_hncs_copies_give_way_once_they_are_deleted(api: Api, importer: Importer, name: str) -> None:
    """X10, E06: they are in the way, are told, and are never overwritten; then they are Tenantry's to make."""
    forest = await make_forest(api, name)
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    await api.create(ROLES, {"metadata": {"name": "r"}, "rules": rules}, forest.root)
    copied = {"hnc.x-k8s.io/inherited-from": forest.root}
    await api.create(ROLES, {"metadata": {"name": "r", "labels": copied}, "rules": rules}, forest.team)
    await importer.done(name, "--apply", "--yes")
    trees = Trees(api)
    await trees.condition(forest.root, forest.team, "Inherited", holds=False, reason="InheritanceClash")
    assert (await api.get(ROLES, "r", forest.team))["metadata"]["labels"] == copied
    await api.delete(ROLES, "r", forest.team)
    await trees.condition(forest.root, forest.team, "Inherited", holds=True)

    async def handed_on() -> bool:
        # What stood in the way was the squad's to inherit, until it was made anew.
        copy = await api.find(ROLES, "r", forest.squad)
        return copy is not None and "hnc.x-k8s.io/inherited-from" not in copy["metadata"]["labels"]

    await until(handed_on, "the squad has the copy of the new one")
    await api.delete(Tenant.resource, name)


@pytest.mark.usefixtures("operator")
async def test_quotas_are_divided_over_what_was_adopted(api: Api, importer: Importer, name: str) -> None:
    """X10, E09: what runs already counts, shares come to no more than the whole, and nothing is stopped."""
    forest = await make_forest(api, name)
    before = await identities(api, forest)
    for namespace, pods in ((forest.root, 6), (forest.team, 9)):
        quota = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": pods}}}
        await api.create(HierarchicalResourceQuota.resource, quota, namespace)
    # What HNC itself keeps in each namespace, and counts by.
    for namespace, pods in ((forest.root, 6), (forest.team, 6), (forest.squad, 6)):
        await api.create(QUOTAS, {"metadata": {"name": QUOTA_NAME}, "spec": {"hard": {"pods": pods}}}, namespace)

    async def counted() -> bool:
        found = [await api.get(QUOTAS, QUOTA_NAME, namespace) for namespace in forest]
        return all(quota.get("status", {}).get("used") == {"pods": "1"} for quota in found)

    await until(counted, "the pods are counted")
    await importer.done(name, "--fit", "--apply", "--yes")
    await see_that_it_is_imported(api, forest)
    assert await identities(api, forest) == before
    # The root keeps its one, the team and the squad below it get the rest.
    tree = {
        sub: (await Trees(api).get(*sub)).spec.quota.hard for sub in ((name, forest.team), (forest.team, forest.squad))
    }
    assert tree == {(name, forest.team): {"pods": "5"}, (forest.team, forest.squad): {"pods": "1"}}
    own = {
        namespace: (await api.get(QUOTAS, "tenantry-quota", namespace))["spec"]["hard"]["pods"] for namespace in forest
    }
    assert own == {forest.root: "1", forest.team: "4", forest.squad: "1"}
    await api.delete(Tenant.resource, name)
