"""Tenants and Subnamespaces with a control plane of their own on a real cluster: isolation.controlPlane."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tenantry.api import marks, reasons
from tenantry.api.errors import Forbidden, ServerError, Unreachable
from tenantry.api.kubernetes import Namespace, RoleBinding
from tenantry.api.model import Resource
from tenantry.api.planecredentials import KUBECONFIGS_NAMESPACE
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local import build
from tenantry.local.cluster import LocalCluster
from testkit.api import PODS, ROLES, SECONDS, SECRETS, Api, until
from testkit.planes import Planes, ready
from testkit.refusals import refusal
from testkit.suspensions import resume

pytest_plugins = ["testkit.fixtures", "testkit.planefixtures"]

Json = dict[str, Any]
PLANES = VirtualControlPlane.resource
REVIEWS = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
ALICE: Json = {"kind": "User", "name": "alice"}
VIRTUAL: Json = {"controlPlane": "Virtual"}


async def tenantry(*arguments: str, config: Path) -> str:
    """Run the command with a kubeconfig, and return its output."""
    variables = {key: value for key, value in os.environ.items() if key != "TENANTRY_NAME"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tenantry", *arguments, "--kubeconfig", str(config)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=variables,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, (arguments, out.decode(), err.decode())
    return out.decode()


async def kubectl(*arguments: str, config: Path) -> str:
    """Run kubectl with a kubeconfig, and return its output."""
    binaries = build.built()
    assert binaries is not None
    process = await asyncio.create_subprocess_exec(
        *(str(binaries.kubectl), *arguments, "--kubeconfig", str(config)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, (arguments, err.decode())
    return out.decode()


async def may(host: Api, verb: str, resource: str, namespace: str, name: str = "") -> bool:
    """Return whether alice has a right on the host; the resource is GROUP/PLURAL or GROUP/PLURAL/SUBRESOURCE."""
    group, plural, *rest = resource.split("/")
    asked = {"verb": verb, "group": group, "resource": plural, "namespace": namespace, "name": name}
    asked |= {"subresource": rest[0]} if rest else {}
    review = {"metadata": {}, "spec": {"user": "alice", "resourceAttributes": asked}}
    return bool((await host.create(REVIEWS, review))["status"]["allowed"])


async def child_ready(host: Api, name: str, namespace: str) -> Json:
    """Wait until a Subnamespace is ready, and return it."""
    seen: Json = {}

    async def so() -> Json | None:
        seen.update(await host.get(Subnamespace.resource, name, namespace))
        return seen if ready(seen).get("status") == "True" else None

    return await until(so, "the Subnamespace is ready", seconds=3 * SECONDS, seen=lambda: ready(seen))


REFUSED = [
    ("create", "/pods"),
    ("delete", "/pods"),
    ("create", "/pods/exec"),
    ("get", "/pods/exec"),
    ("create", "/pods/attach"),
    ("create", "/pods/portforward"),
    ("create", "/pods/ephemeralcontainers"),
    ("get", "/pods/log"),
    ("create", "/pods/eviction"),
    ("list", "/secrets"),
    ("get", "/secrets"),
    ("create", "/secrets"),
    ("list", "/configmaps"),
    ("create", "/configmaps"),
    ("create", "/services"),
    ("create", "/serviceaccounts"),
    ("create", "/serviceaccounts/token"),
    ("impersonate", "/serviceaccounts"),
    ("impersonate", "/users"),
    ("create", "/persistentvolumeclaims"),
    ("create", "apps/deployments"),
    ("create", "batch/jobs"),
    ("create", "networking.k8s.io/networkpolicies"),
    ("create", "rbac.authorization.k8s.io/roles"),
    ("create", "rbac.authorization.k8s.io/rolebindings"),
    ("bind", "rbac.authorization.k8s.io/clusterroles"),
    ("escalate", "rbac.authorization.k8s.io/roles"),
    ("create", "tenantry.dev/virtualcontrolplanes"),
    ("patch", "tenantry.dev/virtualcontrolplanes"),
    ("delete", "tenantry.dev/virtualcontrolplanes"),
    ("deletecollection", "tenantry.dev/virtualcontrolplanes"),
    ("create", "tenantry.dev/rolerequests"),
    ("approve", "tenantry.dev/rolerequests"),
    ("patch", "tenantry.dev/rolerequests/status"),
]
"""What an owner may not do on the host: a verb, and GROUP/PLURAL or GROUP/PLURAL/SUBRESOURCE."""

ALLOWED = [
    ("list", "/pods"),
    ("watch", "/events"),
    ("list", "events.k8s.io/events"),
    ("list", "/resourcequotas"),
    ("list", "tenantry.dev/virtualcontrolplanes"),
    ("create", "tenantry.dev/subnamespaces"),
    ("delete", "tenantry.dev/subnamespaces"),
    ("create", "tenantry.dev/sliceclaims"),
    ("get", "tenantry.dev/tenancyrules"),
]
"""What an owner still does on the host."""


async def test_a_tenant_with_a_control_plane_of_its_own(
    plane_cluster: LocalCluster, planes: Planes, name: str, tmp_path: Path
) -> None:
    """H01, H02: from the Tenant to kubectl inside; nothing but looking on the host; suspended, resumed, deleted."""
    host, admin = planes.host, plane_cluster.kubeconfig_path
    whole = {"owners": [ALICE], "isolation": VIRTUAL, "quota": {"hard": {"memory": "1Gi", "pods": "5"}}}
    await host.create(Tenant.resource, {"metadata": {"name": name}, "spec": whole})
    found = await host.ready(name)
    told = {each.type: each for each in found.status.conditions}
    assert told[reasons.CONTROL_PLANE_READY].status == "True"
    # Ready follows the control plane: it was not reported before.
    plane = await host.get(PLANES, name, name)
    assert ready(plane)["status"] == "True"
    assert plane["status"]["charged"]["requests.memory"] == "96Mi"
    assert (await host.get(NAMESPACES, name))["metadata"]["labels"][marks.CONTROL_PLANE] == name
    # An administrator gives the owner a user of the host; with it, the owner reads the kubeconfig.
    alice = tmp_path / "alice.kubeconfig"
    alice.write_text(await tenantry("kubeconfig", "--tenant", name, "--user", "alice", config=admin))
    inside = tmp_path / "inside.kubeconfig"
    inside.write_text(await tenantry("kubeconfig", "--tenant", name, config=alice))
    assert (await kubectl("config", "current-context", config=inside)).strip() == name
    assert "kube-system" in await kubectl("get", "namespaces", config=inside)
    await kubectl("create", "namespace", "shop", config=inside)
    assert "clusterrole" in await kubectl("create", "clusterrole", "r", "--verb=get", "--resource=pods", config=inside)
    for verb, resource in REFUSED:
        assert not await may(host, verb, resource, name), (verb, resource)
    for verb, resource in ALLOWED:
        assert await may(host, verb, resource, name), (verb, resource)
    place = plane["status"]["kubeconfigNamespace"]
    assert (place, plane["status"]["kubeconfigSecret"]) == (KUBECONFIGS_NAMESPACE, name)
    await only_gets_by_name(host, name)
    assert f"{name}-kubeconfig" not in await planes.names(SECRETS, name)
    assert "tenantry-owner" in await planes.names(ROLES, name)
    tree = await tenantry("tree", config=admin)
    assert f"control plane {name}" in tree
    assert "Control plane" in await tenantry("describe", "tenant", name, config=admin)
    assert (await tenantry("diff", name, config=admin)).strip() in {"", "no differences"}
    checked = msgspec.json.decode(await tenantry("audit", name, "-o", "json", config=admin))
    assert (checked["summary"]["failed"], checked["summary"]["errors"]) == (0, 0), [
        each for each in checked["checks"] if each["verdict"] in {"Failed", "Error"}
    ]
    await suspended_and_resumed(host, name, inside)
    await host.delete(Tenant.resource, name)

    async def gone() -> bool:
        return not await planes.exists(name) and await host.find(PLANES, name, name) is None

    await until(gone, "nothing is left", seconds=3 * SECONDS)
    await nothing_is_left(planes, name)
    assert not (plane_cluster.paths.folder / "hosted" / plane["metadata"]["uid"]).exists()


async def only_gets_by_name(host: Api, name: str) -> None:
    """Check that the owner may get the kubeconfig, and do nothing else where it is: a watch would stay open."""
    assert await may(host, "get", "/secrets", KUBECONFIGS_NAMESPACE, name)
    for verb, each in (("get", "other"), *((each, name) for each in ("list", "watch", "create", "patch", "delete"))):
        assert not await may(host, verb, "/secrets", KUBECONFIGS_NAMESPACE, each), (verb, each)


async def suspended_and_resumed(host: Api, name: str, inside: Path) -> None:
    """Check that the owner of a suspended tenant has no rights on the host nor inside, and gets them back."""
    await host.patch(Tenant.resource, name, {"spec": {"suspended": True}})
    await host.condition(name, reasons.SUSPENDED, holds=True)
    async with Client(kubeconfig.load([inside])) as client:
        user = Api(client)

        async def shut_out() -> bool:
            try:
                await user.list(NAMESPACES)
            except (Forbidden, ServerError, Unreachable):
                asked = ("list", "/pods", name), ("get", "/secrets", KUBECONFIGS_NAMESPACE, name)
                return not any([await may(host, *each) for each in asked])
            return False

        await until(shut_out, "the owner is shut out", seconds=2 * SECONDS)
        assert (await host.get(RoleBinding.resource, "tenantry-owner", name)).get("subjects", []) == []
        await resume(host, name)

        async def let_in() -> bool:
            try:
                names = [each["metadata"]["name"] for each in await user.list(NAMESPACES)]
                return "shop" in names and await may(host, "get", "/secrets", KUBECONFIGS_NAMESPACE, name)
            except (Forbidden, ServerError, Unreachable):
                return False

        await until(let_in, "the owner is back", seconds=2 * SECONDS)


async def nothing_is_left(planes: Planes, name: str) -> None:
    """Check that neither a kubeconfig nor a right to read it is left."""
    for resource in (SECRETS, ROLES, RoleBinding.resource):
        assert name not in await planes.names(resource, KUBECONFIGS_NAMESPACE), resource.plural


async def test_only_a_marked_control_plane_of_a_tenant_can_be_deleted(planes: Planes, name: str) -> None:
    """H01: owners cannot, an administrator not by mistake; if it is deleted, the tenant waits for an empty one."""
    host = planes.host
    await host.create(Tenant.resource, {"metadata": {"name": name}, "spec": {"owners": [ALICE], "isolation": VIRTUAL}})
    await host.ready(name)
    before = await host.get(PLANES, name, name)
    with pytest.raises(Forbidden, match="must not be deleted"):
        await host.delete(PLANES, name, name)
    async with Client(replace(host.client.connection, impersonate="alice")) as client:
        owner = Api(client)
        with pytest.raises(Forbidden, match="cannot delete resource"):
            await owner.delete(PLANES, name, name)
        with pytest.raises(Forbidden):
            await owner.patch(PLANES, name, {"metadata": {"annotations": {marks.ALLOW_DELETION: "true"}}}, name)
    # Someone with every right in the namespace, but none beyond it, cannot either.
    role = {"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}
    await host.create(ROLES, {"metadata": {"name": "all"}, **role}, name)
    reference = {"kind": "Role", "name": "all", "apiGroup": "rbac.authorization.k8s.io"}
    subjects = [{"kind": "User", "name": "mallory"}]
    await host.create(
        RoleBinding.resource, {"metadata": {"name": "all"}, "roleRef": reference, "subjects": subjects}, name
    )
    mallory = {"kind": "User", "name": "mallory"}
    await until(lambda: host.may(mallory, "delete", "tenantry.dev", PLANES.plural, name), "mallory has all rights")
    async with Client(replace(host.client.connection, impersonate="mallory")) as client:
        other = Api(client)
        with pytest.raises(Forbidden, match="must not be"):
            await other.patch(PLANES, name, {"metadata": {"annotations": {marks.ALLOW_DELETION: "true"}}}, name)
        with pytest.raises(Forbidden, match="must not be deleted"):
            await other.delete(PLANES, name, name)
        with pytest.raises(Forbidden, match="is Tenantry's"):
            await other.patch(ROLES, "tenantry-owner", role, name)
    await host.patch(PLANES, name, {"metadata": {"annotations": {marks.ALLOW_DELETION: "true"}}}, name)
    await host.delete(PLANES, name, name)

    async def is_new() -> bool:
        found = await host.find(PLANES, name, name)
        return found is not None and found["metadata"]["uid"] != before["metadata"]["uid"]

    await until(is_new, "an empty control plane is created", seconds=2 * SECONDS)
    await planes.ready(name, name)
    assert (await host.ready(name)).status.conditions


async def test_the_field_is_checked_when_it_is_written(planes: Planes, name: str) -> None:
    """H01: the name must fit, and no binding is inherited."""
    host = planes.host
    await host.make_tenant(name, owners=[ALICE])
    long = {"metadata": {"name": "a" * 41}, "spec": {"owners": [ALICE], "isolation": VIRTUAL}}
    assert "at most 40 characters" in await refusal(host, Tenant.resource, long, "")
    child = {
        "metadata": {"name": "web"},
        "spec": {"mode": "Workspace", "isolation": VIRTUAL, "inheritance": {"roleBindings": "Sync"}},
    }
    assert "inherited bindings would give rights" in await refusal(host, Subnamespace.resource, child, name)
    await host.delete(Tenant.resource, name)


@pytest.mark.long
async def test_a_subnamespace_with_a_control_plane_of_its_own(
    plane_cluster: LocalCluster, planes: Planes, name: str, tmp_path: Path
) -> None:
    """H01, E05: a customer of a tenant that shares the API server; the parent sees neither the pods nor the Secret."""
    host, admin = planes.host, plane_cluster.kubeconfig_path
    await host.make_tenant(name, owners=[{"kind": "User", "name": "root-of-tree"}], quota={"hard": {"pods": "5"}})
    spec = {"mode": "Subtenant", "owners": [ALICE], "isolation": VIRTUAL, "quota": {"hard": {"pods": "2"}}}
    await host.create(Subnamespace.resource, {"metadata": {"name": "shop"}, "spec": spec}, name)
    child = await child_ready(host, "shop", name)
    namespace = child["status"]["namespace"]
    told = {each["type"]: each["status"] for each in child["status"]["conditions"]}
    assert told[reasons.CONTROL_PLANE_READY] == "True"
    for verb, resource in REFUSED:
        assert not await may(host, verb, resource, namespace), (verb, resource)
    parent = {"kind": "User", "name": "root-of-tree"}
    for plural in ("pods", "secrets"):
        assert not await host.may(parent, "list", "", plural, namespace)
    # The owner of the parent does not read the kubeconfig, and has no right to one of its own.
    async with Client(replace(host.client.connection, impersonate="root-of-tree")) as client:
        for each in (namespace, name):
            with pytest.raises(Forbidden):
                await Api(client).get(SECRETS, each, KUBECONFIGS_NAMESPACE)
    assert await may(host, "get", "/secrets", KUBECONFIGS_NAMESPACE, namespace)
    inside = tmp_path / "inside.kubeconfig"
    inside.write_text(await tenantry("kubeconfig", "-n", namespace, config=admin))
    assert (await kubectl("config", "current-context", config=inside)).strip() == "shop"
    await kubectl("run", "front", "--image=nginx", config=inside)
    await kubectl("wait", "pod/front", "--for=condition=Ready", "--timeout=120s", config=inside)
    assert [each["metadata"]["labels"]["run"] for each in await host.list(PODS, namespace)] == ["front"]
    # Children do not inherit the choice, and an owner without rights of its own still manages the tree.
    async with Client(replace(host.client.connection, impersonate="alice")) as client:
        below = {"mode": "Workspace", "owners": [ALICE], "quota": {"hard": {"pods": "1"}}}
        await Api(client).create(Subnamespace.resource, {"metadata": {"name": "lab"}, "spec": below}, namespace)
    lab = (await child_ready(host, "lab", namespace))["status"]["namespace"]
    assert await planes.names(PLANES, lab) == []
    assert marks.CONTROL_PLANE not in (await host.get(Namespace.resource, lab))["metadata"]["labels"]
    assert await may(host, "create", "/pods", lab)
    await host.delete(Tenant.resource, name)

    async def gone() -> bool:
        return not await planes.exists(name) and not await planes.exists(namespace)

    await until(gone, "nothing is left", seconds=3 * SECONDS)
    assert await host.find(SECRETS, namespace, KUBECONFIGS_NAMESPACE) is None
