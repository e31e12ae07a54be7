"""Virtual control planes on a real cluster with simulated nodes: what runs inside, and what the host makes of it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.errors import Forbidden, ServerError, Unauthorized, Unreachable
from tenantry.api.model import Resource
from tenantry.api.node import Node
from tenantry.api.tenant import Tenant
from tenantry.api.virtualcontrolplane import KUBECONFIG_KEY, MIRROR, MIRRORS_NAMESPACE, PREFIX, VirtualControlPlane
from tenantry.kube.client import Client
from tenantry.local.cluster import LocalCluster
from tenantry.local.control import SupervisorRequest, order
from tenantry.local.process import kill_if_same
from tenantry.local.state import read_state
from testkit.api import CONFIG_MAPS, EVENTS, PODS, SECONDS, SECRETS, SERVICE_ACCOUNTS, Api, until
from testkit.planes import Planes, ready
from testkit.refusals import refusal

pytest_plugins = ["testkit.fixtures", "testkit.planefixtures"]

Json = dict[str, Any]

DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
ROLE_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")
CLUSTER_ROLE_BINDINGS = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)
CONTAINER: Json = {"name": "c", "image": "busybox"}


def pod(name: str, **spec: object) -> Json:
    """Return a pod."""
    return {"metadata": {"name": name}, "spec": {"containers": [CONTAINER], **spec}}


def all_of(
    check: Callable[[list[Json]], bool], api: Api, resource: Resource, namespace: str
) -> Callable[[], Awaitable[Any]]:
    """Return a check of all objects of a kind in a namespace, for `until`."""

    async def so() -> list[Json] | None:
        found = await api.list(resource, namespace)
        return (found or [{}]) if check(found) else None

    return so


def are_running(many: int) -> Callable[[list[Json]], bool]:
    """Return whether there are so many pods, and all of them run."""
    return lambda found: len(found) == many and all(each["status"].get("phase") == "Running" for each in found)


async def refused(inside: Api, name: str) -> str:
    """Return the message with which a pod inside is refused by the host."""

    async def so() -> str:
        status = (await inside.get(PODS, name, "default")).get("status", {})
        found = [each for each in status.get("conditions", []) if each["type"] == "PodScheduled"]
        return found[0]["message"] if found and found[0].get("reason") == reasons.HOST_REFUSED else ""

    return await until(so, f"pod {name!r} is refused")


async def test_a_pod_inside_is_mirrored_under_the_hosts_rules(
    plane_cluster: LocalCluster, planes: Planes, name: str
) -> None:
    """H01: a Deployment runs; the host sees pods of its own; what the host ends, the controllers inside replace."""
    host = planes.host
    await host.make_tenant(name, quota={"hard": {"pods": 4, "cpu": "4", "memory": "8Gi"}})
    made = await planes.create(name, "web")
    async with planes.entered(name, "web") as inside:
        await inside.create(CONFIG_MAPS, {"metadata": {"name": "conf"}, "data": {"a": "1"}}, "default")
        labels = {"app": "web"}
        spec = {"containers": [{**CONTAINER, "envFrom": [{"configMapRef": {"name": "conf"}}]}]}
        template = {"metadata": {"labels": labels}, "spec": spec}
        deployment = {"replicas": 3, "selector": {"matchLabels": labels}, "template": template}
        await inside.create(DEPLOYMENTS, {"metadata": {"name": "web"}, "spec": deployment}, "default")
        upper = await until(all_of(are_running(3), inside, PODS, "default"), "three pods run", seconds=2 * SECONDS)
        lower = await host.list(PODS, name)
        hosts = {each["metadata"]["name"] for each in await host.list(Node.resource)}
        known = {each["metadata"]["name"] for each in await inside.list(Node.resource)}
        assert {each["spec"]["nodeName"] for each in upper} <= known
        assert not known & hosts
        assert not {each["spec"]["nodeName"] for each in lower} - hosts
        assert {each["status"]["podIP"] for each in upper} == {each["status"]["podIP"] for each in lower}
        assert not _node_addresses(upper) & _node_addresses(lower)
        for each in lower:
            meta = each["metadata"]
            assert [owner["uid"] for owner in meta["ownerReferences"]] == [made["metadata"]["uid"]]
            assert meta["annotations"][f"{PREFIX}/namespace"] == "default"
            assert each["spec"]["automountServiceAccountToken"] is False
            assert each["spec"].get("serviceAccountName", "default") == "default"
        # One for each pod, the kubeconfig apart; the copies of conf and of the root certificate are shared.
        assert len(await host.list(SECRETS, name)) == 4
        assert len([each for each in await planes.names(CONFIG_MAPS, name) if each != "kube-root-ca.crt"]) == 2
        # The fifth pod does not fit the tenant's quota, whatever the control plane inside allows.
        for number in range(2):
            await inside.create(PODS, pod(f"more-{number}"), "default")
        told = await asyncio.gather(*(_outcome(inside, f"more-{number}") for number in range(2)))
        assert sorted(message.count("exceeded quota") for message in told) == [0, 1]
        for number in range(2):
            await inside.delete(PODS, f"more-{number}", "default")
        # An eviction on the host.
        await host.delete(PODS, lower[0]["metadata"]["name"], name)
        uids = {each["metadata"]["uid"] for each in upper}

        def replaced(found: list[Json]) -> bool:
            return are_running(3)(found) and {each["metadata"]["uid"] for each in found} != uids

        await until(all_of(replaced, inside, PODS, "default"), "the pod is replaced", seconds=2 * SECONDS)
        await inside.patch(CONFIG_MAPS, "conf", {"data": {"a": "2"}}, "default")

        def followed(found: list[Json]) -> bool:
            return any(each.get("data") == {"a": "2"} for each in found)

        await until(all_of(followed, host, CONFIG_MAPS, name), "the copy follows its source")
        await inside.delete(DEPLOYMENTS, "web", "default")
        await until(all_of(lambda found: not found, host, PODS, name), "no pod is left", seconds=2 * SECONDS)

        def only_own(found: list[Json]) -> bool:
            return [each["metadata"]["name"] for each in found] in (["kube-root-ca.crt"], ["web-kubeconfig"])

        await until(all_of(only_own, host, CONFIG_MAPS, name), "no copy is left")
        await until(all_of(only_own, host, SECRETS, name), "no token is left")
        await inside.create(PODS, pod("last"), "default")
        await until(all_of(are_running(1), inside, PODS, "default"), "a last pod runs")
    uid = made["metadata"]["uid"]
    assert (plane_cluster.paths.folder / "hosted" / uid).exists()
    await planes.delete(name, "web")
    assert not (plane_cluster.paths.folder / "hosted" / uid).exists()
    await until(all_of(lambda found: not found, host, PODS, name), "no pod is left", seconds=2 * SECONDS)


def _node_addresses(pods: list[Json]) -> set[str]:
    return {each["status"]["hostIP"] for each in pods if "hostIP" in each["status"]}


async def _outcome(inside: Api, name: str) -> str:
    """Return the host's refusal of a pod; "" if it runs."""

    async def so() -> str | None:
        status = (await inside.get(PODS, name, "default")).get("status", {})
        conditions = [each for each in status.get("conditions", []) if each.get("reason") == reasons.HOST_REFUSED]
        return conditions[0]["message"] if conditions else "" if status.get("phase") == "Running" else None

    async def told() -> list[str]:
        found = await so()
        return [] if found is None else [found]

    return (await until(told, f"pod {name!r} runs or is refused"))[0]


async def test_what_users_may_not_do_inside_is_refused(planes: Planes, name: str) -> None:
    """H01, X01: by the host, in its own words, as a condition and an event; never by a pod that just waits."""
    await planes.host.make_tenant(name)
    await planes.create(name, "web")
    async with planes.entered(name, "web") as inside:
        privileged = {**CONTAINER, "securityContext": {"privileged": True}}
        cases = {
            "privileged": ({"containers": [privileged]}, "podSecurity.privileged"),
            "hostpath": ({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}, "podSecurity.hostPath"),
            "bound": ({"nodeName": "blue-1"}, "spec.nodeName is set by the mirror alone"),
            "scheduled": ({"schedulerName": "mine"}, "schedulerName"),
        }
        for each, (spec, _) in cases.items():
            await inside.create(PODS, pod(each, **spec), "default")
        for each, (_, words) in cases.items():
            assert words in await refused(inside, each)
        assert await planes.names(PODS, name) == []

        def are_told(found: list[Json]) -> bool:
            told = [each["regarding"]["name"] for each in found if each["reason"] == reasons.HOST_REFUSED]
            return sorted(told) == sorted(cases)

        await until(all_of(are_told, inside, EVENTS, "default"), "each has one event")
        # A user's marks do not reach the host, and a pod finds only what is inside under a name.
        marks = {f"{PREFIX}/name": "other", "tenantry.dev/tenant": "other", "mine": "kept"}
        volumes = [{"name": "v", "secret": {"secretName": "web-kubeconfig", "optional": True}}]
        await inside.create(
            PODS, {**pod("sly", volumes=volumes), "metadata": {"name": "sly", "annotations": marks}}, "default"
        )
        (found,) = await until(all_of(lambda found: len(found) == 1, planes.host, PODS, name), "it is mirrored")
        kept = found["metadata"]["annotations"]
        assert (kept[f"{PREFIX}/name"], kept.get("tenantry.dev/tenant"), kept["mine"]) == ("sly", None, "kept")
        named = {each["secret"]["secretName"] for each in found["spec"]["volumes"] if "secret" in each}
        assert "web-kubeconfig" not in named
        # The binding of the users comes back, and so do their rights.
        await inside.delete(CLUSTER_ROLE_BINDINGS, "tenantry:owners")

        async def back() -> bool:
            try:
                await inside.list(PODS, "default")
            except Forbidden:
                return False
            return True

        await until(back, "the users have their rights again")


async def test_credentials_of_one_side_are_worth_nothing_on_the_other(planes: Planes, name: str) -> None:
    """H01: neither the user of a control plane at the host, nor a token of it; owners do not write the marks."""
    await planes.host.make_tenant(name)
    await planes.create(name, "web")
    async with planes.entered(name, "web") as inside:
        asked: Json = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        path = "/api/v1/namespaces/default/serviceaccounts/default/token"
        body = msgspec.json.encode(asked)
        token = msgspec.json.decode(await inside.client.request("POST", path, body=body))
        host = planes.host.client.connection.detached()
        as_token = replace(host, certificate=None, key=None, token=token["status"]["token"])
        user = inside.client.connection
        as_user = replace(host, certificate=user.certificate, key=user.key)
        for each in (as_token, as_user):
            async with Client(each) as client:
                try:
                    await client.request("GET", f"/api/v1/namespaces/{name}/pods")
                    raise AssertionError("the host knows a user of the control plane")
                except Unauthorized:
                    pass
    owner = replace(planes.host.client.connection, impersonate="alice")
    async with Client(owner) as client:
        forged = {**pod("forged"), "metadata": {"name": "forged", "annotations": {f"{PREFIX}/name": "x"}}}
        assert "is Tenantry's" in await refusal(Api(client), PODS, forged, name)
        own = {"metadata": {"name": "mine"}, "spec": {}}
        # Owners create control planes, charged to their quota (test_vcp_quota.py), in their own namespaces only.
        assert await refusal(Api(client), VirtualControlPlane.resource, own, name) == ""
        assert "cannot create resource" in await refusal(Api(client), VirtualControlPlane.resource, own, "default")


async def test_what_the_mirror_needs_on_the_host_comes_back(planes: Planes, name: str) -> None:
    """H01: what is deleted or changed there is restored at once, and Ready is reported only if that succeeds."""
    host = planes.host
    await host.make_tenant(name)
    await planes.create(name, "web")
    kept = {
        SERVICE_ACCOUNTS: (name, MIRRORS_NAMESPACE),
        ROLE_BINDINGS: (f"{MIRROR}-web", name),
        SECRETS: ("web-kubeconfig", name),
    }
    before = {resource: await host.get(resource, *each) for resource, each in kept.items()}

    async def are_back() -> bool:
        found = {resource: await host.find(resource, *each) for resource, each in kept.items()}
        return all(
            each is not None
            and each["metadata"]["uid"] != before[resource]["metadata"]["uid"]
            and each.get("data") == before[resource].get("data")
            for resource, each in found.items()
        )

    for resource, each in kept.items():
        await host.delete(resource, *each)
    await until(are_back, "they are back")
    # An owner may write Secrets, and make one immutable, which the API server does not take back.
    async with Client(replace(host.client.connection, impersonate="alice")) as client:
        owner, changed = Api(client), {"data": {KUBECONFIG_KEY: "AAAA"}}

        async def is_right() -> bool:
            found = await host.find(SECRETS, "web-kubeconfig", name)
            return found is not None and found["data"] == before[SECRETS]["data"]

        for edit in (changed, {**changed, "immutable": True}):
            await owner.patch(SECRETS, "web-kubeconfig", edit, name)
            await until(is_right, "the kubeconfig is back")
    async with planes.entered(name, "web") as inside:
        # Its token was of a ServiceAccount that is gone.
        await inside.create(PODS, pod("on"), "default")
        await until(all_of(are_running(1), inside, PODS, "default"), "the pod runs")
    # The host refuses to restore it.
    await host.create(QUOTAS, {"metadata": {"name": "none"}, "spec": {"hard": {"count/secrets": "0"}}}, name)

    async def is_in_force() -> bool:
        return "exceeded quota" in await refusal(host, SECRETS, {"metadata": {"name": "more"}}, name)

    await until(is_in_force, "the quota is in force")
    await host.delete(SECRETS, "web-kubeconfig", name)
    seen: list[Json] = []

    async def told() -> bool:
        seen[:] = [ready(await host.get(VirtualControlPlane.resource, "web", name))]
        return seen[0]["status"] == "False" and "cannot be restored" in seen[0]["message"]

    await until(told, "the status says so", seen=lambda: seen)
    await host.delete(QUOTAS, "none", name)
    await planes.ready(name, "web")
    assert await host.find(SECRETS, "web-kubeconfig", name) is not None
    await planes.delete(name, "web")


@pytest.mark.long
async def test_it_survives_the_end_of_every_process(plane_cluster: LocalCluster, planes: Planes, name: str) -> None:
    """H01: operator and control plane are killed; pods stay the same ones, and what was missed is made up for."""
    await planes.host.make_tenant(name)
    made = await planes.create(name, "web")
    async with planes.entered(name, "web") as inside:
        for number in range(3):
            await inside.create(PODS, pod(f"p{number}"), "default")
        await until(all_of(are_running(3), inside, PODS, "default"), "the pods run")
        before = {each["metadata"]["uid"] for each in await planes.host.list(PODS, name)}
        for component in ("operator", f"hosted@{name}.web"):
            state = read_state(plane_cluster.paths)
            found = state.component(component) if state is not None else None
            assert found is not None
            assert kill_if_same(found.pid, found.start_ticks, signal.SIGKILL)

        async def answers() -> bool:
            try:
                await inside.delete(PODS, "p0", "default")
                await inside.create(PODS, pod("p3"), "default")
            except Exception as error:  # noqa: BLE001 - it is away for a moment
                return "already" in str(error)
            return True

        await until(answers, "the API server is back", seconds=2 * SECONDS)

        def are_those(found: list[Json]) -> bool:
            names = {each["metadata"]["annotations"][f"{PREFIX}/name"] for each in found}
            return names == {"p1", "p2", "p3"} and are_running(3)(found)

        after = await until(all_of(are_those, planes.host, PODS, name), "the mirror goes on", seconds=3 * SECONDS)
        assert len({each["metadata"]["uid"] for each in after} & before) == 2
    assert ready(await planes.ready(name, "web"))["reason"] == reasons.ESTABLISHED
    # The tenant goes with everything in it, the process included.
    await planes.host.delete(Tenant.resource, name)

    async def gone() -> bool:
        return not (
            plane_cluster.paths.folder / "hosted" / made["metadata"]["uid"]
        ).exists() and not await planes.exists(name)

    await until(gone, "nothing is left", seconds=3 * SECONDS)


async def test_a_control_plane_that_is_away_is_not_ready(
    plane_cluster: LocalCluster, planes: Planes, name: str
) -> None:
    """H01: Ready means usable; its pods run on, and it is ready again when it answers."""
    await planes.host.make_tenant(name)
    await planes.create(name, "web")
    async with planes.entered(name, "web") as inside:
        await inside.create(PODS, pod("on"), "default")
        await until(all_of(are_running(1), inside, PODS, "default"), "the pod runs")
    component = f"hosted@{name}.web"
    seen: list[Json] = []

    async def away() -> bool:
        seen[:] = [ready(await planes.host.get(VirtualControlPlane.resource, "web", name))]
        return seen[0].get("status") == "False" and "does not answer" in seen[0]["message"]

    await order(plane_cluster.paths.socket, SupervisorRequest(verb="stop", component=component), SECONDS)
    await until(away, "the status says so", seen=lambda: seen)
    assert [each["status"]["phase"] for each in await planes.host.list(PODS, name)] == ["Running"]
    await order(plane_cluster.paths.socket, SupervisorRequest(verb="start", component=component), SECONDS)
    await planes.ready(name, "web")


async def test_a_suspension_closes_the_control_plane(planes: Planes, name: str) -> None:
    """H01, E02: users have no access inside while their tenant is suspended, whatever kubeconfig they have kept."""
    host = planes.host
    await host.make_tenant(name)
    await planes.create(name, "web")
    async with planes.entered(name, "web") as inside:

        async def may() -> bool:
            try:
                await inside.list(PODS, "default")
            except (Forbidden, ServerError, Unreachable):
                return False
            return True

        async def may_not() -> bool:
            return not await may()

        async def is_back() -> Json | None:
            try:
                return await inside.find(CLUSTER_ROLE_BINDINGS, "tenantry:owners")
            except Forbidden:
                return None

        async def has_subjects(*, holds: bool) -> bool:
            return bool((await host.get(ROLE_BINDINGS, f"{MIRROR}-web", name)).get("subjects")) is holds

        assert await may()
        await host.patch(Tenant.resource, name, {"spec": {"suspended": True}})
        await until(may_not, "the users have no access")
        # The mirror has no rights, either, also when the operator restores what it needs.
        await until(lambda: has_subjects(holds=False), "the binding of the mirror is empty")
        await host.delete(SECRETS, "web-kubeconfig", name)
        await until(lambda: host.find(SECRETS, "web-kubeconfig", name), "the Secret is back")
        assert await has_subjects(holds=False)
        await host.patch(Tenant.resource, name, {"spec": {"suspended": False}})
        await until(may, "the users have access again")
        await until(lambda: has_subjects(holds=True), "the mirror has its rights again")
        # A binding of this name that users have made themselves does not keep them in, or out.
        binding = await inside.get(CLUSTER_ROLE_BINDINGS, "tenantry:owners")
        await inside.delete(CLUSTER_ROLE_BINDINGS, "tenantry:owners")
        # The API server forgets the deleted one a moment later, perhaps after it has answered once more.
        assert (await until(is_back, "the binding is back"))["subjects"] == binding["subjects"]


async def test_a_namespace_of_no_tenant_gets_none(planes: Planes, name: str) -> None:
    """H01: the condition says why, and what to do."""
    await planes.host.create(VirtualControlPlane.resource, {"metadata": {"name": name}, "spec": {}}, "default")
    seen: list[Json] = []

    async def told() -> bool:
        seen[:] = [ready(await planes.host.get(VirtualControlPlane.resource, name, "default"))]
        return "belongs to no tenant" in seen[0].get("message", "")

    await until(told, "the condition says why", seen=lambda: seen)
    assert not [each for each in await planes.host.list(ROLE_BINDINGS, "default") if MIRROR in each["metadata"]["name"]]
    await planes.delete("default", name)


@pytest.mark.long
async def test_the_benchmark_reports_its_figures_and_leaves_nothing(
    plane_cluster: LocalCluster, planes: Planes
) -> None:
    """H01: every figure is measured; nothing of the run stays."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tenantry", "bench", "vcp", "--cluster=planes", "--count=1", "--pods=2"),
        *("--idle-seconds=1", "-o", "json"),
        env={**os.environ, "TENANTRY_HOME": str(plane_cluster.paths.folder.parent.parent)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await child.communicate()
    assert child.returncode == 0, err.decode()
    found = msgspec.json.decode(out)
    keys = ("ready_p50_seconds", "wake_p50_seconds", "private_megabytes_each", "pod_mirrored_seconds_p50")
    assert all(found[key] > 0 for key in keys), found
    assert not [each for each in await planes.names(Tenant.resource, "") if each.startswith("bench-")]
