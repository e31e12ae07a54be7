"""VirtualControlPlanes of an operator that has no place for their processes."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import ObjectMeta
from tenantry.api.virtualcontrolplane import VirtualControlPlane, VirtualControlPlaneStatus
from tenantry.controllers.virtualcontrolplane.desired import FINALIZER
from tenantry.controllers.virtualcontrolplane.unplaced import UnplacedController
from testkit.model import World
from testkit.worldcluster import WorldCluster

Json = dict[str, Any]

KEY = "acme/web"
WEB = VirtualControlPlane(metadata=ObjectMeta(name="web", namespace="acme"))
ENDPOINT = "https://192.0.2.7:6443"


def world(*finalizers: str, endpoint: str = "") -> World:
    """Return a world with one control plane."""
    found = World()
    found.put_in(Namespace.resource, {"metadata": {"name": "acme"}})
    found.create(
        replace(
            WEB,
            metadata=replace(WEB.metadata, finalizers=finalizers),
            status=VirtualControlPlaneStatus(endpoint=endpoint, kubeconfig_secret="web-kubeconfig" if endpoint else ""),
        )
    )
    return found


def settled(found: World) -> Json:
    """Let the operator settle, and return the control plane."""
    WorldCluster(found, [UnplacedController()]).settle()
    return found.get(VirtualControlPlane.resource, KEY)


def stalled(found: Json) -> Json:
    return next(each for each in found["status"]["conditions"] if each["type"] == reasons.STALLED)


def test_the_status_says_that_there_is_no_place() -> None:
    condition = stalled(settled(world()))
    assert condition["reason"] == reasons.NOT_PLACED
    assert "this operator has no place for them" in condition["message"]


def test_what_another_operator_has_written_about_its_process_is_kept() -> None:
    status = settled(world(FINALIZER, endpoint=ENDPOINT))["status"]
    assert (status["endpoint"], status["kubeconfigSecret"]) == (ENDPOINT, "web-kubeconfig")


def test_one_whose_process_may_exist_stays_and_says_what_to_do() -> None:
    """H01: its data and its keys are on another machine."""
    for endpoint in ("", ENDPOINT):
        found = world(FINALIZER, endpoint=endpoint)
        found.delete(VirtualControlPlane.resource, KEY)
        left = settled(found)
        assert list(left["metadata"]["finalizers"]) == [FINALIZER]
        condition = stalled(left)
        assert condition["reason"] == reasons.NOT_PLACED
        assert f"remove the finalizer {FINALIZER!r}" in condition["message"]
        assert (ENDPOINT in condition["message"]) == bool(endpoint)


def test_one_that_no_place_has_taken_on_is_left_to_others() -> None:
    found = world("example.com/other")
    found.delete(VirtualControlPlane.resource, KEY)
    assert not settled(found)["status"].get("conditions")
