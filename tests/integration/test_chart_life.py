"""The chart in a cluster: installed, upgraded and removed by the real Helm, while tenants stay and the operator runs.

No kubelet runs the Deployment here. The operator is a process with the token of the ServiceAccount in the chart.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
import yaml

from tenantry import __version__
from tenantry.api.marks import BUILD, INSTALLED_VERSION, MANAGED_BY, MANAGER, SYSTEM_NAMESPACE
from tenantry.api.model import Resource
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.api.tenant import Tenant
from tenantry.controllers.installation.release import HELM, PART_OF, RELEASE_NAME
from tenantry.install import apply, manifests
from tenantry.install.waves import policy_resource, resource_of
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local.cluster import LocalCluster, UpOptions
from testkit import tools
from testkit.api import CRDS, EVENTS, SECONDS, SECRETS, Api, until
from testkit.helm import CHART, Helm
from testkit.operators import Operator, running

Json = dict[str, Any]

chart = tools.load("chart")
PAGE = tools.ROOT / "docs" / "how-to" / "install.md"
POLICIES, BINDINGS = policy_resource("Validating"), policy_resource("Validating", "Binding")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
OPERATOR = "tenantry-operator"
NEW, FORMER = "tenantry-namespaces", "tenantry-former"
"""A policy that the older chart does not have, and one that only it has."""

KEPT = "tenantry-marks"
"""A binding that both charts have."""

MOST_BYTES = 768 * 1024
"""A Secret has at most 1 MiB, and values need a part of it."""

OTHERS = {"clusterrole-aggregation-controller", "kube-controller-manager"}
"""Field managers of Kubernetes, which collects the rules of roles."""


@pytest_asyncio.fixture
async def bare(tenantry_home: Path) -> AsyncGenerator[LocalCluster]:
    """A cluster without Tenantry."""
    local = LocalCluster("chart", root=tenantry_home)
    await local.up(UpOptions(throwaway=True, timeout_seconds=2 * SECONDS))
    yield local
    await local.down(purge=True)


def documented(verb: str, archive: Path) -> list[list[str]]:
    """Return the commands of the page that begin with a verb, without the program, and with another chart."""
    lines = re.findall(rf"^(helm {verb} .*)$", PAGE.read_text(), re.MULTILINE)
    assert lines, verb
    return [re.sub(r"\S+\.tgz", str(archive), line).split()[1:] for line in lines]


def older_chart(folder: Path) -> Path:
    """Write the chart of a version before this one: another policy, one less, and a kind with fewer columns."""
    shutil.copytree(CHART, folder)
    objects = [_older(each) for each in manifests.foundation(manifests.SERVICE_ACCOUNT)]
    kept = [each for each in objects if chart.key_of(each) not in chart.OMITTED and each["metadata"]["name"] != NEW]
    former = [_renamed(each) for each in objects if each["metadata"]["name"] == NEW]
    for name in ("crds", "namespaces", "rights", "policies"):
        (folder / "templates" / f"{name}.yaml").unlink()
    (folder / "templates" / "objects.yaml").write_text(chart.static([*kept, *former]))
    (folder / "Chart.yaml").write_text(yaml.safe_dump(chart.metadata("0.0.9")))
    return folder


def _older(value: Json) -> Json:
    labels = value["metadata"]["labels"]
    if INSTALLED_VERSION in labels:
        labels[INSTALLED_VERSION] = "0.0.9"
    if BUILD in value["metadata"].get("annotations", {}):
        value["metadata"]["annotations"][BUILD] = "older"
    if value["metadata"]["name"] == Tenant.resource.full_name:
        value["spec"]["versions"][0].pop("additionalPrinterColumns")
    return value


def _renamed(value: Json) -> Json:
    spec = {**value["spec"], "policyName": FORMER} if "policyName" in value["spec"] else value["spec"]
    return {**value, "metadata": {**value["metadata"], "name": FORMER}, "spec": spec}


async def operator_credentials(api: Api, local: LocalCluster, file: Path) -> Path:
    """Write a kubeconfig with the token that kubelet would give to the operator."""
    url = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/serviceaccounts/{OPERATOR}/token"
    asked: Json = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = await api.client.request("POST", url, body=msgspec.json.encode(asked))
    token = msgspec.json.decode(answer)["status"]["token"]

    def write() -> None:
        config = yaml.safe_load(local.kubeconfig_path.read_text())
        config["users"] = [{"name": each["name"], "user": {"token": token}} for each in config["users"]]
        file.write_text(yaml.safe_dump(config))

    await asyncio.to_thread(write)
    return file


async def managers(api: Api, objects: list[Json]) -> dict[str, set[str]]:
    """Return the clients that have written fields of the objects of a release, but for statuses."""
    found: dict[str, set[str]] = {}
    for each in objects:
        meta = each["metadata"]
        live = await api.get(resource_of(each), meta["name"], meta.get("namespace", ""))
        assert live["metadata"]["labels"][MANAGED_BY] == HELM, meta
        assert live["metadata"]["annotations"][RELEASE_NAME] == "tenantry", meta
        writers = {one["manager"] for one in live["metadata"]["managedFields"] if not one.get("subresource")}
        found[f"{each['kind']} {meta['name']}"] = writers - OTHERS
    return found


async def commanded(local: LocalCluster, *arguments: str) -> tuple[int, str]:
    """Run `tenantry` in a cluster that it does not know as a local one; return its exit code and messages."""
    command = (sys.executable, "-m", "tenantry", *arguments, "--kubeconfig", str(local.kubeconfig_path))
    environment = {**os.environ, "TENANTRY_NAME": ""}
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, env=environment, check=False
    )
    return done.returncode, done.stderr


@pytest.mark.long
async def test_install_upgrade_and_removal_with_tenants_that_stay(bare: LocalCluster, tmp_path: Path) -> None:
    """B02, X12: the kinds are upgraded, Helm and the operator write no field of each other, and tenants survive."""
    helm = Helm(tmp_path / "home", bare.kubeconfig_path)
    upgrade, uninstall = documented("upgrade", CHART)[0], documented("uninstall", CHART)[0]
    older = older_chart(tmp_path / "older")
    async with Client(kubeconfig.load([bare.kubeconfig_path])) as client:
        api = Api(client)
        told = await helm(*documented("install", older)[0])
        assert "rollout status deployment/tenantry-operator" in told
        assert await api.find(POLICIES, FORMER) is not None

        values = tmp_path / "values.yaml"
        values.write_text(yaml.safe_dump({"defaults": {"rules": {"standard": "Restricted"}}}))
        await helm(*upgrade, "--values", str(values))
        await _is_upgraded(api)

        text = await helm("get", "manifest", "tenantry", "--namespace", SYSTEM_NAMESPACE)
        made = [each for each in yaml.safe_load_all(text) if each is not None]
        objects = [each for each in made if each["kind"] != TenancyDefaults.resource.kind]
        credentials = await operator_credentials(api, bare, tmp_path / "operator")
        async with running(credentials, tmp_path / "log") as operator:
            await operator.leads()
            tenant = await api.make_tenant("acme")
            await _live_together(api, helm, operator, objects, upgrade)
            await _refuses_the_command(bare)
            await helm(*uninstall)
            await _has_left_tenants(api, tenant)
            assert await api.find(TenancyDefaults.resource, "default") is not None
        # Not one came back after the last look, either.
        await _has_left_tenants(api, tenant)


async def _is_upgraded(api: Api) -> None:
    kind = await api.get(CRDS, Tenant.resource.full_name)
    assert kind["spec"]["versions"][0]["additionalPrinterColumns"]
    assert (await api.find(POLICIES, FORMER), await api.find(BINDINGS, FORMER)) == (None, None)
    assert await api.find(POLICIES, NEW) is not None
    assert (await api.get(TenancyDefaults.resource, "default"))["spec"]["rules"] == {"standard": "Restricted"}
    history = await api.get(SECRETS, "sh.helm.release.v1.tenantry.v2", SYSTEM_NAMESPACE)
    assert len(base64.b64decode(history["data"]["release"])) < MOST_BYTES


@pytest.mark.long
async def test_rollback_and_the_installation_of_the_command(bare: LocalCluster, tmp_path: Path) -> None:
    """X12: the newer operator leaves a rollback alone; Helm takes over only on demand; tenants survive both."""
    helm = Helm(tmp_path / "home", bare.kubeconfig_path)
    install, take_over = documented("install", CHART)
    upgrade, rollback, uninstall = (documented(verb, CHART)[0] for verb in ("upgrade", "rollback", "uninstall"))
    older = older_chart(tmp_path / "older")
    async with Client(kubeconfig.load([bare.kubeconfig_path])) as client:
        api = Api(client)
        await helm(*documented("install", older)[0])
        await helm(*upgrade)
        credentials = await operator_credentials(api, bare, tmp_path / "operator")
        async with running(credentials, tmp_path / "log") as operator:
            await operator.leads()
            tenant = await api.make_tenant("acme")
            # What the operator has restored is its own in managedFields.
            await api.delete(BINDINGS, KEPT)
            await _comes_back(api, BINDINGS, KEPT)
            await helm(*rollback)
            await operator.calm()
            assert await api.find(POLICIES, NEW) is None
            assert await api.find(POLICIES, FORMER) is not None
            version = (await api.get(BINDINGS, KEPT))["metadata"]["labels"][INSTALLED_VERSION]
            assert version == "0.0.9"
        await helm(*uninstall)
        await _has_left_tenants(api, tenant)

        await apply.apply(client, manifests.everything())
        told = await helm.refuses(*install)
        assert "cannot be imported into the current release: invalid ownership metadata" in told
        await helm(*take_over)
        await helm(*uninstall)
        await _has_left_tenants(api, tenant)


async def _live_together(api: Api, helm: Helm, operator: Operator, objects: list[Json], upgrade: list[str]) -> None:
    """Check that the operator writes no object of the release, restores a deleted one, and keeps what values change."""
    await operator.calm()
    assert set(map(frozenset, (await managers(api, objects)).values())) == {frozenset({"helm"})}
    for kind, name in chart.OMITTED:
        (wanted,) = [each for each in manifests.everything() if chart.key_of(each) == (kind, name)]
        made = await api.get(resource_of(wanted), name, wanted["metadata"].get("namespace", ""))
        assert made["metadata"]["labels"][MANAGED_BY] == MANAGER

    await api.delete(POLICIES, NEW)
    await _comes_back(api, POLICIES, NEW)

    await helm(*upgrade, "--set", "replicas=1")
    await operator.calm()
    assert (await api.get(DEPLOYMENTS, OPERATOR, SYSTEM_NAMESPACE))["spec"]["replicas"] == 1
    assert await api.find(BUDGETS, OPERATOR, SYSTEM_NAMESPACE) is None
    assert (await api.get(TenancyDefaults.resource, "default"))["spec"]["rules"] == {"standard": "Restricted"}
    said = [each.get("note", "") for each in await api.list(EVENTS)]
    assert [each for each in said if "the operator restored it" in each and NEW not in each] == []


async def _comes_back(api: Api, resource: Resource, name: str) -> None:
    """Wait until the operator has restored an object, and check that it is one of the release."""

    async def is_back() -> bool:
        return await api.find(resource, name) is not None

    await until(is_back, f"the operator has restored {name}")
    meta = (await api.get(resource, name))["metadata"]
    assert (meta["labels"][MANAGED_BY], meta["annotations"][RELEASE_NAME]) == (HELM, "tenantry")


async def _refuses_the_command(local: LocalCluster) -> None:
    for verb in (("install",), ("uninstall", "--yes")):
        code, told = await commanded(local, *verb)
        assert code == 2, told
        assert "release 'tenantry' of Helm in namespace 'tenantry-system' has this installation" in told


async def _has_left_tenants(api: Api, tenant: Tenant) -> None:
    """Check that policies, rights and workloads of the release are gone, and everything that users have is there."""
    name = tenant.metadata.name
    live = await api.tenant(name)
    assert (live.metadata.uid, live.metadata.deletion_timestamp) == (tenant.metadata.uid, "")
    for namespace in (name, SYSTEM_NAMESPACE):
        assert (await api.get(NAMESPACES, namespace))["status"]["phase"] == "Active"
    assert {each["metadata"]["name"] for each in manifests.definitions()} <= {
        each["metadata"]["name"] for each in await api.list(CRDS)
    }
    kinds = {resource_of(each) for each in manifests.foundation(manifests.SERVICE_ACCOUNT)}
    left = [
        each["metadata"]["name"]
        for kind in kinds - {CRDS, NAMESPACES}
        for each in await api.list(kind)
        if each["metadata"].get("labels", {}).get(PART_OF) == MANAGER
    ]
    assert left == []
    assert await api.find(DEPLOYMENTS, OPERATOR, SYSTEM_NAMESPACE) is None


def test_the_older_chart_is_older(tmp_path: Path) -> None:
    """The story above upgrades something."""
    folder = older_chart(tmp_path / "older")
    assert yaml.safe_load((folder / "Chart.yaml").read_text())["version"] != chart.semantic(__version__)
    objects = (folder / "templates" / "objects.yaml").read_text()
    assert (f"name: {FORMER}\n" in objects, f"name: {NEW}\n" in objects) == (True, False)
