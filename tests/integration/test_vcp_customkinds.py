"""Custom kinds that the host has, in a control plane on a real cluster: their definitions go up, their objects down."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from tenantry.api import reasons
from tenantry.api.errors import ApiError
from tenantry.api.model import Resource
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.api.virtualcontrolplane import PREFIX
from tenantry.mirror.classes import SNAPSHOT, STORAGE
from tenantry.mirror.kinds import claims, routes, volumesnapshots
from testkit.api import CRDS, EVENTS, SECONDS, SECRETS, Api, until
from testkit.hosts import CLUSTER_ROLES, custom_kinds
from testkit.planes import Planes

pytest_plugins = ["testkit.fixtures", "testkit.planefixtures"]

Json = dict[str, Any]

GADGETS = Resource("offered.example.com", "v1", "gadgets", "Gadget")
PARENT: Json = {"name": "public", "namespace": "gateways"}
CONDITION: Json = {
    "type": "Accepted",
    "status": "True",
    "reason": "Accepted",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


async def the_only(api: Api, resource: Resource, namespace: str) -> Json:
    """Wait until there is one mirrored object of a kind in a namespace of the host, and return it."""

    async def so() -> Json | None:
        found = await api.list(resource, namespace)
        assert all(f"{PREFIX}/owner" in each["metadata"]["labels"] for each in found)
        return found[0] if len(found) == 1 else None

    return await until(so, f"one {resource.kind} is mirrored", seconds=2 * SECONDS)


async def served(inside: Api, resource: Resource) -> None:
    """Wait until a kind is served inside."""

    async def so() -> bool:
        try:
            await inside.list(resource, "default")
        except ApiError:
            return False
        return True

    await until(so, f"{resource.kind} is served inside", seconds=2 * SECONDS)


async def test_routes_and_snapshots_go_down_while_the_host_has_their_kinds(planes: Planes, name: str) -> None:
    """H01: definitions come up, names become the host's, status comes up without handles; the host refuses hosts."""
    host = planes.host
    await host.make_tenant(name, rules={"hostnames": {"domain": "shop.example.com"}})
    await planes.create(name, "web")
    async with planes.entered(name, "web") as inside:
        assert await inside.find(CRDS, routes.HTTP.full_name) is None
        # Users have defined one already: it stays theirs.
        async with custom_kinds(inside, [routes.GRPC]):
            stream = [routes.HTTP, routes.GRPC, routes.TLS, routes.TCP]
            async with custom_kinds(host, [*stream, volumesnapshots.RESOURCE, SNAPSHOT.resource]):
                await served(inside, routes.HTTP)
                await served(inside, volumesnapshots.RESOURCE)
                await _routes(host, inside, name)
                await _stream_routes(host, inside, name)
                await _snapshots(host, inside, name)
                await _snapshot_classes(host, inside, name)
                await _definitions(inside)
            # The objects inside outlive the kind of the host.
            assert [each["metadata"]["name"] for each in await inside.list(routes.HTTP, "default")] == ["sly", "web"]


async def _routes(host: Api, inside: Api, name: str) -> None:
    rule: Json = {"backendRefs": [{"name": "web", "port": 80}]}
    spec: Json = {"parentRefs": [PARENT], "hostnames": [f"{name}.shop.example.com"], "rules": [rule]}
    await inside.create(routes.HTTP, {"metadata": {"name": "web"}, "spec": spec}, "default")
    lower = await the_only(host, routes.HTTP, name)
    assert lower["spec"]["parentRefs"] == [PARENT]
    assert lower["spec"]["rules"][0]["backendRefs"][0]["name"].startswith("web-")
    parents = {"parents": [{"parentRef": PARENT, "controllerName": "example.com/c", "conditions": [CONDITION]}]}
    key = lower["metadata"]["name"]
    await host.client.merge_patch(routes.HTTP, name, key, {"status": parents}, subresource="status")

    async def told() -> bool:
        return (await inside.get(routes.HTTP, "web", "default")).get("status") == parents

    await until(told, "the Gateway's answer comes up")
    foreign = {**spec, "hostnames": ["other.example.org"]}
    await inside.create(routes.HTTP, {"metadata": {"name": "sly"}, "spec": foreign}, "default")

    async def refused() -> str:
        events = await inside.list(EVENTS, "default")
        said = [each for each in events if each["regarding"].get("name") == "sly"]
        return next((each["note"] for each in said if each["reason"] == reasons.HOST_REFUSED), "")

    assert "other.example.org" in await until(refused, "the foreign host is refused")


async def _stream_routes(host: Api, inside: Api, name: str) -> None:
    spec: Json = {"parentRefs": [PARENT], "rules": [{"backendRefs": [{"name": "web", "port": 443}]}]}
    for kind, hosts in ((routes.TLS, {"hostnames": [f"{name}.shop.example.com"]}), (routes.TCP, {})):
        await served(inside, kind)
        await inside.create(kind, {"metadata": {"name": "stream"}, "spec": {**spec, **hosts}}, "default")
        lower = await the_only(host, kind, name)
        assert lower["spec"]["rules"][0]["backendRefs"][0]["name"].startswith("web-")
        await inside.delete(kind, "stream", "default")
        await host.gone(kind, lower["metadata"]["name"], name)


async def _snapshots(host: Api, inside: Api, name: str) -> None:
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    await inside.create(claims.RESOURCE, {"metadata": {"name": "data"}, "spec": claim}, "default")
    source = {"source": {"persistentVolumeClaimName": "data"}}
    await inside.create(volumesnapshots.RESOURCE, {"metadata": {"name": "first"}, "spec": source}, "default")
    lower = await the_only(host, volumesnapshots.RESOURCE, name)
    below = await the_only(host, claims.RESOURCE, name)
    assert lower["spec"]["source"] == {"persistentVolumeClaimName": below["metadata"]["name"]}
    status = {"readyToUse": True, "restoreSize": "1Gi", "boundVolumeSnapshotContentName": "content-1"}
    key = lower["metadata"]["name"]
    await host.client.merge_patch(volumesnapshots.RESOURCE, name, key, {"status": status}, subresource="status")

    async def told() -> bool:
        found = await inside.get(volumesnapshots.RESOURCE, "first", "default")
        return found.get("status") == {"readyToUse": True, "restoreSize": "1Gi"}

    await until(told, "the state of the snapshot comes up")
    await inside.delete(volumesnapshots.RESOURCE, "first", "default")
    await host.gone(volumesnapshots.RESOURCE, key, name)


async def _snapshot_classes(host: Api, inside: Api, name: str) -> None:
    """Those of drivers whose StorageClasses the rules allow appear, if what they delete is what claims delete, too."""
    for each, driver, policy in (("snap", "a", "Delete"), ("kept", "a", "Retain"), ("other", "b", "Delete")):
        meta = {"name": f"{name}-{each}", "annotations": {SNAPSHOT.default_marks[0]: "true", "note": "rack 7"}}
        found = {"metadata": meta, "driver": f"{driver}.{name}", "deletionPolicy": policy, "parameters": {"rack": "7"}}
        await host.create(SNAPSHOT.resource, found)
    fast = {"metadata": {"name": f"{name}-fast"}, "provisioner": f"a.{name}", "reclaimPolicy": "Delete"}
    await host.create(STORAGE.resource, fast)

    async def shown(*wanted: str) -> None:
        async def so() -> bool:
            names = {each["metadata"]["name"] for each in await inside.list(SNAPSHOT.resource)}
            return names == {f"{name}-{each}" for each in wanted}

        await until(so, f"the classes of snapshots inside are {wanted}", seconds=2 * SECONDS)

    try:
        await served(inside, SNAPSHOT.resource)
        await shown("snap")
        above = await inside.get(SNAPSHOT.resource, f"{name}-snap")
        assert (above["driver"], above["deletionPolicy"]) == (f"{PREFIX}/mirrored", "Delete")
        assert "parameters" not in above
        assert above["metadata"]["annotations"] == {SNAPSHOT.default_marks[0]: "true"}
        await inside.delete(SNAPSHOT.resource, f"{name}-snap")
        await shown("snap")
        await host.create(STORAGE.resource, {**fast, "metadata": {"name": f"{name}-slow"}, "provisioner": f"b.{name}"})
        await shown("snap", "other")
    finally:
        for each in ("fast", "slow"):
            if await host.find(STORAGE.resource, f"{name}-{each}") is not None:
                await host.delete(STORAGE.resource, f"{name}-{each}")
    await shown()


async def _definitions(inside: Api) -> None:
    """An edit of one from the host is undone, a deletion too; one of users stays, and an event names it."""
    key = volumesnapshots.RESOURCE.full_name
    before = await inside.get(CRDS, key)
    await inside.patch(CRDS, key, {"spec": {"names": {"shortNames": ["mine"]}}})

    async def undone() -> bool:
        return "shortNames" not in (await inside.get(CRDS, key))["spec"]["names"]

    await until(undone, "the edit is undone")
    await inside.delete(CRDS, key)

    async def back() -> bool:
        found = await inside.find(CRDS, key)
        return found is not None and found["metadata"]["uid"] != before["metadata"]["uid"]

    await until(back, "the deleted definition is back", seconds=2 * SECONDS)
    assert f"{PREFIX}/lower" not in (await inside.get(CRDS, routes.GRPC.full_name))["metadata"].get("labels", {})

    async def named() -> bool:
        events = await inside.list(EVENTS, "default")
        return any(
            (each["reason"], each["regarding"].get("name")) == (reasons.OBJECT_EXISTS, routes.GRPC.full_name)
            for each in events
        )

    await until(named, "an event names the definition of the users")


async def test_an_offered_kind_goes_down_until_it_is_no_longer_offered(planes: Planes, name: str) -> None:
    """H01: as the administrator lists its fields; the end of the offer leaves nothing on the host, and all inside."""
    host = planes.host
    await host.make_tenant(name)
    await planes.create(name, "web")
    rights = {"operator": ["get", "list", "watch"], "mirror": ["create", "update", "patch", "delete"]}
    async with custom_kinds(host, [GADGETS]), planes.entered(name, "web") as inside:
        for who, verbs in rights.items():
            role = {
                "metadata": {"name": f"gadgets-{who}", "labels": {f"tenantry.dev/aggregate-to-{who}": "true"}},
                "rules": [{"apiGroups": [GADGETS.group], "resources": [GADGETS.plural], "verbs": verbs}],
            }
            await host.create(CLUSTER_ROLES, role)
        try:
            await _offered(host, inside, name)
        finally:
            await host.delete(TenancyDefaults.resource, "default")
            for who in rights:
                await host.delete(CLUSTER_ROLES, f"gadgets-{who}")


async def _offered(host: Api, inside: Api, name: str) -> None:
    fields = [
        {"path": "spec.secretName", "use": "Secret"},
        {"path": "spec.issued", "use": "WrittenSecret"},
        {"path": "spec.selector", "use": "LabelSelector"},
        {"path": "spec.everywhere", "use": "Omitted"},
        {"path": "status.handle", "use": "Omitted"},
    ]
    kind = {"group": GADGETS.group, "version": "v1", "plural": GADGETS.plural, "kind": GADGETS.kind, "fields": fields}
    await host.create(TenancyDefaults.resource, {"metadata": {"name": "default"}, "spec": {"offeredKinds": [kind]}})
    await served(inside, GADGETS)
    await inside.create(SECRETS, {"metadata": {"name": "key"}, "stringData": {"a": "b"}}, "default")
    spec = {"secretName": "key", "selector": {"matchLabels": {"app": "web"}}, "everywhere": True, "size": 3}
    meta = {"name": "mine", "labels": {"app": "web"}}
    await inside.create(GADGETS, {"metadata": meta, "spec": spec}, "default")
    lower = await the_only(host, GADGETS, name)
    assert lower["spec"].keys() == {"secretName", "selector", "size"}
    assert {each["key"] for each in lower["spec"]["selector"]["matchExpressions"]} == {
        f"{PREFIX}/owner",
        f"{PREFIX}/namespace",
    }

    async def copied() -> bool:
        return await host.find(SECRETS, lower["spec"]["secretName"], name) is not None

    await until(copied, "the Secret is copied")
    key = lower["metadata"]["name"]
    status = {"phase": "Done", "handle": "of-the-host", "message": f"{name}/{key} is done"}
    await host.client.merge_patch(GADGETS, name, key, {"status": status}, subresource="status")

    async def told() -> Json:
        return (await inside.get(GADGETS, "mine", "default")).get("status", {})

    assert await until(told, "the status comes up") == {"phase": "Done", "message": "mine is done"}
    await _written(host, inside, name)
    await host.patch(TenancyDefaults.resource, "default", {"spec": {"offeredKinds": []}})
    await host.gone(GADGETS, key, name)
    assert [each["metadata"]["name"] for each in await inside.list(GADGETS, "default")] == ["mine"]


async def _write(host: Api, namespace: str, gadget: Json, value: str) -> None:
    """Write the Secret that a Gadget of the host names, as a program of the host does."""
    secret = gadget["spec"]["issued"]
    if await host.find(SECRETS, secret, namespace) is None:
        await host.create(SECRETS, {"metadata": {"name": secret}, "stringData": {"tls.crt": value}}, namespace)
    else:
        await host.patch(SECRETS, secret, {"stringData": {"tls.crt": value}}, namespace)
    await host.client.merge_patch(
        GADGETS, namespace, gadget["metadata"]["name"], {"status": {"phase": value}}, subresource="status"
    )


async def _written(host: Api, inside: Api, name: str) -> None:
    """A Secret that a program of the host writes comes up, follows, and ends with its object; no other one does."""

    async def below(called: str, issued: str) -> Json:
        spec: Json = {"issued": issued}
        await inside.create(GADGETS, {"metadata": {"name": called}, "spec": spec}, "default")

        async def there() -> Json | None:
            found = await host.list(GADGETS, name)
            mine = [each for each in found if each["metadata"]["annotations"][f"{PREFIX}/name"] == called]
            return mine[0] if mine else None

        return await until(there, f"Gadget {called!r} is mirrored")

    async def has(value: str) -> None:
        async def so() -> bool:
            found = await inside.find(SECRETS, "web-tls", "default")
            return found is not None and found["data"] == {"tls.crt": b64encode(value.encode()).decode()}

        await until(so, f"the Secret inside has {value!r}")

    # The name of a Secret of the host's namespace leads to another one, which does not exist.
    sly = await below("sly", "web-kubeconfig")
    assert await host.find(SECRETS, "web-kubeconfig", name) is not None
    assert sly["spec"]["issued"] != "web-kubeconfig"
    await inside.create(SECRETS, {"metadata": {"name": "own"}, "stringData": {"tls.crt": "mine"}}, "default")
    await _write(host, name, await below("taken", "own"), "of the host")
    lower = await below("good", "web-tls")
    await _write(host, name, lower, "first")
    await has("first")
    await _write(host, name, lower, "second")
    await has("second")
    await inside.patch(SECRETS, "web-tls", {"stringData": {"tls.crt": "edited"}}, "default")
    await has("second")

    async def named() -> bool:
        events = await inside.list(EVENTS, "default")
        return any(
            (each["reason"], each["regarding"].get("name")) == (reasons.OBJECT_EXISTS, "taken") for each in events
        )

    await until(named, "an event names the Secret of the users")
    assert (await inside.get(SECRETS, "own", "default"))["data"] == {"tls.crt": b64encode(b"mine").decode()}
    assert await inside.find(SECRETS, "web-kubeconfig", "default") is None
    await inside.delete(GADGETS, "good", "default")
    await inside.gone(SECRETS, "web-tls", "default")
    await host.gone(SECRETS, lower["spec"]["issued"], name)
    for each in ("sly", "taken"):
        await inside.delete(GADGETS, each, "default")
