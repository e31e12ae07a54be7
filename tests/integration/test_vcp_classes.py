"""Classes of the host inside a virtual control plane, on a real cluster: the allowed ones, which follow the host."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from functools import partial
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from tenantry.api import reasons
from tenantry.api.model import Resource
from tenantry.api.tenant import Tenant
from tenantry.api.virtualcontrolplane import PREFIX
from tenantry.mirror.classes import CLASSES, INGRESS, PRIORITY, RUNTIME, STORAGE, digest
from tenantry.mirror.kinds import claims
from tenantry.mirror.profile import Profile
from testkit.api import EVENTS, PODS, Api, until
from testkit.planes import Planes
from testkit.refusals import refusal, tried

pytest_plugins = ["testkit.fixtures", "testkit.planefixtures"]

Json = dict[str, Any]

DEFAULT = "storageclass.kubernetes.io/is-default-class"
SIZE: Json = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
CONTAINER: Json = {"name": "c", "image": "busybox", "resources": {"limits": {"cpu": "10m", "memory": "8Mi"}}}


@pytest_asyncio.fixture
async def host_classes(planes: Planes, name: str) -> AsyncGenerator[None]:
    """Two StorageClasses, of which one is the default of the host, and a class of each other kind."""
    storage: Json = {
        "provisioner": "disks.example.com",
        "parameters": {"secretName": "admin", "endpoint": "192.0.2.7"},
        "reclaimPolicy": "Delete",
    }
    meta: Json = {"name": f"{name}-fast", "annotations": {DEFAULT: "true", "note": "rack 7"}}
    made: list[tuple[Resource, Json]] = [
        (STORAGE.resource, {"metadata": meta, **storage}),
        (STORAGE.resource, {"metadata": {"name": f"{name}-slow"}, **storage}),
        (INGRESS.resource, {"metadata": {"name": f"{name}-web"}, "spec": {"controller": "example.com/web"}}),
        (PRIORITY.resource, {"metadata": {"name": f"{name}-high"}, "value": 7000, "preemptionPolicy": "Never"}),
        (RUNTIME.resource, {"metadata": {"name": f"{name}-box"}, "handler": "kata"}),
    ]
    for resource, value in made:
        await planes.host.create(resource, value)
    yield
    for resource, value in made:
        if await planes.host.find(resource, value["metadata"]["name"]) is not None:
            await planes.host.delete(resource, value["metadata"]["name"])


def raw(value: Json) -> msgspec.Raw:
    """Return an object as it comes from an API server."""
    return msgspec.Raw(msgspec.json.encode(value))


async def classes_are(inside: Api, name: str, resource: Resource, *wanted: str) -> None:
    """Wait until exactly these classes of a test exist inside, by what follows the name of the test."""

    async def so() -> bool:
        names = [each["metadata"]["name"] for each in await inside.list(resource)]
        return sorted(each.removeprefix(f"{name}-") for each in names if each.startswith(name)) == sorted(wanted)

    await until(so, f"{resource.plural} inside are {wanted}")


@pytest.mark.usefixtures("host_classes")
async def test_allowed_classes_are_there_inside(planes: Planes, name: str) -> None:
    """H01: without the fields that stay on the host; edits are undone; they follow the rules and the host."""
    host = planes.host
    await host.make_tenant(name, rules={"storageClasses": {"allowed": [f"{name}-fast"]}})
    await planes.create(name, "web")
    async with planes.entered(name, "web") as inside:
        are_there = partial(classes_are, inside, name)
        await are_there(INGRESS.resource, "web")
        await are_there(PRIORITY.resource, "high")
        await are_there(RUNTIME.resource, "box")
        await are_there(STORAGE.resource, "fast")
        fast = await inside.get(STORAGE.resource, f"{name}-fast")
        assert fast["provisioner"] == f"{PREFIX}/mirrored"
        assert "parameters" not in fast
        assert fast["metadata"]["annotations"] == {DEFAULT: "true"}

        for kind, each in zip(CLASSES, ("fast", "web", "high", "box"), strict=True):
            # As both API servers store it, with their defaults: the mirror does not write it again.
            stored = kind.upper(raw(await inside.get(kind.resource, f"{name}-{each}")), f"{PREFIX}/lower")
            below = kind.lower(raw(await host.get(kind.resource, f"{name}-{each}")))
            profile = Profile(owner_uid="", namespace="", prefix=PREFIX)
            assert stored.digest == digest(kind.shown(below, profile, is_default=below.is_default))

        data: Json = {"metadata": {"name": "data"}, "spec": SIZE}

        async def has_default() -> bool:
            return "storageClassName" in (await tried(inside, claims.RESOURCE, data, "default"))["spec"]

        # Admission has caches of its own.
        await until(has_default, "admission knows the default class")
        claim = await inside.create(claims.RESOURCE, data, "default")
        assert claim["spec"]["storageClassName"] == f"{name}-fast"

        async def claimed() -> list[Json]:
            return await host.list(claims.RESOURCE, name)

        (lower,) = await until(claimed, "the claim is mirrored")
        assert lower["spec"]["storageClassName"] == f"{name}-fast"

        edits: Json = {"labels": {"team": "mine"}, "annotations": {DEFAULT: None}, "finalizers": ["example.com/keep"]}
        await inside.patch(STORAGE.resource, f"{name}-fast", {"metadata": edits, "allowVolumeExpansion": True})
        await inside.delete(PRIORITY.resource, f"{name}-high")

        async def undone() -> bool:
            found = await inside.get(STORAGE.resource, f"{name}-fast")
            fields = ("labels", "annotations", "finalizers")
            same = all(found["metadata"].get(field) == fast["metadata"].get(field) for field in fields)
            return same and "allowVolumeExpansion" not in found

        await until(undone, "the edit is undone")
        await are_there(PRIORITY.resource, "high")

        spec: Json = {"containers": [CONTAINER], "priorityClassName": f"{name}-high"}
        web: Json = {"metadata": {"name": "web"}, "spec": spec}

        async def is_admitted() -> bool:
            return not await refusal(inside, PODS, web, "default")

        await until(is_admitted, "admission knows that the class is back")
        await inside.create(PODS, web, "default")

        async def mirrored() -> list[Json]:
            return await host.list(PODS, name)

        (pod,) = await until(mirrored, "the pod is mirrored")
        assert (pod["spec"]["priority"], pod["spec"]["preemptionPolicy"]) == (7000, "Never")


@pytest.mark.usefixtures("host_classes")
async def test_classes_follow_the_rules_and_the_host(planes: Planes, name: str) -> None:
    """H01: a change of either is enough; a class of users of the same name stays theirs, and an event names it."""
    host = planes.host
    await host.make_tenant(name, rules={"storageClasses": {"allowed": [f"{name}-fast"]}})
    await planes.create(name, "web")
    async with planes.entered(name, "web") as inside:
        are_there = partial(classes_are, inside, name)
        await are_there(STORAGE.resource, "fast")
        own: Json = {"metadata": {"name": f"{name}-slow"}, "provisioner": "example.com/mine"}
        await inside.create(STORAGE.resource, own)
        both = [f"{name}-fast", f"{name}-slow"]
        await host.patch(Tenant.resource, name, {"spec": {"rules": {"storageClasses": {"allowed": both}}}})

        async def told() -> bool:
            events = [each for each in await inside.list(EVENTS, "default") if each["reason"] == reasons.OBJECT_EXISTS]
            return f"{name}-slow" in [each["regarding"]["name"] for each in events]

        await until(told, "an event names the class of users that hides the host's")
        assert (await inside.get(STORAGE.resource, f"{name}-slow"))["provisioner"] == "example.com/mine"
        await inside.delete(STORAGE.resource, f"{name}-slow")
        await are_there(STORAGE.resource, "fast", "slow")
        await host.patch(Tenant.resource, name, {"spec": {"rules": {"storageClasses": {"allowed": [f"{name}-slow"]}}}})
        await are_there(STORAGE.resource, "slow")
        for kind, each in zip(CLASSES, ("slow", "web", "high", "box"), strict=True):
            await are_there(kind.resource, each)
            await host.delete(kind.resource, f"{name}-{each}")
            await are_there(kind.resource)
