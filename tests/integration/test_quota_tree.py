"""A tenant's quota over its tree of namespaces, on a real API server."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
import pytest_asyncio

from tenantry.api import reasons
from tenantry.api.errors import AlreadyExists, Forbidden, NotFound
from tenantry.api.kubernetes import Namespace, ResourceQuota
from tenantry.api.model import Resource
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.api.tenantresourcequota import TenantResourceQuota
from tenantry.engine.conditions import find
from tenantry.install.subnamespaces import QUOTA
from tenantry.world.shares.amounts import read
from testkit.api import EVENTS, PODS, SECRETS, Api, until
from testkit.clock import in_seconds
from testkit.installation import without_repairs
from testkit.operators import Operator
from testkit.refusals import refusal

pytest_plugins = ["testkit.fixtures"]

Json = dict[str, Any]
ADA: Json = {"kind": "User", "name": "ada"}
BINDINGS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicybindings",
    "ValidatingAdmissionPolicyBinding",
    namespaced=False,
)
WHOLE: Json = {"hard": {"cpu": 10, "memory": "10Gi", "count/configmaps": 100}}


@pytest_asyncio.fixture(scope="module", autouse=True)
async def _behind_admissions_back(api: Api) -> AsyncGenerator[None]:
    """Let in what admission would refuse at once: what comes in behind its back is what this is about."""
    async with without_repairs(api.client):
        await api.patch(BINDINGS, QUOTA, {"spec": {"validationActions": ["Audit"]}})
        yield
        await api.patch(BINDINGS, QUOTA, {"spec": {"validationActions": ["Deny"]}})
    await until(lambda: _is_refused(api), "what no quota limits is refused again")


async def _is_refused(api: Api) -> bool:
    """Tell whether the API server has heard that it is to refuse: tests of other files count on it."""
    spec: Json = {"mode": "Workspace", "owners": [ADA], "quota": {"hard": {"count/unlimited.example.com": 1}}}
    value: Json = {"metadata": {"name": "never"}, "spec": spec}
    places = [each["metadata"]["namespace"] for each in await api.list(ResourceQuota.resource) if _is_whole(each)]
    # Some of them are on their way out, or closed.
    for place in places:
        if QUOTA in await refusal(api, Subnamespace.resource, value, place):
            return True
    return not places


def _is_whole(quota: Json) -> bool:
    meta = quota["metadata"]
    return meta["name"] == "tenantry-quota" and meta.get("labels", {}).get("tenantry.dev/tenant") == meta["namespace"]


async def _admitted(attempt: Callable[[], Awaitable[Json]]) -> Json:
    """Try until the API server has heard that it is to let everything in."""

    async def so() -> Json | None:
        try:
            return await attempt()
        except Forbidden as error:
            if QUOTA not in str(error):
                raise
            return None

    return await until(so, "it is admitted")


async def make(api: Api, parent: str, name: str, **hard: object) -> Json:
    """Make a Subnamespace that asks for a share."""
    spec: Json = {"mode": "Workspace", "owners": [ADA], "quota": {"hard": _keys(hard)}}
    value: Json = {"metadata": {"name": name}, "spec": spec}
    return await _admitted(lambda: api.create(Subnamespace.resource, value, parent))


def _keys(hard: dict[str, object]) -> dict[str, object]:
    return {key.replace("_", "/"): value for key, value in hard.items()}


async def ask(api: Api, parent: str, name: str, **hard: object) -> None:
    """Change what a Subnamespace asks for."""
    live = await api.get(Subnamespace.resource, name, parent)
    gone = dict.fromkeys(live["spec"].get("quota", {}).get("hard", {}))
    patch = {"spec": {"quota": {"hard": {**gone, **_keys(hard)}}}}
    await _admitted(lambda: api.patch(Subnamespace.resource, name, patch, parent))


async def child(api: Api, parent: str, name: str, *, ready: bool = True, reason: str = "", told: str = "") -> Json:
    """Wait until a Subnamespace is ready, or not for a reason, for its spec as it is now; return it.

    What others use the operator hears of beside: where it matters, it is `told` in the end.
    """
    last: Json = {}

    async def so() -> Json | None:
        nonlocal last
        live = await api.get(Subnamespace.resource, name, parent)
        status: Json = live.get("status", {})
        conditions = {each["type"]: each for each in status.get("conditions", [])}
        found = conditions.get(reasons.READY)
        current = status.get("observedGeneration") == live["metadata"]["generation"]
        right = found is not None and (found["status"] == "True") is ready and reason in {"", found["reason"]}
        last = found or {}
        said = found is not None and told in {"", found["message"]}
        return {**live, "told": found["message"]} if found is not None and current and right and said else None

    try:
        return await until(so, f"Subnamespace {parent}/{name} ready={ready} {reason} {told!r}")
    except AssertionError as error:
        error.add_note(f"it says: {last}")
        raise


async def shares(api: Api, name: str) -> dict[str, dict[str, int]]:
    """Return what the ResourceQuotas of a tenant say, by namespace; in force or not."""
    found: dict[str, dict[str, int]] = {}
    for value in await api.list(ResourceQuota.resource):
        is_share = value["metadata"]["name"] == "tenantry-quota"
        if is_share and value["metadata"].get("labels", {}).get("tenantry.dev/tenant") == name:
            found[value["metadata"]["namespace"]] = read(value["spec"].get("hard", {}))
    return found


async def become(api: Api, name: str, wanted: Mapping[str, Mapping[str, int | str]]) -> None:
    """Wait until shares are so."""
    numbers = {namespace: read(hard) for namespace, hard in wanted.items()}

    async def so() -> bool:
        found = await shares(api, name)
        return all({k: found.get(n, {}).get(k) for k in hard} == hard for n, hard in numbers.items())

    try:
        await until(so, "the shares")
    except AssertionError:
        assert await shares(api, name) == numbers
        raise


async def test_a_child_gets_its_share_from_its_parent(api: Api, operator: Operator, name: str) -> None:
    """E09: q(tree) = q(core) + the children's; it comes back at the end."""
    await api.make_tenant(name, quota={"hard": {"cpu": 10, "memory": "10Gi"}})
    await make(api, name, "lab", cpu=4, memory="2Gi")
    live = await child(api, name, "lab")
    lab = live["status"]["namespace"]
    # Nothing that Kubernetes makes by itself is limited here: whether it counts the configmap that it puts into every
    # namespace depends on which of its controllers is first.
    wanted: dict[str, dict[str, int | str]] = {
        name: {"requests.cpu": 6, "requests.memory": "8Gi"},
        lab: {"requests.cpu": 4, "requests.memory": "2Gi"},
    }
    await become(api, name, wanted)
    found = await api.get(ResourceQuota.resource, "tenantry-quota", lab)
    assert found["status"]["hard"] == found["spec"]["hard"]
    whole = await api.client.get(TenantResourceQuota, name)
    assert read(whole.status.hard) == read({"requests.cpu": 10, "requests.memory": "10Gi"})
    await api.delete(Subnamespace.resource, "lab", name)
    await api.gone(Namespace.resource, lab)
    await become(api, name, {name: {"requests.cpu": 10, "requests.memory": "10Gi"}})
    assert operator.is_running


async def test_a_ready_child_runs_a_pod(api: Api, operator: Operator, name: str) -> None:
    """E09: the command of the README, and a Subtenant without a quota: no key has 0 that each pod needs."""
    await api.make_tenant(name, quota={"hard": {"cpu": 4, "memory": "8Gi", "pods": 50, "ephemeral-storage": "40Gi"}})
    await make(api, name, "web", cpu=2, memory="4Gi")
    web = (await child(api, name, "web"))["status"]["namespace"]
    shop = {"metadata": {"name": "shop"}, "spec": {"mode": "Subtenant", "owners": [ADA]}}
    await _admitted(lambda: api.create(Subnamespace.resource, shop, name))
    shops = (await child(api, name, "shop"))["status"]["namespace"]
    for namespace, own in ((web, {"pods": 12, "requests.cpu": 2}), (shops, {"pods": 9, "requests.cpu": "500m"})):
        await become(api, name, {namespace: own})
        await api.default_account(namespace)
        pod: Json = {"metadata": {"name": "one"}, "spec": {"containers": [{"name": "c", "image": "example.com/x:1"}]}}
        made = await _admitted(partial(api.create, PODS, pod, namespace))
        assert made["spec"]["containers"][0]["resources"]["requests"].keys() >= {"cpu", "memory"}
    assert operator.is_running


async def test_a_child_that_can_run_no_pod_is_not_ready(api: Api, operator: Operator, name: str) -> None:
    """E09: the message names the key; without one in the spec, the child waits until the parent has some free."""
    await api.make_tenant(name, quota={"hard": {"cpu": 4, "pods": 3}})
    await make(api, name, "idle", pods=0)
    told = (await child(api, name, "idle", ready=False, reason=reasons.NO_POD_FITS))["told"]
    assert told == "no pod can start: pods is 0 in spec.quota.hard: raise it, or take it out for a default"
    await make(api, name, "all", pods=3)
    await child(api, name, "all")
    await ask(api, name, "idle")
    why = f"no pod can start: pods is 0, because namespace {name!r} has none to spare: free some, or raise its quota"
    await child(api, name, "idle", ready=False, reason=reasons.NO_POD_FITS, told=why)
    await ask(api, name, "all", pods=1)
    await child(api, name, "idle")
    assert operator.is_running


async def test_moving_a_share_between_siblings_converges_in_any_order(api: Api, operator: Operator, name: str) -> None:
    """E09: what grows waits for what shrinks; the reason names who holds how much."""
    await api.make_tenant(name, quota=WHOLE)
    await make(api, name, "one", cpu=6)
    await make(api, name, "two", cpu=2)
    one = (await child(api, name, "one"))["status"]["namespace"]
    two = (await child(api, name, "two"))["status"]["namespace"]
    await ask(api, name, "two", cpu=5)
    told = f"requests.cpu: 5 requested, 4 available: namespace {name!r} uses 0 itself, 'one' has 6, 'two' has 2"
    await child(api, name, "two", ready=False, reason=reasons.QUOTA_INSUFFICIENT, told=told)
    await become(api, name, {two: {"requests.cpu": 2}})
    await ask(api, name, "one", cpu=3)
    await child(api, name, "two")
    await become(api, name, {name: {"requests.cpu": 2}, one: {"requests.cpu": 3}, two: {"requests.cpu": 5}})
    assert operator.is_running


async def test_a_child_that_cannot_have_its_share_gets_no_namespace(api: Api, operator: Operator, name: str) -> None:
    """E09, E11: too much of a key, or a key that the tenant does not limit; it is made once there is room."""
    await api.make_tenant(name, quota=WHOLE)
    await make(api, name, "big", cpu=11)
    await make(api, name, "odd", pods=1)
    await child(api, name, "big", ready=False, reason=reasons.QUOTA_INSUFFICIENT)
    told = (await child(api, name, "odd", ready=False, reason=reasons.QUOTA_KEY_NOT_LIMITED))["told"]
    assert "pods" in told
    namespaces = [value["metadata"]["labels"] for value in await api.list(Namespace.resource)]
    assert sum(labels.get("tenantry.dev/tenant") == name for labels in namespaces) == 1
    await api.patch(Tenant.resource, name, {"spec": {"quota": {"hard": {"cpu": 20, "pods": 5}}}})
    big = (await child(api, name, "big"))["status"]["namespace"]
    odd = (await child(api, name, "odd"))["status"]["namespace"]
    wanted: dict[str, dict[str, int | str]] = {name: {"requests.cpu": "6750m", "pods": 3}}
    wanted |= {big: {"requests.cpu": 11, "pods": 1}, odd: {"requests.cpu": "2250m", "pods": 1}}
    await become(api, name, wanted)
    assert operator.is_running


async def test_three_levels_are_conserved_and_told(api: Api, operator: Operator, name: str) -> None:
    """E09: a share comes from the one above, and the TenantResourceQuota tells assigned, used and free."""
    await api.make_tenant(name, quota=WHOLE)
    await make(api, name, "top", cpu=8)
    top = (await child(api, name, "top"))["status"]["namespace"]
    await make(api, top, "low", cpu=5)
    low = (await child(api, top, "low"))["status"]["namespace"]
    await become(api, name, {name: {"requests.cpu": 2}, top: {"requests.cpu": 3}, low: {"requests.cpu": 5}})

    async def told() -> TenantResourceQuota | None:
        found = await _book(api, name)
        return found if found is not None and len(found.status.tree) == 3 else None

    rows = (await until(told, "three shares")).status.tree
    assert [(row.namespace, row.parent, row.depth) for row in rows] == [(name, "", 0), (top, name, 1), (low, top, 2)]
    assert [row.assigned["requests.cpu"] for row in rows] == ["10", "8", "5"]
    await ask(api, name, "top", cpu=4)
    why = "requests.cpu: subnamespaces hold 5, 1 more than 4: 'low' has 5"
    await child(api, name, "top", ready=False, reason=reasons.QUOTA_SHORT, told=why)
    await become(api, name, {name: {"requests.cpu": 5}, top: {"requests.cpu": 0}, low: {"requests.cpu": 5}})
    await ask(api, top, "low", cpu=1)
    await child(api, name, "top")
    await become(api, name, {name: {"requests.cpu": 6}, top: {"requests.cpu": 3}, low: {"requests.cpu": 1}})
    assert operator.is_running


async def test_a_tenant_without_children_costs_no_more(api: Api, operator: Operator, name: str) -> None:
    """E09: its one ResourceQuota is the whole quota, and follows it."""
    await api.make_tenant(name, quota=WHOLE)
    await api.patch(Tenant.resource, name, {"spec": {"quota": {"hard": {"cpu": 3, "memory": None}}}})
    await become(api, name, {name: {"requests.cpu": 3, "count/configmaps": 100}})
    assert set((await shares(api, name))[name]) == {"requests.cpu", "count/configmaps"}
    assert await api.find(TenantResourceQuota.resource, name) is None
    await api.patch(Tenant.resource, name, {"spec": {"quota": {"hard": {"cpu": None, "count/configmaps": None}}}})
    await api.gone(ResourceQuota.resource, "tenantry-quota", name)
    assert operator.is_running


# -- what is in use -------------------------------------------------------------------------------


async def test_what_is_in_use_is_never_given_away_nor_killed(api: Api, operator: Operator, name: str) -> None:
    """E09, E10: a share below its use is in force at once, says by how much, and others wait for what is freed."""
    await api.make_tenant(name, quota={"hard": {"count/secrets": 10}})
    await make(api, name, "lab", count_secrets=6)
    lab = (await child(api, name, "lab"))["status"]["namespace"]
    for number in range(5):
        await api.create(SECRETS, {"metadata": {"name": f"s{number}"}}, lab)
    await ask(api, name, "lab", count_secrets=2)
    told = f"count/secrets: 5 in use in namespace {lab!r}, 3 more than its share of 2; new use is refused"
    await child(api, name, "lab", ready=False, reason=reasons.QUOTA_EXCEEDED, told=told)
    await become(api, name, {name: {"count/secrets": 5}, lab: {"count/secrets": 2}})

    async def is_refused() -> bool:
        return "exceeded quota" in await refusal(api, SECRETS, {"metadata": {"name": "more"}}, lab)

    await until(is_refused, "the API server counts against the new share")
    with pytest.raises(Forbidden):
        await api.create(SECRETS, {"metadata": {"name": "more"}}, lab)
    await make(api, name, "other", count_secrets=6)
    await child(api, name, "other", ready=False, reason=reasons.QUOTA_INSUFFICIENT)
    assert len(await api.list(SECRETS, lab)) == 5
    for number in range(3):
        await api.delete(SECRETS, f"s{number}", lab)
    other = (await child(api, name, "other"))["status"]["namespace"]
    await child(api, name, "lab")
    await become(api, name, {name: {"count/secrets": 2}, lab: {"count/secrets": 2}, other: {"count/secrets": 6}})
    assert operator.is_running


@pytest.mark.long
async def test_a_held_namespace_keeps_its_share_when_the_operator_restarts(
    api: Api, operator: Operator, name: str
) -> None:
    """E09: a finalizer of its owner holds what it uses, and Kubernetes has deleted its ResourceQuota already."""
    await api.make_tenant(name, quota={"hard": {"count/secrets": 10}})
    await make(api, name, "held", count_secrets=6)
    held = (await child(api, name, "held"))["status"]["namespace"]
    await api.create(SECRETS, {"metadata": {"name": "s", "finalizers": ["tests.example.com/hold"]}}, held)
    await api.delete(Subnamespace.resource, "held", name)

    async def has_no_quota() -> bool:
        return held not in await shares(api, name)

    await until(has_no_quota, "Kubernetes has deleted the ResourceQuota")
    await operator.stop()
    await operator.start()
    await operator.leads()
    await make(api, name, "more", count_secrets=5)
    await child(api, name, "more", ready=False, reason=reasons.QUOTA_INSUFFICIENT)
    await become(api, name, {name: {"count/secrets": 4}})
    await api.patch(SECRETS, "s", {"metadata": {"finalizers": None}}, held)
    more = (await child(api, name, "more"))["status"]["namespace"]
    await become(api, name, {name: {"count/secrets": 5}, more: {"count/secrets": 5}})


async def test_a_parent_keeps_what_it_uses(api: Api, operator: Operator, name: str) -> None:
    """E09: the child waits until the parent has freed what it asks for."""
    await api.make_tenant(name, quota={"hard": {"count/secrets": 4}})
    for number in range(3):
        await api.create(SECRETS, {"metadata": {"name": f"s{number}"}}, name)
    await make(api, name, "lab", count_secrets=2)
    told = f"count/secrets: 2 requested, 1 available: namespace {name!r} uses 3 itself"
    await child(api, name, "lab", ready=False, reason=reasons.QUOTA_INSUFFICIENT, told=told)
    await api.delete(SECRETS, "s0", name)

    async def is_counted() -> bool:
        found = await api.get(ResourceQuota.resource, "tenantry-quota", name)
        if found["status"]["used"]["count/secrets"] == "2":
            return True
        # Kubernetes' quota controller ignores a deletion if the ResourceQuota in its cache, from before some creations,
        # has the right count by chance: it counts again with the next deletion, or after five minutes.
        with suppress(Forbidden):  # the child may have its share already
            await api.create(SECRETS, {"metadata": {"name": "spare"}}, name)
        await api.delete(SECRETS, "spare", name)
        return False

    await until(is_counted, "the deletion is counted")
    await child(api, name, "lab")
    assert operator.is_running


# -- a quota that changes -------------------------------------------------------------------------


async def _book(api: Api, name: str) -> TenantResourceQuota | None:
    try:
        return await api.client.get(TenantResourceQuota, name)
    except NotFound:
        return None


async def _whole(api: Api, name: str, key: str, value: str) -> TenantResourceQuota:
    async def so() -> TenantResourceQuota | None:
        found = await _book(api, name)
        return found if found is not None and found.status.hard.get(key) == value else None

    return await until(so, f"{name} may use {value} of {key}")


async def _told(api: Api, name: str, reason: str, told: str = "", *, part: str = "") -> None:
    async def so() -> bool:
        found = await _book(api, name)
        ready = find(found.status.conditions, reasons.READY) if found is not None else None
        if ready is None or ready.reason != reason:
            return False
        return told in {"", ready.message} and part in ready.message

    await until(so, f"{name} says {reason}: {told or part}")


async def test_a_smaller_quota_keeps_what_children_hold_and_says_so(api: Api, operator: Operator, name: str) -> None:
    """E10: Keep, the default: by how much it is short, and where."""
    await api.make_tenant(name, quota={"hard": {"cpu": 10}})
    for each, cpu in (("a", 3), ("b", 4)):
        await make(api, name, each, cpu=cpu)
        await child(api, name, each)
    await api.patch(Tenant.resource, name, {"spec": {"quota": {"hard": {"cpu": 5}}}})
    told = "requests.cpu: subnamespaces hold 7, 2 more than 5: 'b' has 4, 'a' has 3"
    await _told(api, name, reasons.QUOTA_SHORT, told)
    await api.condition(name, reasons.READY, holds=False, reason=reasons.QUOTA_SHORT)
    await become(api, name, {name: {"requests.cpu": 0}})
    await _whole(api, name, "requests.cpu", "7")
    await ask(api, name, "b", cpu=1)
    await _told(api, name, reasons.ESTABLISHED)
    await api.condition(name, reasons.READY, holds=True)
    await _whole(api, name, "requests.cpu", "5")
    await become(api, name, {name: {"requests.cpu": 1}})
    assert operator.is_running


async def test_reclaim_takes_from_the_youngest_and_gives_back(api: Api, operator: Operator, name: str) -> None:
    """E10: onShortage Reclaim: their whole subtree, to 0; given back when the quota grows."""
    await api.make_tenant(name, quota={"hard": {"cpu": 10}, "onShortage": "Reclaim"})
    spaces: dict[str, str] = {}
    for parent, each, cpu in ((name, "old", 3), (name, "young", 4), ("young", "low", 2)):
        inside = spaces.get(parent, parent)
        await make(api, inside, each, cpu=cpu)
        spaces[each] = (await child(api, inside, each))["status"]["namespace"]
    await api.patch(Tenant.resource, name, {"spec": {"quota": {"hard": {"cpu": 6}}}})
    taken = {name: 3, spaces["old"]: 3, spaces["young"]: 0, spaces["low"]: 0}
    await become(api, name, {namespace: {"requests.cpu": cpu} for namespace, cpu in taken.items()})
    await child(api, name, "young", ready=False, reason=reasons.QUOTA_INSUFFICIENT)
    events: list[Json] = []

    async def said() -> bool:
        nonlocal events
        events = [each for each in await api.list(EVENTS, name) if each["reason"] == reasons.RECLAIMED]
        return [each["regarding"]["name"] for each in events] == ["young"]

    await until(said, "an event on the Subnamespace reports what was taken back", seen=lambda: events)
    await api.patch(Tenant.resource, name, {"spec": {"quota": {"hard": {"cpu": 7}}}})
    back = {name: 0, spaces["old"]: 3, spaces["young"]: 2, spaces["low"]: 2}
    await become(api, name, {namespace: {"requests.cpu": cpu} for namespace, cpu in back.items()})
    await child(api, spaces["young"], "low")
    assert operator.is_running


async def test_adjustments_change_the_quota_for_a_while(api: Api, operator: Operator, name: str) -> None:
    """E10: they add and take away, end by themselves, and are refused for what is not limited."""
    await api.make_tenant(name, quota={"hard": {"cpu": 10, "count/secrets": 5}})
    await make(api, name, "lab", cpu=12)
    await child(api, name, "lab", ready=False, reason=reasons.QUOTA_INSUFFICIENT)
    adjustments: list[Json] = [
        {"name": "fair", "resources": {"cpu": "5"}, "expiresAt": in_seconds(3600)},
        {"name": "less", "resources": {"count/secrets": "-2"}},
        {"name": "odd", "resources": {"pods": 1}},
    ]
    await until(lambda: _book(api, name), "there is something to adjust")
    await api.patch(TenantResourceQuota.resource, name, {"spec": {"adjustments": adjustments}})
    lab = (await child(api, name, "lab"))["status"]["namespace"]
    both = {name: {"requests.cpu": 3, "count/secrets": 3}, lab: {"requests.cpu": 12, "count/secrets": 0}}
    await become(api, name, both)
    await _told(api, name, reasons.INVALID_SPEC, part="'odd'")
    # Not before all of this has been seen, however slow the machine is.
    fair = {**adjustments[0], "expiresAt": in_seconds(4)}
    await api.patch(TenantResourceQuota.resource, name, {"spec": {"adjustments": [fair, adjustments[1]]}})
    told = "requests.cpu: subnamespaces hold 12, 2 more than 10: 'lab' has 12"
    await _told(api, name, reasons.QUOTA_SHORT, told)
    await become(api, name, {name: {"requests.cpu": 0}})
    assert operator.is_running


async def test_hand_edits_are_put_back(api: Api, operator: Operator, name: str) -> None:
    """E09: a share changed, taken away or made anew with scopes; the TenantResourceQuota deleted."""
    await api.make_tenant(name, quota={"hard": {"cpu": 10}})
    await make(api, name, "lab", cpu=4)
    lab = (await child(api, name, "lab"))["status"]["namespace"]
    wanted = {name: {"requests.cpu": 6}, lab: {"requests.cpu": 4}}
    for namespace in (name, lab):
        await api.patch(ResourceQuota.resource, "tenantry-quota", {"spec": {"hard": {"requests.cpu": 50}}}, namespace)
        await become(api, name, wanted)
        await api.delete(ResourceQuota.resource, "tenantry-quota", namespace)
        await become(api, name, wanted)
        labels = {"metadata": {"labels": {"app.kubernetes.io/managed-by": None}}}
        await api.patch(ResourceQuota.resource, "tenantry-quota", labels, namespace)
        await become(api, name, wanted)
        await _with_scopes(api, namespace)
        await become(api, name, wanted)
    await api.delete(TenantResourceQuota.resource, name)
    await _whole(api, name, "requests.cpu", "10")
    await become(api, name, wanted)
    assert operator.is_running


async def _with_scopes(api: Api, namespace: str) -> None:
    live = await api.get(ResourceQuota.resource, "tenantry-quota", namespace)
    value: Json = {
        "metadata": {"name": "tenantry-quota", "labels": live["metadata"]["labels"]},
        "spec": {"hard": {"pods": "99"}, "scopes": ["Terminating"]},
    }
    await api.delete(ResourceQuota.resource, "tenantry-quota", namespace)
    with suppress(AlreadyExists):
        await api.create(ResourceQuota.resource, value, namespace)


async def test_quotas_of_others_are_left_alone(api: Api, operator: Operator, name: str) -> None:
    """E09: scoped ones and foreign ones stay as they are."""
    await api.make_tenant(name, quota={"hard": {"cpu": 10}})
    await make(api, name, "lab", cpu=4)
    lab = (await child(api, name, "lab"))["status"]["namespace"]
    theirs: Json = {"metadata": {"name": "theirs"}, "spec": {"hard": {"pods": "1"}, "scopes": ["BestEffort"]}}
    made = await api.create(ResourceQuota.resource, theirs, lab)
    await ask(api, name, "lab", cpu=5)
    await become(api, name, {lab: {"requests.cpu": 5}})
    assert (await api.get(ResourceQuota.resource, "theirs", lab))["spec"] == made["spec"]
    assert operator.is_running
