"""The webhook's evaluator changes objects exactly as the API server's mutating policies do, on random objects."""

from __future__ import annotations

import base64
import random
import uuid
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, suppress
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from tenantry.api import marks
from tenantry.api.errors import Invalid, NotFound
from tenantry.api.kubernetes import LimitRange, Namespace, NetworkPolicy
from tenantry.api.model import Resource
from tenantry.api.runtime import RuntimeClass
from tenantry.api.tenancyrules import MAPS, OWN_MARK, PULL_MARK
from tenantry.controllers.webhook.mutations import ServedMutation, asked, reviewed
from tenantry.engine.plan import is_same_json
from tenantry.install import fallback, manifests, podresources
from tenantry.install.policy import ADMINISTER
from tenantry.install.waves import resource_of
from tenantry.kube import wire
from tenantry.kube.client import Client
from tenantry.policy.cel.evaluate import compiled
from tenantry.policy.mutation import applied
from testkit import versions
from testkit.api import PODS, SERVICE_ACCOUNTS, until

Json = dict[str, Any]

pytestmark = pytest.mark.skipif(
    versions.IS_WEBHOOK,
    reason=f"Kubernetes {versions.chosen()} has no mutating policies to compare with",
)

OBJECTS = 25
"""Random objects for each policy."""

RUNTIMES = RuntimeClass.resource
CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
CHOSEN = "isolation.runtime\tthe test\tgvisor\nstorageClasses.default\tthe test\tfast"
LABELS = {
    marks.TENANT_UID: "u",
    marks.ZONE: "z",
    marks.NETWORK: "Isolated",
    marks.SLICE: "gpu",
    "tenantry.dev/part": "half",
    marks.RUNTIME: "Sandboxed",
    PULL_MARK: "true",
    OWN_MARK: "true",
    "federation.tenantry.dev/pod-strategy": "Remote",
}
ANNOTATIONS = {"federation.tenantry.dev/peers": "berlin,paris"}
KINDS = {
    "tenantry-makers": SERVICE_ACCOUNTS,
    "tenantry-networkpolicy-peers": NetworkPolicy.resource,
    "tenantry-default-storage-class": CLAIMS,
}
SERVED = {
    each.name: each
    for each in fallback.served(manifests.LOCAL_USER)
    # Those of cluster-scoped kinds would act on objects of other tests.
    if "namespaceSelector" in each.match and not each.name.endswith("-shared")
}


# -- random objects -------------------------------------------------------------------------------


def _some(draw: random.Random, *values: Any) -> Any:  # noqa: ANN401 - values of JSON
    return draw.choice(values)


def _resources(draw: random.Random) -> Json:
    found: Json = {}
    cpus, sizes = ("10m", "0.1", "1500m", "2"), ("64Mi", "100M", "1.5Gi", "1e6")
    for side in ("limits", "requests"):
        chosen = {"cpu": draw.choice(cpus), "memory": draw.choice(sizes)}
        kept = {key: value for key, value in chosen.items() if draw.random() < 0.5}
        if kept and (side == "limits" or "limits" not in found):
            found[side] = kept
    return found


def _container(draw: random.Random, name: str) -> Json:
    found: Json = {"name": name, "image": "busybox", "resources": _resources(draw)}
    if draw.random() < 0.5:
        found["imagePullPolicy"] = _some(draw, "Always", "IfNotPresent", "Never")
    return found


def _toleration(draw: random.Random) -> Json:
    key = _some(draw, "tenantry.dev/slice", "tenantry.dev/parts", "federation.tenantry.dev/peer", "other", "")
    found: Json = {"operator": "Exists"} if draw.random() < 0.4 or not key else {"value": _some(draw, "gpu", "berlin")}
    return {**found, **({"key": key} if key else {}), **_some(draw, {}, {"effect": "NoSchedule"})}


def pod(draw: random.Random) -> Json:
    """Return a pod that the API server stores."""
    names = ("web", "log", "side")[: draw.randint(1, 3)]
    spec: Json = {
        "automountServiceAccountToken": False,
        "containers": [_container(draw, name) for name in names],
        "initContainers": [_container(draw, "init")] if draw.random() < 0.4 else [],
        **_some(draw, {}, {"nodeSelector": {"zone": "a"}}),
        **_some(draw, {}, {"tolerations": [_toleration(draw) for _ in range(draw.randint(0, 3))]}),
        **_some(
            draw,
            {},
            {"volumes": [{"name": "v", "emptyDir": {}}]},
            {"volumes": [{"name": "h", "hostPath": {"path": "/"}}]},
        ),
    }
    annotations: Json = {}
    if draw.random() < 0.4:
        annotations[f"kubernetes.io/{_some(draw, 'in', 'e')}gress-bandwidth"] = _some(
            draw, "10M", "1", "1.5G", "x", "999"
        )
    if draw.random() < 0.5:
        # More than all containers together, as the API server requires.
        spec["resources"] = {"limits": {"cpu": "20", "memory": "64Gi"}, "requests": {"cpu": "10", "memory": "32Gi"}}
        told = "; ".join(f"cpu, memory request for container {name}; cpu limit for container {name}" for name in names)
        annotations["kubernetes.io/limit-ranger"] = f"LimitRanger plugin set: {told}"
    return {"metadata": {"name": "p", "annotations": annotations}, "spec": spec}


def tight(draw: random.Random) -> Json:
    """Return a pod with less resources of its own than a LimitRange has set in its containers."""
    names = ("web", "log", "side")[: draw.randint(1, 3)]
    containers: list[Json] = []
    for name in names:
        request = draw.choice(("10m", "400m", "1500m"))
        limits = {"limits": {"cpu": draw.choice(("1500m", "2"))}} if draw.random() < 0.5 else {}
        containers.append({"name": name, "image": "busybox", "resources": {"requests": {"cpu": request}, **limits}})
    told = "; ".join(f"cpu request for container {name}; cpu limit for container {name}" for name in names)
    return {
        "metadata": {"name": "p", "annotations": {"kubernetes.io/limit-ranger": f"LimitRanger plugin set: {told}"}},
        "spec": {
            "automountServiceAccountToken": False,
            "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": draw.choice(("300m", "1"))}},
            "containers": containers,
        },
    }


def other(draw: random.Random, kind: Resource) -> Json:
    """Return an object of another kind."""
    if kind is SERVICE_ACCOUNTS:
        return {"metadata": {"name": "s", **_some(draw, {}, {"annotations": {"a": "b"}})}}
    if kind is CLAIMS:
        storage = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        return {"metadata": {"name": "c"}, "spec": {**storage, **_some(draw, {}, {"storageClassName": "slow"})}}
    peers: list[Json] = [{"podSelector": {}}]
    ingress = [_some(draw, {}, {"from": peers}, {"from": []}, {"ports": [{"port": 80}]}) for _ in range(3)]
    egress = [_some(draw, {}, {"to": peers}) for _ in range(draw.randint(0, 2))]
    return {"metadata": {"name": "n"}, "spec": {"podSelector": {}, "ingress": ingress, "egress": egress}}


# -- the API server -------------------------------------------------------------------------------


async def _dry(client: Client, kind: Resource, value: Json, namespace: str) -> Json:
    """Return an object as the API server would store it, without what differs between namespaces and moments."""
    body: Json = {"apiVersion": kind.api_version, "kind": kind.kind, **value}
    given: Json = body["metadata"]
    meta = {key: each for key, each in given.items() if key in {"name", "annotations", "labels"}}
    body["metadata"] = {**meta, "namespace": namespace}
    data = await client.request(
        "POST", wire.path(kind, namespace), query={"dryRun": "All"}, body=msgspec.json.encode(body)
    )
    found: Json = msgspec.json.decode(data)
    found["metadata"] = {key: each for key, each in found["metadata"].items() if key in {"name", "annotations"}}
    return found


@pytest_asyncio.fixture(scope="module")
async def places(admin: Client) -> AsyncGenerator[dict[str, str]]:
    """A namespace for each binding, which it alone selects, and "plain" without any; with the policies in force."""
    run = uuid.uuid4().hex[:8]
    bindings = [each for each in fallback.policies(manifests.LOCAL_USER) if each["metadata"]["name"] in SERVED]
    found = {"plain": f"agree-{run}-plain"}
    objects: list[Json] = []
    for each in bindings:
        if each["kind"].endswith("Binding"):
            name = each["metadata"]["name"]
            found[name] = f"agree-{run}-{name.removeprefix('tenantry-')}"
            only = {"matchLabels": {"agree": name}}
            matched = {**each["spec"]["matchResources"], "namespaceSelector": only}
            objects.append({**each, "spec": {**each["spec"], "matchResources": matched}})
        else:
            objects.append(_for_all(each))
    async with AsyncExitStack() as stack:

        async def make(resource: Resource, name: str, value: Json) -> None:
            stack.push_async_callback(_gone, admin, resource, name)
            await admin.apply(resource, "", name, value)

        await make(RUNTIMES, "gvisor", {**_typed(RUNTIMES), "metadata": {"name": "gvisor"}, "handler": "runsc"})
        for name, namespace in found.items():
            labels = {"agree": name} if name == "plain" else {"agree": name, **LABELS}
            meta = {"name": namespace, "labels": labels, "annotations": ANNOTATIONS}
            await make(Namespace.resource, namespace, {**_typed(Namespace.resource), "metadata": meta})
            account = {**_typed(SERVICE_ACCOUNTS), "metadata": {"name": "default"}}
            await admin.apply(SERVICE_ACCOUNTS, namespace, "default", account)
            rules = {"name": MAPS["enforce"], "annotations": {"parameters.tenantry.dev/chosen": CHOSEN}}
            limits: Json = {**_typed(LimitRange.resource), "metadata": rules, "spec": {"limits": []}}
            await admin.apply(LimitRange.resource, namespace, MAPS["enforce"], limits)
        for each in objects:
            await make(resource_of(each), each["metadata"]["name"], each)
        yield found


async def _gone(admin: Client, resource: Resource, name: str) -> None:
    with suppress(NotFound):
        await admin.delete(resource, "", name)


def _for_all(policy: Json) -> Json:
    """Return a policy that does not exempt the administrator who runs this test."""
    conditions = [
        {**each, "expression": each["expression"].replace(f"!{ADMINISTER}", "true")}
        for each in policy["spec"].get("matchConditions", ())
    ]
    return {**policy, "spec": {**policy["spec"], **({"matchConditions": conditions} if conditions else {})}}


CONDITIONS = {
    each["metadata"]["name"]: [compiled(one["expression"]) for one in _for_all(each)["spec"].get("matchConditions", ())]
    for each in fallback.policies(manifests.LOCAL_USER)
    if not each["kind"].endswith("Binding")
}
"""Of a webhook, the API server evaluates them."""


def _typed(resource: Resource) -> Json:
    return {"apiVersion": resource.api_version, "kind": resource.kind}


@pytest.mark.parametrize("name", sorted(SERVED))
async def test_the_webhook_changes_objects_as_the_policies_do(admin: Client, places: dict[str, str], name: str) -> None:
    """Issue 20, point 1: the result of both is the same object, defaults included."""
    draw = random.Random(random.random())
    kind = KINDS.get(name, PODS)
    changed = 0
    for _ in range(OBJECTS):
        if name == podresources.NAME:
            # The API server refuses such a pod unless it is changed, so it cannot fill in the defaults before.
            value = tight(draw)
            before: Json = {**_typed(kind), **value}
        else:
            value = pod(draw) if kind is PODS else other(draw, kind)
            before = await _dry(admin, kind, value, places["plain"])
        operations = await _operations(admin, SERVED[name], before, places[name])
        if operations and not changed:
            await _in_force(admin, kind, value, places[name], before)
        wanted = await _dry(admin, kind, value, places[name])
        after = applied(before, operations) if operations else before
        found = await _dry(admin, kind, after, places["plain"])
        changed += bool(operations)
        assert is_same_json(found, wanted), (value, operations)
    assert changed


async def _in_force(admin: Client, kind: Resource, value: Json, namespace: str, before: Json) -> None:
    """Wait until the policy changes an object in some way: the API server knows it, its binding and its parameters."""

    async def so() -> bool:
        try:
            return not is_same_json(await _dry(admin, kind, value, namespace), before)
        except Invalid:
            return False

    await until(so, f"the policy of {namespace} is in force")


async def _operations(admin: Client, served: ServedMutation, value: Json, namespace: str) -> list[Json]:
    """Return what the webhook would answer; [] if the API server would not ask it."""
    fields: Json = {"uid": "1", "operation": "CREATE", "namespace": namespace, "object": value}
    user = {"username": "admin", "groups": ["system:masters", "system:authenticated"]}
    fields |= {"userInfo": user, "resource": {"group": "", "version": "v1", "resource": "pods"}}
    if served.name == "tenantry-makers":
        fields["resource"]["resource"] = SERVICE_ACCOUNTS.plural
    scope = {"object": value, "oldObject": None, "request": fields}
    if not all(holds(scope) for holds in CONDITIONS[served.policy.name]):
        return []
    body = msgspec.json.encode({"request": fields})
    place = msgspec.json.decode(await admin.request("GET", wire.path(Namespace.resource, "", namespace)))
    rules = msgspec.json.decode(await admin.request("GET", wire.path(LimitRange.resource, namespace, MAPS["enforce"])))
    response = msgspec.json.decode(reviewed(served, asked(body), place, rules))["response"]
    return msgspec.json.decode(base64.b64decode(response["patch"])) if "patch" in response else []
