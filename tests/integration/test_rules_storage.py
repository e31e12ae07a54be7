"""What rules refuse of claims, tried with the owner's own certificate, and the StorageClass that claims get."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tenantry.api.errors import Forbidden
from tenantry.api.model import Resource
from tenantry.api.tenant import Tenant
from tenantry.local.cluster import LocalCluster
from testkit.api import PODS, Api, until
from testkit.operators import Operator
from testkit.people import as_person
from testkit.refusals import refusal, tried

pytest_plugins = ["testkit.fixtures"]

Json = dict[str, Any]

CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
OLD_NAME = "volume.beta.kubernetes.io/storage-class"
DEFAULT_MARK = {"storageclass.kubernetes.io/is-default-class": "true"}
SIZE = {"requests": {"storage": "1Gi"}}


@pytest_asyncio.fixture
async def alice(tenancy: LocalCluster, tmp_path: Path) -> AsyncGenerator[Api]:
    """The owner, with a certificate of her own."""
    async with as_person(tenancy, tmp_path, "alice") as person:
        yield person


@pytest_asyncio.fixture
async def classes(api: Api) -> AsyncGenerator[None]:
    """StorageClasses of either reclaim policy, of which one is the cluster's default."""
    await make_class(api, "fast", "Delete", DEFAULT_MARK)
    await make_class(api, "slow", "Delete")
    await make_class(api, "kept", "Retain")
    yield
    for name in ("fast", "slow", "kept"):
        await api.delete(CLASSES, name)


async def make_class(api: Api, name: str, policy: str, annotations: Mapping[str, str] = {}) -> None:
    """Make a StorageClass that makes no volumes."""
    metadata = {"name": name, "annotations": dict(annotations)}
    provisioner = "kubernetes.io/no-provisioner"
    await api.create(CLASSES, {"metadata": metadata, "provisioner": provisioner, "reclaimPolicy": policy})


async def known(person: Api, namespace: str) -> None:
    """Wait until the API server knows the StorageClasses: it learns of them in order, a moment after they are made."""

    async def so() -> bool:
        return "'kept', whose reclaimPolicy is Retain" in await refusal(person, CLAIMS, of_class("kept"), namespace)

    await until(so, "the StorageClasses are known")


def claim(annotations: Mapping[str, str] | None = None, **spec: object) -> Json:
    """Return a claim."""
    metadata = {"name": "c", "annotations": dict(annotations or {})}
    return {"metadata": metadata, "spec": {"accessModes": ["ReadWriteOnce"], "resources": SIZE, **spec}}


def of_class(name: str) -> Json:
    """Return a claim of a StorageClass."""
    return claim(storageClassName=name)


@pytest.mark.usefixtures("classes")
async def test_existing_volumes_cannot_be_claimed(api: Api, alice: Api, operator: Operator, name: str) -> None:
    """E15, H06: not by name, by label, without a class, nor of a class that keeps volumes; the operator is down."""
    await api.make_tenant(name)
    await known(alice, name)
    await operator.stop()
    told = "(rule storageClasses.existingVolumes of Tenantry's standard)"
    for value in (
        claim(volumeName="v", storageClassName="fast"),
        claim(selector={"matchLabels": {"a": "b"}}),
        of_class(""),
        claim({OLD_NAME: ""}),
    ):
        assert told in await refusal(alice, CLAIMS, value, name), value
    for value in (of_class("kept"), claim({OLD_NAME: "kept"}), claim({OLD_NAME: "kept"}, storageClassName="fast")):
        assert (
            "claim 'c' has the StorageClass 'kept', whose reclaimPolicy is Retain (rule storageClasses.reclaimPolicies"
            " of TenancyRules 'tenantry'): must be one whose reclaimPolicy is Delete"
        ) in await refusal(alice, CLAIMS, value, name), value
    await alice.create(CLAIMS, of_class("fast"), name)
    assert told in await refusal(alice, CLAIMS, {"spec": {"volumeName": "v"}}, name, patch="c")
    assert not await refusal(alice, CLAIMS, {"metadata": {"labels": {"a": "b"}}}, name, patch="c")


@pytest.mark.usefixtures("classes")
async def test_no_claim_names_the_node_of_its_volume(  # noqa: PLR0917 - fixtures
    api: Api, alice: Api, operator: Operator, name: str, tenancy: LocalCluster, tmp_path: Path
) -> None:
    """E15: a pod goes where its volume is, so that this would be to name the pod's node; the scheduler does name it."""
    await api.make_tenant(name)
    await known(alice, name)
    await operator.stop()
    told = "claim 'c' names the node of its volume (rule scheduling.nodeName of Tenantry's standard): leave out the"
    chosen = {"volume.kubernetes.io/selected-node": "n"}
    assert told in await refusal(alice, CLAIMS, claim(chosen, storageClassName="fast"), name)
    await alice.create(CLAIMS, of_class("fast"), name)
    later = {"metadata": {"annotations": chosen}}
    assert told in await refusal(alice, CLAIMS, later, name, patch="c")
    async with as_person(tenancy, tmp_path, "system:kube-scheduler") as scheduler:
        await scheduler.patch(CLAIMS, "c", later, name)
    assert not await refusal(alice, CLAIMS, {"metadata": {"labels": {"a": "b"}}}, name, patch="c")


def volume(name: str, class_name: str, **spec: object) -> Json:
    """Return a PersistentVolume that outlives its claim."""
    own: Json = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": class_name,
        "csi": {"driver": "disks.example.com", "volumeHandle": name},
    }
    return {"metadata": {"name": name}, "spec": own | spec}


async def bound(person: Api, claim_name: str, namespace: str, to: str) -> None:
    """Wait until a claim has a volume."""

    async def so() -> bool:
        found = await person.get(CLAIMS, claim_name, namespace)
        return found["spec"].get("volumeName") == to

    await until(so, "the claim has its volume")


@pytest_asyncio.fixture
async def volumes(api: Api) -> AsyncGenerator[list[str]]:
    """The names of PersistentVolumes that are deleted in the end."""
    names: list[str] = []
    yield names
    for each in names:
        await api.delete(VOLUMES, each)


@pytest.mark.usefixtures("classes")
async def test_no_claim_is_bound_to_a_volume_that_another_left(
    api: Api, alice: Api, operator: Operator, name: str, volumes: list[str]
) -> None:
    """E15, H06: not of an unknown class, nor of a class without provisioner; the operator is down.

    The binder does not tell that it was refused. Therefore the test waits until it binds a claim that was created
    later, to a volume reserved for it, and reads the other claims then.
    """
    await api.make_tenant(name)
    await known(alice, name)
    await operator.stop()
    for class_name in ("unknown", "slow"):
        volumes.append(f"{name}-{class_name}")
        await api.create(VOLUMES, volume(volumes[-1], class_name))
        value = of_class(class_name)
        value["metadata"]["name"] = class_name
        await alice.create(CLAIMS, value, name)
    volumes.append(f"{name}-reserved")
    reserved = {"claimRef": {"kind": "PersistentVolumeClaim", "namespace": name, "name": "c"}}
    await api.create(VOLUMES, volume(volumes[-1], "slow", **reserved))
    await alice.create(CLAIMS, of_class("slow"), name)
    await bound(alice, "c", name, f"{name}-reserved")
    for class_name in ("unknown", "slow"):
        assert "volumeName" not in (await alice.get(CLAIMS, class_name, name))["spec"]
        assert "claimRef" not in (await api.get(VOLUMES, f"{name}-{class_name}"))["spec"]
    assert not await refusal(alice, CLAIMS, {"metadata": {"labels": {"a": "b"}}}, name, patch="c")


@pytest.mark.usefixtures("operator")
async def test_the_scheduler_binds_no_existing_volume_either(
    api: Api, name: str, volumes: list[str], tenancy: LocalCluster, tmp_path: Path
) -> None:
    """E15: it writes the claimRef for classes that wait for a pod; an administrator may reserve a volume."""
    await api.make_tenant(name)
    volumes.append(name)
    await api.create(VOLUMES, volume(name, "unknown"))
    reference = {"kind": "PersistentVolumeClaim", "namespace": name, "name": "c", "uid": "1"}
    async with as_person(tenancy, tmp_path, "system:kube-scheduler") as scheduler:
        told = await refusal(scheduler, VOLUMES, {"spec": {"claimRef": reference}}, "", patch=name)
    assert (
        f"PersistentVolume '{name}' existed before PersistentVolumeClaim 'c' of namespace '{name}' (rule"
        " storageClasses.existingVolumes): reserve it with spec.claimRef.namespace and name, or set"
    ) in told, told
    assert not await refusal(api, VOLUMES, {"spec": {"claimRef": reference}}, "", patch=name)


@pytest.mark.usefixtures("classes", "operator")
async def test_an_administrator_may_let_claims_take_existing_volumes(
    api: Api, alice: Api, name: str, volumes: list[str]
) -> None:
    """E15: the rule is a field of the Tenant, and what has no tenant is bound as ever."""
    await api.make_tenant(name, rules={"storageClasses": {"existingVolumes": "Allow"}})
    volumes.append(name)
    await api.create(VOLUMES, volume(name, "slow"))
    await tried(alice, CLAIMS, of_class("slow"), name)
    await alice.create(CLAIMS, of_class("slow"), name)
    await bound(alice, "c", name, name)
    volumes.append(f"{name}-default")
    await api.create(VOLUMES, volume(volumes[-1], "slow"))
    value = of_class("slow")
    value["metadata"]["name"] = name
    await api.create(CLAIMS, value, "default")
    await bound(api, name, "default", f"{name}-default")
    await api.delete(CLAIMS, name, "default")


@pytest.mark.usefixtures("classes", "operator")
async def test_claims_get_the_class_of_the_rules(api: Api, alice: Api, name: str) -> None:
    """E15: who names no class gets the tenant's default, whatever the cluster's is; who names one keeps it."""
    await api.make_tenant(name)
    assert (await tried(alice, CLAIMS, claim(), name))["spec"]["storageClassName"] == "fast"
    rules = {"storageClasses": {"default": "slow", "allowed": ["fast", "slow"]}}
    await api.patch(Tenant.resource, name, {"spec": {"rules": rules}})

    async def so() -> bool:
        return (await tried(alice, CLAIMS, claim(), name))["spec"]["storageClassName"] == "slow"

    await until(so, "the tenant's own default is in force")
    assert (await tried(alice, CLAIMS, of_class("fast"), name))["spec"]["storageClassName"] == "fast"
    for value in (of_class("other"), claim({OLD_NAME: "other"}), of_class("")):
        assert f"(rule storageClasses.allowed of Tenant '{name}'): must be one of fast, slow" in await refusal(
            alice, CLAIMS, value, name
        )


@pytest.mark.usefixtures("classes", "operator")
async def test_claims_of_pods_go_by_the_rules_too(api: Api, alice: Api, name: str) -> None:
    """E15, H06: a volume that a pod brings along is claimed by Kubernetes, in the tenant's name."""
    await api.make_tenant(name)
    await known(alice, name)
    volume = {"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": of_class("kept")["spec"]}}}
    spec = {"containers": [{"name": "c", "image": "busybox"}], "volumes": [volume]}
    await alice.create(PODS, {"metadata": {"name": "p"}, "spec": spec}, name)

    async def refused() -> bool:
        events = await api.list(Resource("", "v1", "events", "Event"), name)
        return any("rule storageClasses.reclaimPolicies" in each["message"] for each in events)

    await until(refused, "Kubernetes was refused the claim")
    assert not await api.list(CLAIMS, name)


@pytest.mark.usefixtures("classes", "operator")
async def test_an_administrator_may_let_volumes_stay(api: Api, alice: Api, name: str) -> None:
    """E15: only an administrator decides reclaim policies."""
    await api.make_tenant(name, rules={"storageClasses": {"reclaimPolicies": ["Delete", "Retain"]}})
    assert not await refusal(alice, CLAIMS, of_class("kept"), name)
    with pytest.raises(Forbidden):
        await alice.patch(
            Resource("", "v1", "namespaces", "Namespace", namespaced=False),
            name,
            {"metadata": {"labels": {"tenantry.dev/reclaim-policies": "Retain"}}},
        )
    # What was made of the class before is looked at as it is now.
    await api.patch(Tenant.resource, name, {"spec": {"rules": None}})

    async def so() -> bool:
        return "rule storageClasses.reclaimPolicies" in await refusal(alice, CLAIMS, of_class("kept"), name)

    await until(so, "the usual holds again")
