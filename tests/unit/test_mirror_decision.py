"""What a mirror does next with a pod, and the nodes that it shows (H01): pure."""

from __future__ import annotations

from typing import Any

import pytest

from tenantry.mirror import decision, nodes
from tenantry.mirror.cachedpods import CachedPod
from tenantry.mirror.decision import Next
from tenantry.mirror.profile import Profile
from testkit.mirroredpods import CONDITION, NODE, PAIRED
from testkit.mirroring import cached

Json = dict[str, Any]

PROFILE = Profile(owner_uid="o", namespace="acme", prefix="mirror.example")


def upper(*, deleting: bool = False, node: bool = False, bound: bool = False, phase: str = "Pending") -> CachedPod:
    """Return an upper pod; one that is `bound` had a lower pod."""
    meta: Json = {"namespace": "default", "name": "web", "uid": "u", "annotations": {}}
    if deleting:
        meta |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 7}
    if bound:
        meta["annotations"] = {PROFILE.mark(decision.LOWER): "l"}
    spec = {"nodeName": "node-1"} if node else {}
    return cached({"metadata": meta, "spec": spec, "status": {"phase": phase}})


def lower(uid: str = "u", *, deleting: bool = False) -> CachedPod:
    """Return a lower pod of the upper pod with a uid."""
    meta: Json = {"namespace": "acme", "name": "web-1", "uid": "l", "annotations": {PROFILE.mark("uid"): uid}}
    if deleting:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return cached({"metadata": meta})


def waiting() -> CachedPod:
    """Return a lower pod that waits for its upper one."""
    meta: Json = {"namespace": "acme", "name": "web", "uid": "l", "annotations": {PROFILE.mark("adopted"): "true"}}
    return cached({"metadata": meta})


@pytest.mark.parametrize(
    ("above", "below", "wanted"),
    [
        (None, None, Next.REST),
        (None, lower(), Next.END_LOWER),
        (None, lower(deleting=True), Next.REST),
        (upper(), None, Next.CREATE),
        (upper(node=True), None, Next.REFUSE),
        (upper(phase="Succeeded", node=True, bound=True), None, Next.REST),
        (upper(phase="Failed"), None, Next.REST),
        (upper(), lower(), Next.FOLLOW),
        (upper(), lower("older"), Next.END_LOWER),
        (upper(), lower("older", deleting=True), Next.REST),
        (upper(deleting=True), lower("older"), Next.END_LOWER),
        (upper(deleting=True), lower(), Next.END_LOWER),
        (upper(deleting=True), lower(deleting=True), Next.FOLLOW),
        (upper(deleting=True), None, Next.END_UPPER),
        (upper(node=True, bound=True), None, Next.END_UPPER),
        (upper(node=True, bound=True), lower(deleting=True), Next.END_UPPER),
        (None, waiting(), Next.REST),
        (upper(), waiting(), Next.ADOPT),
        (upper(deleting=True), waiting(), Next.ADOPT),
    ],
)
def test_each_state_has_one_next_step(above: CachedPod | None, below: CachedPod | None, wanted: Next) -> None:
    """H01: a pod never has two lower ones, and never stays when nothing runs for it."""
    assert decision.decide(above, below, PROFILE) is wanted


def bound(
    namespace: str = "shop", *, deleting: bool = False, phase: str = "Pending", recorded: bool = False, **spec: object
) -> CachedPod:
    """Return an upper pod that is bound before it is mirrored."""
    meta: Json = {"namespace": namespace, "name": "web", "uid": "u"}
    if deleting:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    conditions = [{"type": CONDITION, "status": "True" if recorded else "False"}]
    return cached({"metadata": meta, "spec": {"nodeName": NODE, **spec}, "status": _status(phase, conditions)})


def below(uid: str = "u", *, deleting: bool = False, phase: str = "Running") -> CachedPod:
    """Return a lower pod of a bound one."""
    meta: Json = {"namespace": "shop-below", "name": "web", "uid": "l", "annotations": {PAIRED.mark("uid"): uid}}
    if deleting:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return cached({"metadata": meta, "status": _status(phase)})


def _status(phase: str, conditions: list[Json] | None = None) -> Json:
    return {"phase": phase, "conditions": conditions or []}


@pytest.mark.parametrize(
    ("above", "found", "wanted"),
    [
        (None, None, Next.REST),
        (None, below(), Next.END_LOWER),
        (bound(), None, Next.CREATE),
        (bound(recorded=True), None, Next.LOST),
        (bound(phase="Running"), None, Next.LOST),
        (bound(phase="Failed", recorded=True), None, Next.REST),
        (bound(hostNetwork=True), None, Next.FAIL),
        (bound(hostNetwork=True, recorded=True), None, Next.LOST),
        (bound(hostNetwork=True, deleting=True), None, Next.END_UPPER),
        (bound(), below(), Next.FOLLOW),
        (bound(), below("older"), Next.END_LOWER),
        (bound(), below("older", deleting=True), Next.REST),
        (bound(), below(deleting=True), Next.FOLLOW),
        (bound(phase="Failed"), below(), Next.END_LOWER),
        (bound(phase="Failed"), below(deleting=True), Next.FOLLOW),
        (bound(phase="Failed"), below(phase="Failed"), Next.FOLLOW),
        (bound(deleting=True), below(), Next.END_LOWER),
        (bound(deleting=True), below(deleting=True), Next.FOLLOW),
        (bound(deleting=True, recorded=True), None, Next.END_UPPER),
        (bound("kube-system"), None, Next.REST),
        (bound("kube-system", deleting=True), None, Next.END_UPPER),
        (bound("kube-system", deleting=True, recorded=True), None, Next.REST),
        (bound("kube-system", hostNetwork=True), None, Next.REST),
    ],
)
def test_each_state_of_a_bound_pod_has_one_next_step(
    above: CachedPod | None, found: CachedPod | None, wanted: Next
) -> None:
    assert decision.decide(above, found, PAIRED) is wanted


def test_the_grace_of_a_deletion_is_passed_on() -> None:
    """H01: what `kubectl delete --grace-period` gives, or the pod's own."""
    assert decision.grace(upper(deleting=True)) == 7
    assert decision.grace(upper()) is None


def test_nodes_have_names_and_addresses_of_their_own() -> None:
    """H01: nothing of the lower name is in the upper one; no two nodes of a control plane have one address."""
    names = {nodes.upper_name("o", f"rack-{number}", "u") for number in range(500)}
    assert len(names) == 500
    assert not any("rack" in name for name in names)
    assert nodes.upper_name("o", "rack-1", "u") != nodes.upper_name("p", "rack-1", "u")
    # A user who guesses the lower name does not find the upper one.
    assert nodes.upper_name("o", "rack-1", "u") != nodes.upper_name("o", "rack-1", "v")
    taken: set[str] = set()
    for name in sorted(names):
        taken.add(nodes.address(name, taken))
    assert len(taken) == 500
    assert all(each.startswith(("198.18.", "198.19.")) for each in taken)


def test_an_upper_node_tells_its_size_and_no_secrets_of_the_lower_one() -> None:
    """H01: labels, annotations and identifiers of the machine stay below."""
    found: Json = {
        "metadata": {
            "name": "rack-1",
            "labels": {"kubernetes.io/arch": "amd64", "tenantry.dev/slice": "x", "rack": "7"},
            "annotations": {"password": "p"},
        },
        "spec": {"providerID": "cloud://1"},
        "status": {
            "capacity": {"cpu": "8"},
            "allocatable": {"cpu": "7"},
            "addresses": [{"type": "InternalIP", "address": "10.0.0.7"}],
            "nodeInfo": {"machineID": "m", "kernelVersion": "6.1", "kubeletVersion": "v1.36.3"},
            "images": [{"names": ["secret.example/app"]}],
        },
    }
    made = nodes.node("node-a", found, "198.18.0.7", "2026-01-01T00:00:00Z")
    text = str(made)
    for word in ("rack", "tenantry", "password", "cloud", "10.0.0.7", "secret.example", "6.1"):
        assert word not in text
    assert made["metadata"]["labels"] == {"kubernetes.io/arch": "amd64", "kubernetes.io/hostname": "node-a"}
    assert made["status"]["allocatable"] == {"cpu": "7"}
    assert nodes.address_of(made) == "198.18.0.7"
    assert nodes.address_of({"status": {}}) == ""
