"""The objects of the most used public Helm charts, as a tenant's owner creates them."""

from __future__ import annotations

import importlib
import re
import tomllib
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tenantry.api.errors import Forbidden, NotFound
from tenantry.api.model import Resource
from tenantry.local.cluster import LocalCluster
from testkit import charts
from testkit.api import Api, until
from testkit.people import as_person
from testkit.refusals import tried

pytest_plugins = ["testkit.fixtures"]

# Every test needs the operator that leads.
pytestmark = pytest.mark.usefixtures("operator")

Json = dict[str, Any]

REVIEWED: list[Json] = tomllib.loads((Path(charts.__file__).parent / "reviewed.toml").read_text())["charts"]
REALLY_MADE = ("ServiceAccount", "Role")
"""Other objects refer to these; the rest are dry runs."""
PLURALS = {"Ingress": "ingresses", "NetworkPolicy": "networkpolicies"}
NEVER_COUNTED = "status unknown for quota"
DEFINITIONS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False)
CLUSTER_ROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", False)
CERTIFICATES: Json = {
    "metadata": {"name": "certificates.cert-manager.io"},
    "spec": {
        "group": "cert-manager.io",
        "names": {"kind": "Certificate", "plural": "certificates", "singular": "certificate"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                    }
                },
            }
        ],
    },
}
QUOTA: Json = {"hard": {"requests.cpu": "16", "requests.memory": "32Gi", "requests.storage": "200Gi", "pods": "50"}}


@pytest_asyncio.fixture
async def alice(tenancy: LocalCluster, tmp_path: Path) -> AsyncGenerator[Api]:
    """The owner, with a certificate of her own."""
    async with as_person(tenancy, tmp_path, "alice") as person:
        yield person


@pytest_asyncio.fixture
async def kinds(api: Api) -> AsyncGenerator[None]:
    """What an administrator installs once: a kind of cert-manager, and roles on kinds of it and of Argo Workflows."""
    labels = {"rbac.authorization.k8s.io/aggregate-to-admin": "true"}
    rules = [
        {"apiGroups": ["cert-manager.io", "argoproj.io"], "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["persistentvolumeclaims/finalizers"], "verbs": ["*"]},
    ]
    await api.create(CLUSTER_ROLES, {"metadata": {"name": "charts-of-tenants", "labels": labels}, "rules": rules})
    await api.create(DEFINITIONS, CERTIFICATES)

    async def is_served() -> bool:
        try:
            await api.list(Resource("cert-manager.io", "v1", "certificates", "Certificate"))
        except NotFound:
            return False
        return True

    await until(is_served, "certificates are served")
    yield
    await api.delete(CLUSTER_ROLES, "charts-of-tenants")
    await api.delete(DEFINITIONS, "certificates.cert-manager.io")
    await api.gone(DEFINITIONS, "certificates.cert-manager.io")


@pytest.mark.usefixtures("kinds")
@pytest.mark.parametrize("standard", ["Baseline", "Restricted"])
async def test_charts_are_installed_by_owners(api: Api, alice: Api, name: str, standard: str) -> None:
    """E15: all in Baseline, and in Restricted those that the reviewed list does not name, with its rules."""
    await api.make_tenant(name, quota=QUOTA, rules={"standard": standard})
    refused: dict[str, set[str]] = {}
    expected: dict[str, set[str]] = {}
    for chart in REVIEWED:
        refused[chart["name"]] = await _installed(alice, name, _objects(chart, standard))
        listed: list[Json] = chart.get("restricted", []) if standard == "Restricted" else []
        expected[chart["name"]] = {rule for each in listed for rule in each["rules"]}
    assert refused == expected


def test_the_list_of_charts_is_complete() -> None:
    """E15: twenty charts; at most four are refused in Restricted, each with a rule and a fix."""
    assert len({each["name"] for each in REVIEWED}) == len(REVIEWED) == 20
    refused: list[Json] = [each for chart in REVIEWED for each in chart.get("restricted", [])]
    assert len(refused) <= 4
    assert all(each["rules"] and each["fix"] for each in refused)


def _objects(chart: Json, standard: str) -> list[Json]:
    module, function = chart["objects"].split(".")
    found: Callable[..., list[Json]] = getattr(importlib.import_module(f"testkit.charts.{module}"), function)
    return found(standard) if "further" in chart else found()


async def _installed(person: Api, namespace: str, objects: list[Json]) -> set[str]:
    """Return the rules that refuse an object, or a pod or claim that a controller would create for it."""
    order = {"ServiceAccount": 0, "Role": 1}
    refused: set[str] = set()
    for each in sorted(objects, key=lambda value: order.get(value["kind"], 2)):
        for value in (each, *_made_from(each)):
            refused |= await _created(person, namespace, value)
    return refused


async def _created(person: Api, namespace: str, value: Json) -> set[str]:
    group, _, version = value["apiVersion"].rpartition("/")
    kind = value["kind"]
    resource = Resource(group, version, PLURALS.get(kind, f"{kind.lower()}s"), kind)

    last: list[str] = []

    async def answered() -> tuple[str] | None:
        try:
            if kind in REALLY_MADE:
                await person.create(resource, value, namespace)
            else:
                await tried(person, resource, value, namespace)
        except Forbidden as error:
            # Quotas are counted, and rights on new kinds known, a moment after they were created.
            waits = NEVER_COUNTED in str(error) or " cannot " in str(error) or "attempting to grant" in str(error)
            last[:] = [str(error)]
            return None if waits else (str(error),)
        return ("",)

    what = f"the API server answers about {kind} {value['metadata']['name']}"
    told = (await until(answered, what, seen=lambda: last))[0]
    rules = set(re.findall(r"\(rule ([A-Za-z.]+) of ", told))
    return rules or ({told} if told else set())


def _made_from(value: Json) -> list[Json]:
    """Return the pod and the claims that controllers would create for a workload."""
    spec: Json = value.get("spec", {})
    spec = spec.get("jobTemplate", {}).get("spec", spec)
    if "template" not in spec:
        return []
    name, template = value["metadata"]["name"], spec["template"]
    pods = [{"apiVersion": "v1", "kind": "Pod", **template, "metadata": {**template["metadata"], "name": f"{name}-0"}}]
    claims: list[Json] = [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": f"{each['metadata']['name']}-{name}-0"},
        }
        | {"spec": each["spec"]}
        for each in spec.get("volumeClaimTemplates", [])
    ]
    return [*pods, *claims]
