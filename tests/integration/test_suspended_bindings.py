"""RoleBindings of a suspended tenant on a real API server: each one is emptied, and given back exactly."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tenantry.api import reasons
from tenantry.api.errors import Forbidden
from tenantry.api.kubernetes import Namespace, RoleBinding
from tenantry.api.marks import SUSPENDED, SUSPENDED_SUBJECTS
from tenantry.api.model import Resource
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.engine.tasks import all_of
from tenantry.kube import wire
from tenantry.kube.client import Client
from tenantry.kube.kubeconfig import Connection
from tenantry.kube.watch import watch
from tenantry.local.cluster import LocalCluster
from testkit.api import (
    CONFIG_MAPS,
    PODS,
    SERVICE_ACCOUNTS,
    Api,
    until,
)
from testkit.operators import Operator
from testkit.people import as_person
from testkit.suspensions import RBAC, resume, suspend

pytest_plugins = ["testkit.fixtures"]

FEW = 60
BINDINGS = int(os.environ.get("TENANTRY_TEST_BINDINGS", FEW))
"""How many bindings the largest tenant of these tests has."""

EVERY = max(BINDINGS // 25, 10) | 1
"""Of so many bindings, two subjects are sampled: a user and a ServiceAccount. Odd, so that all namespaces have some."""

LONG = 120.0
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")

Json = dict[str, Any]


async def test_every_foreign_binding_is_closed_and_given_back_exactly(api: Api, operator: Operator, name: str) -> None:
    """E02: for every name and subject, also a binding created while the tenant is suspended."""
    await api.make_tenant(name)
    subjects: list[Json] = [
        {"kind": "User", "name": "zoe", "apiGroup": RBAC},
        {"kind": "Group", "name": 'gr\u00fcppe "x"', "apiGroup": RBAC},
        {"kind": "ServiceAccount", "name": "robot", "namespace": "elsewhere"},
    ]
    role = {"kind": "ClusterRole", "name": "view", "apiGroup": RBAC}
    for each in ("plain", "system:odd", "a b", "why?", "no#1", "\u00fc"):
        await api.create(
            RoleBinding.resource, {"metadata": {"name": each}, "roleRef": role, "subjects": subjects}, name
        )
    await api.create(RoleBinding.resource, {"metadata": {"name": "empty"}, "roleRef": role}, name)
    before = await _bindings(api, name)
    await suspend(api, name)
    assert all(not value["subjects"] for value in (await _bindings(api, name)).values())
    await api.create(RoleBinding.resource, {"metadata": {"name": "late"}, "roleRef": role, "subjects": subjects}, name)

    async def is_closed() -> bool:
        return not (await _bindings(api, name))["late"]["subjects"]

    await until(is_closed, "the late binding is closed")
    await resume(api, name)

    async def all_back() -> bool:
        now = await _bindings(api, name)
        return now == {**before, "late": {"subjects": subjects, "annotations": {}, "roleRef": role}}

    await until(all_back, "every binding is as it was")
    assert operator.is_running


async def _bindings(api: Api, namespace: str) -> dict[str, Json]:
    return {
        value["metadata"]["name"]: {
            "subjects": value.get("subjects") or [],
            "annotations": value["metadata"].get("annotations") or {},
            "roleRef": value["roleRef"],
        }
        for value in await api.list(RoleBinding.resource, namespace)
    }


async def test_a_suspension_stops_writes_in_the_whole_tree_before_it_empties_many_bindings(
    api: Api, operator: Operator, tenancy: LocalCluster, name: str, tmp_path: Path
) -> None:
    """E02: all namespaces first, then all bindings, each of which comes back; the lease stays.

    Samples of the subjects try to read, one by one, and samples of the ServiceAccounts get no new token.
    TENANTRY_TEST_BINDINGS=2000 measures it, and holds it to its targets.
    """
    user, lease = f"{name}-alice", await api.get(LEASES, "tenantry-operator", "tenantry-system")
    places = [name, *(await _children(api, name, 3, user))]
    subjects = [_subject(name, number, places[number % len(places)]) for number in range(BINDINGS)]
    for start in range(0, BINDINGS, 50):
        await all_of(_bind(api, number, subjects[number], places) for number in range(BINDINGS)[start : start + 50])
    sample = [number for number in range(BINDINGS) if number % EVERY in {0, 1}]
    accounts = [number for number in sample if subjects[number]["kind"] == "ServiceAccount"]
    held = {number: await _token(api, subjects[number]) for number in accounts}
    readers = {number: _reader(api, subjects[number], held.get(number, "")) for number in sample}
    for number in sample:
        await until(partial(_reads_all, readers[number], places[number % len(places)]), "RBAC has seen the bindings")
    began = time.monotonic()
    tenant = await api.patch(Tenant.resource, name, {"spec": {"suspended": True}})
    async with as_person(tenancy, tmp_path, user) as owner:
        for place in places:
            await until(partial(_is_refused, owner, place), f"writes in {place} are refused", seconds=LONG)
        refused = time.monotonic() - began
        for number in accounts:
            await until(partial(_gets_no_token, owner, subjects[number]), "new tokens are refused", seconds=LONG)
    tokens = time.monotonic() - began

    async def closed() -> bool:
        found = [each for place in places for each in await api.list(RoleBinding.resource, place)]
        return not any(each.get("subjects") for each in found)

    await until(closed, "no binding has subjects", seconds=LONG)
    emptied = time.monotonic() - began
    for number in sample:
        place = places[number % len(places)]
        await until(partial(_reads_nothing, readers[number], place), "RBAC has seen it", seconds=LONG)
    unread = time.monotonic() - began
    bindings = [each for place in places for each in await api.list(RoleBinding.resource, place)]
    # Later writes of the same namespaces change their versions: the label came with the first that has it.
    labelled = await _labelled(api, tenant["metadata"]["resourceVersion"], set(places))
    last = max(labelled[place] for place in places)
    ours = [each for each in bindings if each["metadata"]["name"].startswith("b-")]
    assert min(int(each["metadata"]["resourceVersion"]) for each in ours) > last
    await api.condition(name, reasons.SUSPENDED, holds=True)
    now = await api.get(LEASES, "tenantry-operator", "tenantry-system")
    assert now["spec"]["leaseTransitions"] == lease["spec"]["leaseTransitions"]
    if BINDINGS > FEW:
        print(f"{BINDINGS} bindings: writes refused after {refused:.1f} s, bindings empty after {emptied:.1f} s")
        print(f"new tokens of {len(accounts)} ServiceAccounts refused after {tokens:.1f} s")
        print(f"get, list and watch of {len(sample)} subjects refused after {unread:.1f} s")
        assert tokens < 2
        assert unread < 20
    assert operator.is_running
    await api.patch(Tenant.resource, name, {"spec": {"suspended": False}})
    await until(partial(_has_all, api, places, bindings), "all subjects are back", seconds=LONG)


async def _labelled(api: Api, since: str, places: set[str]) -> dict[str, int]:
    """Return by name the version at which each namespace got the label of a suspension, after a version."""
    versions: dict[str, int] = {}
    async with asyncio.timeout(LONG):
        async for events in watch(api.client, Namespace.resource, resource_version=since):
            for event in events:
                meta = msgspec.json.decode(event.object)["metadata"]
                if SUSPENDED in (meta.get("labels") or {}):
                    versions.setdefault(meta["name"], int(meta["resourceVersion"]))
            if versions.keys() >= places:
                break
    return versions


def _subject(name: str, number: int, place: str) -> Json:
    """Return the subject of a binding: of every `EVERY`, one is a ServiceAccount, and the others are users."""
    if number % EVERY == 1:
        return {"kind": "ServiceAccount", "name": f"s-{number}", "namespace": place}
    return {"kind": "User", "name": f"{name}-{number}", "apiGroup": RBAC}


async def _bind(api: Api, number: int, subject: Json, places: list[str]) -> None:
    place = places[number % len(places)]
    if subject["kind"] == "ServiceAccount":
        await api.create(SERVICE_ACCOUNTS, {"metadata": {"name": subject["name"]}}, place)
    ref = {"kind": "ClusterRole", "name": "view", "apiGroup": RBAC}
    value = {"metadata": {"name": f"b-{number}"}, "roleRef": ref, "subjects": [subject]}
    await api.create(RoleBinding.resource, value, place)


async def _token(api: Api, account: Json) -> str:
    """Request a token of a ServiceAccount.

    Raises:
        Forbidden: The API server refuses.
    """
    path = wire.path(SERVICE_ACCOUNTS, account["namespace"], account["name"], "token")
    body = b'{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}'
    return str(msgspec.json.decode(await api.client.request("POST", path, body=body))["status"]["token"])


async def _gets_no_token(owner: Api, account: Json) -> bool:
    try:
        await _token(owner, account)
    except Forbidden:
        return True
    return False


def _reader(api: Api, subject: Json, token: str) -> Connection:
    """Return the connection of a subject: with its token, or else by impersonation."""
    if token:
        return msgspec.structs.replace(
            api.client.connection, certificate=None, key=None, token=token, files=(), reload=None
        )
    return msgspec.structs.replace(api.client.connection, impersonate=subject["name"])


async def _reads(connection: Connection, namespace: str) -> list[str]:
    """Return the verbs by which a subject reads in a namespace."""
    watching = {"watch": "1", "timeoutSeconds": "1"}
    tries: dict[str, tuple[str, Mapping[str, str]]] = {
        "get": (wire.path(CONFIG_MAPS, namespace, "kube-root-ca.crt"), {}),
        "list": (wire.path(PODS, namespace), {"limit": "1"}),
        "watch": (wire.path(PODS, namespace), watching),
    }
    found: list[str] = []
    async with Client(connection) as client:
        for verb, (path, query) in tries.items():
            try:
                async with client.open("GET", path, query=query):
                    found.append(verb)
            except Forbidden:
                continue
    return found


async def _reads_all(connection: Connection, namespace: str) -> bool:
    return await _reads(connection, namespace) == ["get", "list", "watch"]


async def _reads_nothing(connection: Connection, namespace: str) -> bool:
    return not await _reads(connection, namespace)


async def _children(api: Api, name: str, count: int, user: str) -> list[str]:
    """Create a tenant with Workspaces of the same owner; return their namespaces."""
    owners, counted = [{"kind": "User", "name": user}], "count/rolebindings.rbac.authorization.k8s.io"
    await api.make_tenant(name, owners=owners, quota={"hard": {counted: (count + 1) * BINDINGS}})
    found: list[str] = []
    for number in range(count):
        child = f"c{number}"
        spec = {"mode": "Workspace", "owners": owners, "quota": {"hard": {counted: BINDINGS}}}
        await api.create(Subnamespace.resource, {"metadata": {"name": child}, "spec": spec}, name)

        async def namespace(child: str = child) -> str:
            value = await api.get(Subnamespace.resource, child, name)
            return str(value.get("status", {}).get("namespace", ""))

        found.append(await until(namespace, f"{child} has a namespace"))
    return found


async def _is_refused(owner: Api, namespace: str) -> bool:
    try:
        await owner.client.request(
            "POST",
            wire.path(CONFIG_MAPS, namespace),
            query={"dryRun": "All"},
            body=b'{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "probe"}}',
        )
    except Forbidden:
        return True
    return False


async def _may_not_list(api: Api, subject: Json, namespace: str) -> bool:
    return not await api.may(subject, "list", "", "pods", namespace)


async def _has_all(api: Api, places: list[str], before: list[Json]) -> bool:
    found = [each for place in places for each in await api.list(RoleBinding.resource, place)]
    return len(found) == len(before) and all(each.get("subjects") for each in found)


async def test_a_binding_cannot_outlive_a_suspension(
    api: Api, operator: Operator, tenancy: LocalCluster, name: str, tmp_path: Path
) -> None:
    """E02: an owner writes no rubbish where the operator keeps the subjects; who has it there loses the rights, too."""
    user = f"{name}-alice"
    await api.make_tenant(name, owners=[{"kind": "User", "name": user}])
    async with as_person(tenancy, tmp_path, user) as owner:
        await owner.create(
            RoleBinding.resource,
            {
                "metadata": {"name": "back-door"},
                "roleRef": {"kind": "ClusterRole", "name": "view", "apiGroup": RBAC},
                "subjects": [{"kind": "User", "name": user, "apiGroup": RBAC}],
            },
            name,
        )
        rubbish: Json = {"metadata": {"annotations": {SUSPENDED_SUBJECTS: "rubbish"}}}
        with pytest.raises(Forbidden, match="must not be set, changed or removed"):
            await owner.patch(RoleBinding.resource, "back-door", rubbish, name)
        await api.patch(RoleBinding.resource, "back-door", rubbish, name)
        await suspend(api, name)
        with pytest.raises(Forbidden):
            await owner.list(PODS, name)
    assert operator.is_running


LARGE: Json = {"objects": {"maxSizes": {"others": "1Mi"}}}
"""Rules that an administrator may set: the size of a RoleBinding alone refuses none of these."""

MALLORY: Json = {"kind": "User", "name": "mallory", "apiGroup": RBAC}
OVERSIZED: list[tuple[Json, str]] = [
    ({"metadata": {"annotations": {"a": "x" * 40_000}}}, "annotations must not be longer"),
    ({"subjects": [{**MALLORY, "name": f"user-{number}"} for number in range(1000)]}, "subjects must be fewer"),
    ({"subjects": [MALLORY, {**MALLORY, "name": "\u0001" * 30_000}]}, "subjects must be fewer"),
]


@pytest.mark.parametrize(("change", "why"), OVERSIZED, ids=["annotations", "many", "long"])
async def test_no_binding_is_too_large_to_be_closed(
    api: Api, operator: Operator, name: str, change: Json, why: str
) -> None:
    """E02: closing one moves its subjects into an annotation, which has to have room; also by a later change."""
    await api.make_tenant(name, rules=LARGE)
    owner = msgspec.structs.replace(api.client.connection, impersonate="alice")
    role = {"kind": "ClusterRole", "name": "view", "apiGroup": RBAC}
    async with Client(owner) as client:
        alice = Api(client)
        door: Json = {"metadata": {"name": "door"}, "roleRef": role, "subjects": [MALLORY]}
        await until(lambda: _may(alice, door, name), "alice's rights are seen")
        with pytest.raises(Forbidden, match=why):
            await alice.patch(RoleBinding.resource, "door", change, name)
        new: Json = {**door, **change, "metadata": {"name": "new", **change.get("metadata", {})}}
        with pytest.raises(Forbidden, match=why):
            await alice.create(RoleBinding.resource, new, name)
    assert operator.is_running


async def _may(api: Api, binding: Json, namespace: str) -> bool:
    try:
        await api.create(RoleBinding.resource, binding, namespace)
    except Forbidden:
        return False
    return True


async def test_the_largest_binding_that_is_allowed_is_closed_and_given_back(
    api: Api, operator: Operator, name: str
) -> None:
    """E02: with the characters that JSON makes the most of."""
    await api.make_tenant(name, rules=LARGE)
    subjects: list[Json] = [
        {"kind": "User", "name": f"{number:03}" + "\u0001" * 15, "apiGroup": RBAC} for number in range(500)
    ]
    value: Json = {
        "metadata": {"name": "large", "annotations": {"a": "\u20ac" * 29_000}},
        "roleRef": {"kind": "ClusterRole", "name": "view", "apiGroup": RBAC},
        "subjects": subjects,
    }
    owner = msgspec.structs.replace(api.client.connection, impersonate="alice")
    async with Client(owner) as client:
        await until(lambda: _may(Api(client), value, name), "alice's rights are seen")
    await suspend(api, name)

    async def is_closed() -> bool:
        return "subjects" not in await api.get(RoleBinding.resource, "large", name)

    # The operator may be told of it after it was told of the suspension.
    await until(is_closed, "the large binding is closed")
    await resume(api, name)
    assert (await api.get(RoleBinding.resource, "large", name))["subjects"] == subjects
    assert operator.is_running


async def test_a_child_that_cannot_end_is_suspended_with_the_tree(api: Api, operator: Operator, name: str) -> None:
    """E02: finalizers keep the namespace, and a binding in it, after its Subnamespace was deleted."""
    held = {"finalizers": ["example.com/stays"]}
    (child,) = await _children(api, name, 1, f"{name}-alice")
    user = {"kind": "User", "name": f"{name}-mallory"}
    role = {"kind": "ClusterRole", "name": "edit", "apiGroup": RBAC}
    door = {"metadata": {"name": "door", **held}, "roleRef": role, "subjects": [{**user, "apiGroup": RBAC}]}
    await api.create(RoleBinding.resource, door, child)
    await api.create(CONFIG_MAPS, {"metadata": {"name": "kept", **held}}, child)
    await api.delete(Subnamespace.resource, "c0", name)

    async def is_ending() -> bool:
        found = await api.get(RoleBinding.resource, "door", child)
        return "deletionTimestamp" in found["metadata"]

    await until(is_ending, "Kubernetes deletes what is in the child")
    assert await api.may(user, "update", "", "configmaps", child), "a binding grants rights until it is gone"
    try:
        await suspend(api, name)
        await until(partial(_may_not_list, api, user, child), "RBAC has seen that the binding is empty")
        labels = (await api.get(Namespace.resource, child))["metadata"]["labels"]
        assert labels[SUSPENDED] == "true"
        await resume(api, name)
        labels = (await api.get(Namespace.resource, child))["metadata"]["labels"]
        assert SUSPENDED not in labels
        assert (await api.get(RoleBinding.resource, "door", child))["subjects"]
    finally:
        for kind, each in ((RoleBinding.resource, "door"), (CONFIG_MAPS, "kept")):
            await api.patch(kind, each, {"metadata": {"finalizers": None}}, child)
    await api.gone(Namespace.resource, child)
    assert operator.is_running
