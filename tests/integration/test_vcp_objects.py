"""Objects of a virtual control plane beside its pods, on a real cluster: each kind down, and its status up."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.errors import ApiError
from tenantry.api.model import Resource
from tenantry.api.virtualcontrolplane import PLANE, PREFIX
from tenantry.kube import wire
from tenantry.kube.client import Client
from tenantry.local.cluster import LocalCluster
from tenantry.local.control import SupervisorRequest, order
from tenantry.mirror import volumes
from tenantry.mirror.kinds import budgets, claims, ingresses, networkpolicies, services
from testkit.api import CONFIG_MAPS, EVENTS, PODS, SECONDS, Api, until
from testkit.planes import Planes
from testkit.refusals import refusal

pytest_plugins = ["testkit.fixtures", "testkit.planefixtures"]

Json = dict[str, Any]

NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
STORAGE_CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
SLICES = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
CONTAINER: Json = {"name": "c", "image": "busybox"}
APP: Json = {"matchLabels": {"app": "web"}}
BACKEND: Json = {"service": {"name": "web", "port": {"number": 80}}}


async def the_only(api: Api, resource: Resource, namespace: str) -> Json:
    """Wait until there is one mirrored object of a kind in a namespace of the host, and return it."""

    async def so() -> Json | None:
        found = [
            each
            for each in await api.list(resource, namespace)
            if f"{PREFIX}/owner" in (labels := each["metadata"].get("labels", {})) and PLANE not in labels
        ]
        return found[0] if len(found) == 1 else None

    return await until(so, f"one {resource.kind} is mirrored", seconds=2 * SECONDS)


def on_host(selector: Json) -> Json:
    """Return the expressions of a selector of the host by the name of their marks."""
    found = {each["key"].removeprefix(f"{PREFIX}/"): each["values"] for each in selector["matchExpressions"]}
    return {key: value for key, value in found.items() if key != "owner"}


async def test_network_policies_select_pods_of_the_right_namespaces(planes: Planes, name: str) -> None:
    """H01: a selector of namespaces follows their labels; an edit on the host is undone; the end is the end."""
    host = planes.host
    await host.make_tenant(name)
    await planes.create(name, "web")
    async with planes.entered(name, "web") as inside:
        for each in ("shop", "stock"):
            await inside.create(NAMESPACES, {"metadata": {"name": each, "labels": {"team": "a"}}})
        peers = [{"namespaceSelector": {"matchLabels": {"team": "a"}}, "podSelector": APP}, {"podSelector": APP}]
        spec: Json = {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{"from": peers}]}
        await inside.create(networkpolicies.RESOURCE, {"metadata": {"name": "web"}, "spec": spec}, "shop")

        async def selects(*wanted: str) -> Json:
            async def so() -> Json | None:
                found = await the_only(host, networkpolicies.RESOURCE, name)
                first, second = found["spec"]["ingress"][0]["from"]
                assert on_host(found["spec"]["podSelector"]) == {"namespace": ["shop"]}
                assert on_host(second["podSelector"]) == {"namespace": ["shop"]}
                return found if on_host(first["podSelector"])["namespace"] == sorted(wanted) else None

            return await until(so, f"the policy selects {wanted}")

        await selects("shop", "stock")
        await inside.patch(NAMESPACES, "stock", {"metadata": {"labels": {"team": "b"}}})
        found = await selects("shop")
        await inside.patch(NAMESPACES, "shop", {"metadata": {"labels": {"team": "b"}}})
        await selects("")
        lower = found["metadata"]["name"]
        await host.patch(networkpolicies.RESOURCE, lower, {"spec": {"ingress": []}}, name)
        await inside.patch(NAMESPACES, "shop", {"metadata": {"labels": {"team": "a"}}})

        async def restored() -> bool:
            return bool((await host.get(networkpolicies.RESOURCE, lower, name))["spec"].get("ingress"))

        await until(restored, "the edit on the host is undone")
        await inside.delete(networkpolicies.RESOURCE, "web", "shop")
        await host.gone(networkpolicies.RESOURCE, lower, name)


async def test_ingresses_budgets_and_claims(planes: Planes, name: str) -> None:
    """H01: names become the host's, and the status of an Ingress and of a claim come up; refusals are events."""
    host = planes.host
    await host.make_tenant(name, rules={"hostnames": {"domain": "shop.example.com"}})
    await planes.create(name, "web")
    async with planes.entered(name, "web") as inside:
        rule = {
            "host": f"{name}.shop.example.com",
            "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": BACKEND}]},
        }
        await inside.create(ingresses.RESOURCE, {"metadata": {"name": "web"}, "spec": {"rules": [rule]}}, "default")
        found = await the_only(host, ingresses.RESOURCE, name)
        backend = found["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]["name"]
        assert backend.startswith("web-")
        balancer = {"loadBalancer": {"ingress": [{"ip": "203.0.113.7"}]}}
        await host.client.merge_patch(
            ingresses.RESOURCE, name, found["metadata"]["name"], {"status": balancer}, subresource="status"
        )

        async def told() -> bool:
            return (await inside.get(ingresses.RESOURCE, "web", "default"))["status"] == balancer

        await until(told, "the address of the Ingress comes up")
        foreign = {**rule, "host": "other.example.org"}
        await inside.create(ingresses.RESOURCE, {"metadata": {"name": "sly"}, "spec": {"rules": [foreign]}}, "default")

        async def refused() -> str:
            events = await inside.list(EVENTS, "default")
            said = [each["note"] for each in events if each["regarding"]["name"] == "sly"]
            assert all(each["reason"] == reasons.HOST_REFUSED for each in events if each["regarding"]["name"] == "sly")
            return said[0] if said else ""

        assert "other.example.org" in await until(refused, "the foreign host is refused")
        budget = {"metadata": {"name": "web"}, "spec": {"selector": APP, "maxUnavailable": 0}}
        await inside.create(budgets.RESOURCE, budget, "default")
        lower = await the_only(host, budgets.RESOURCE, name)
        assert lower["spec"]["minAvailable"] == 0
        assert on_host(lower["spec"]["selector"]) == {"namespace": ["default"]}
        claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        await inside.create(claims.RESOURCE, {"metadata": {"name": "data"}, "spec": claim}, "default")
        lower = await the_only(host, claims.RESOURCE, name)
        await inside.delete(claims.RESOURCE, "data", "default")
        await host.gone(claims.RESOURCE, lower["metadata"]["name"], name)
    await planes.delete(name, "web")

    async def nothing_left() -> bool:
        kinds = (services.RESOURCE, networkpolicies.RESOURCE, budgets.RESOURCE, ingresses.RESOURCE, claims.RESOURCE)
        left = [each for kind in kinds for each in await host.list(kind, name)]
        return not [each for each in left if f"{PREFIX}/owner" in each["metadata"].get("labels", {})]

    await until(nothing_left, "no mirrored object is left", seconds=2 * SECONDS)


async def test_a_bound_claim_shows_a_volume_without_its_handle(planes: Planes, name: str) -> None:
    """H01: users see the size and the state, not the path on the host; the volume inside ends with its claim."""
    host = planes.host
    await host.make_tenant(name)
    await host.create(STORAGE_CLASSES, {"metadata": {"name": name}, "provisioner": "kubernetes.io/no-provisioner"})
    await planes.create(name, "web")
    async with planes.entered(name, "web") as inside:
        claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        spec = {**claim, "storageClassName": name}
        await inside.create(claims.RESOURCE, {"metadata": {"name": "data"}, "spec": spec}, "default")
        lower = await the_only(host, claims.RESOURCE, name)
        below: Json = {
            "capacity": {"storage": "2Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/srv/of-the-host"},
            "storageClassName": name,
            "claimRef": {"namespace": name, "name": lower["metadata"]["name"]},
        }
        await host.create(volumes.RESOURCE, {"metadata": {"name": name}, "spec": below})
        try:

            async def shown() -> Json | None:
                found = await inside.list(volumes.RESOURCE)
                return found[0] if found and found[0].get("status", {}).get("phase") == "Bound" else None

            volume = await until(shown, "the volume is shown", seconds=2 * SECONDS)
            assert volume["spec"]["capacity"] == {"storage": "2Gi"}
            assert "of-the-host" not in str(volume)

            async def named() -> Json | None:
                found = await inside.get(claims.RESOURCE, "data", "default")
                return found if found["spec"].get("volumeName") else None

            # The mirror writes it into the claim after the phase of the volume.
            upper = await until(named, "the claim names its volume")
            assert upper["spec"]["volumeName"] == volume["metadata"]["name"]
            assert volume["spec"]["claimRef"]["uid"] == upper["metadata"]["uid"]
            await inside.delete(claims.RESOURCE, "data", "default")

            async def ended() -> bool:
                return not await inside.list(volumes.RESOURCE)

            await until(ended, "the volume has ended", seconds=2 * SECONDS)
            await host.gone(claims.RESOURCE, lower["metadata"]["name"], name)
        finally:
            await host.delete(volumes.RESOURCE, name)
            await host.delete(STORAGE_CLASSES, name)


async def _is_found_by_variables(inside: Api, host: Api, namespace: str, address: str) -> None:
    """Containers that start now have the variables of the Service "web" inside, and none of the Service on the host."""
    await inside.create(PODS, {"metadata": {"name": "client"}, "spec": {"containers": [CONTAINER]}}, "default")

    async def client() -> Json | None:
        found = await host.list(PODS, namespace)
        return next((each for each in found if each["spec"].get("hostname") == "client"), None)

    below = await until(client, "the pod is mirrored", seconds=2 * SECONDS)
    variables = {each["name"]: each.get("value") for each in below["spec"]["containers"][0]["env"]}
    assert (variables["WEB_SERVICE_HOST"], variables["WEB_PORT_81_TCP_PORT"]) == (address, "81")
    assert below["spec"]["enableServiceLinks"] is False


async def test_a_service_gets_what_the_host_has_chosen(plane_cluster: LocalCluster, planes: Planes, name: str) -> None:
    """H01: its address is the host's, the host refuses it at its creation, and a dry run leaves nothing behind."""
    host = planes.host
    await host.make_tenant(name)
    await planes.create(name, "web")
    async with planes.entered(name, "web") as inside:
        spec = {"selector": {"app": "web"}, "ports": [{"port": 80}]}
        made = await inside.create(services.RESOURCE, {"metadata": {"name": "web"}, "spec": spec}, "default")
        lower = await the_only(host, services.RESOURCE, name)
        assert made["spec"]["clusterIP"] == lower["spec"]["clusterIP"]
        assert lower["spec"]["selector"] == {
            "app": "web",
            f"{PREFIX}/owner": lower["metadata"]["labels"][f"{PREFIX}/owner"],
            f"{PREFIX}/namespace": "default",
        }
        await inside.create(
            PODS,
            {"metadata": {"name": "web", "labels": {"app": "web"}}, "spec": {"containers": [CONTAINER]}},
            "default",
        )

        async def has_endpoint() -> bool:
            pod = await inside.get(PODS, "web", "default")
            found = await host.list(SLICES, name)
            addresses = [address for each in found for end in each["endpoints"] or () for address in end["addresses"]]
            return bool(addresses) and addresses == [pod.get("status", {}).get("podIP")]

        await until(has_endpoint, "the Service of the host leads to the pod", seconds=2 * SECONDS)
        # In the host's words, at once; nothing is stored on either side.
        outside = {"metadata": {"name": "out"}, "spec": {**spec, "externalIPs": ["203.0.113.7"]}}
        told = await refusal(inside, services.RESOURCE, outside, "default")
        assert "service 'out'" in told
        assert "(rule services.externalIPs of Tenantry's standard)" in told
        used = {"metadata": {"name": "used"}, "spec": {**spec, "clusterIP": "10.96.0.1"}}
        # A dry run of the host does not look which addresses are used.
        with pytest.raises(ApiError, match=r"10\.96\.0\.1"):
            await inside.create(services.RESOURCE, used, "default")
        url = wire.path(services.RESOURCE, "default")
        body = msgspec.json.encode({"metadata": {"name": "dry"}, "spec": spec})
        await inside.client.request("POST", url, query={"dryRun": "All"}, body=body)
        # The other one is that of the API server.
        assert len(await planes.names(services.RESOURCE, name)) == 2
        # A change goes to the host first, too.
        await inside.patch(services.RESOURCE, "web", {"spec": {"ports": [{"port": 81}]}}, "default")
        assert [each["port"] for each in (await the_only(host, services.RESOURCE, name))["spec"]["ports"]] == [81]
        with pytest.raises(ApiError, match="externalIPs"):
            await inside.patch(services.RESOURCE, "web", {"spec": {"externalIPs": ["203.0.113.7"]}}, "default")
        # An edit by hand on the host is undone, and so is a deletion, with the same address.
        address = made["spec"]["clusterIP"]
        lower = await the_only(host, services.RESOURCE, name)
        await host.delete(services.RESOURCE, lower["metadata"]["name"], name)

        async def restored() -> bool:
            found = await host.find(services.RESOURCE, lower["metadata"]["name"], name)
            return found is not None and found["metadata"]["uid"] != lower["metadata"]["uid"]

        await until(restored, "the deleted Service is back")
        assert (await the_only(host, services.RESOURCE, name))["spec"]["clusterIP"] == address
        # The mirror has seen it.
        await _is_found_by_variables(inside, host, name, address)
        # While the mirror does not run, no Service is created; other kinds are.
        await order(plane_cluster.paths.socket, SupervisorRequest(verb="stop", component="operator"), SECONDS)
        try:
            with pytest.raises(ApiError, match="try again"):
                await inside.client.request("POST", url, body=body, attempts=1)
            await inside.create(CONFIG_MAPS, {"metadata": {"name": "still"}}, "default")
        finally:
            await order(plane_cluster.paths.socket, SupervisorRequest(verb="start", component="operator"), SECONDS)
        await planes.ready(name, "web")
        await inside.delete(services.RESOURCE, "web", "default")
        await host.gone(services.RESOURCE, lower["metadata"]["name"], name)


async def test_events_of_pods_come_up_in_the_words_of_the_inside(planes: Planes, name: str) -> None:
    """H01, X09: a user sees why a pod waits for a node; no name of the host's objects is in it."""
    await planes.host.make_tenant(name)
    await planes.create(name, "web")
    async with planes.entered(name, "web") as inside:
        containers = [{"name": "c", "image": "busybox"}]
        await inside.create(PODS, {"metadata": {"name": "runs"}, "spec": {"containers": containers}}, "default")
        nowhere = {"containers": containers, "nodeSelector": {"no-node": "has-it"}}
        await inside.create(PODS, {"metadata": {"name": "waits"}, "spec": nowhere}, "default")

        async def told(pod: str, reason: str) -> str:
            found = [
                each["note"]
                for each in await inside.list(EVENTS, "default")
                if (each["regarding"]["name"], each["reason"]) == (pod, reason)
            ]
            return found[0] if found else ""

        message = await until(lambda: told("waits", "FailedScheduling"), "the pod that waits has an event")
        assert "nodes are available" in message
        message = await until(lambda: told("runs", "Scheduled"), "the pod that runs has an event")

        async def bound() -> str:
            return (await inside.get(PODS, "runs", "default"))["spec"].get("nodeName", "")

        node = await until(bound, "the pod is bound")
        assert message == f"Successfully assigned default/runs to {node}"


async def test_the_service_of_the_api_server_outlives_its_users(planes: Planes, name: str) -> None:
    """H01: pods get its address; neither an owner on the host nor a user inside leads it elsewhere."""
    host = planes.host
    await host.make_tenant(name)
    await planes.create(name, "web")
    async with planes.entered(name, "web") as inside:
        (before,) = await host.list(services.RESOURCE, name)
        key, address = before["metadata"]["name"], before["spec"]["clusterIP"]
        await inside.create(PODS, {"metadata": {"name": "web"}, "spec": {"containers": [CONTAINER]}}, "default")
        lower = await the_only(host, PODS, name)
        variables = {each["name"]: each["value"] for each in lower["spec"]["containers"][0]["env"]}
        assert variables["KUBERNETES_SERVICE_HOST"] == address
        # A user inside claims its name; the next Service shows that the mirror has seen it.
        selecting = {"spec": {"selector": {"app": "web"}}}
        await inside.patch(services.RESOURCE, "kubernetes", selecting, "default")
        spec = {"selector": {"app": "web"}, "ports": [{"port": 80}]}
        await inside.create(services.RESOURCE, {"metadata": {"name": "web"}, "spec": spec}, "default")
        await the_only(host, services.RESOURCE, name)
        now = await host.get(services.RESOURCE, key, name)
        assert now["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    async with Client(replace(host.client.connection, impersonate="alice")) as client:
        owner = Api(client)
        mark = {"metadata": {"labels": {f"{PREFIX}/owner": "another"}}}
        with pytest.raises(ApiError, match="must not be set, changed or removed"):
            await owner.patch(services.RESOURCE, key, mark, name)
        await owner.patch(services.RESOURCE, key, selecting, name)

    async def mended() -> bool:
        found = await host.find(services.RESOURCE, key, name)
        slices = [each for each in await host.list(SLICES, name) if each["metadata"]["name"].startswith(key)]
        return found is not None and "selector" not in found["spec"] and not slices

    await until(mended, "the Service has no endpoints of the owner's choice", seconds=2 * SECONDS)
    after = await host.get(services.RESOURCE, key, name)
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert after["spec"]["clusterIP"] == address
