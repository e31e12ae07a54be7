"""What the operator keeps on the host for control planes: restored, and written only when it differs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tenantry.api import reasons
from tenantry.api.errors import Forbidden, Invalid, TerminalError
from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import MADE_BY, MANAGED_BY, MANAGER
from tenantry.api.model import ObjectMeta, Resource
from tenantry.api.virtualcontrolplane import KUBECONFIG_KEY, MIRROR, MIRRORS_NAMESPACE, VirtualControlPlane
from tenantry.controllers.virtualcontrolplane import apiservice, desired, kubeconfigobjects
from tenantry.controllers.virtualcontrolplane.hostobjects import HostObjectController, HostObjects
from tenantry.controllers.virtualcontrolplane.unplaced import UnplacedController
from tenantry.engine.observed import Observed
from tenantry.engine.request import ApiRequest
from tenantry.hosting.placement import ServerEndpoint
from testkit.model import World
from testkit.worldcluster import WorldCluster

Json = dict[str, Any]

WEB = VirtualControlPlane(metadata=ObjectMeta(name="web", namespace="acme", uid="u-web"))
ACME = Observed("acme", "", "acme", "u-acme", 1, {}, {}, "", deleting=False, digest=b"", has_subjects=False)
WANTED = (
    *desired.mirror_objects(WEB, ACME, is_open=True),
    apiservice.service(WEB),
    *apiservice.way(WEB, ServerEndpoint(address="10.112.128.1", port=20001), "Isolated"),
    kubeconfigobjects.secret(WEB, ACME, "text"),
)
KEYS = [(resource, f"{value['metadata']['namespace']}/{value['metadata']['name']}") for resource, value in WANTED]
FORMER = f"acme/{MIRROR}"


class _World(World):
    """Refuses to change a Secret that is immutable, as the API server does."""

    def _patched(self, asked: ApiRequest, key: str, body: Json) -> Json:
        if self.objects.get((asked.resource, key), {}).get("immutable"):
            raise Invalid("field is immutable when `immutable` is set", status=422)
        return super()._patched(asked, key, body)


class _Host:
    """A host with the objects of one control plane."""

    def __init__(self, faults: Callable[[], str] = lambda: "none") -> None:
        self.world = _World()
        self.world.put_in(Namespace.resource, {"metadata": {"name": "acme", "uid": ACME.uid}})
        self.world.put_in(Namespace.resource, {"metadata": {"name": MIRRORS_NAMESPACE}})
        self.world.create(WEB)
        for resource in dict(WANTED):
            # A World knows the kinds of its objects.
            self.world.put_in(resource, {"metadata": {"name": "first", "namespace": "acme"}, "spec": {}})
        self.home = WorldCluster(self.world, [UnplacedController()])
        self.cluster = WorldCluster(self.world, [HostObjectController(self.home)], faults=faults)
        self.objects = HostObjects(self.cluster)

    def bring(self) -> None:
        """Have the objects brought to what they should be, by caches that are up to date before and after."""
        self.cluster.look()
        asyncio.run(self.objects.bring(WANTED, WEB.metadata.uid))
        self.cluster.look()

    def serve(self, before: str) -> str:
        """Have the Service of the API server brought to what it should be, and return its address."""
        self.cluster.look()
        address = asyncio.run(self.objects.bring_service(WEB, before))
        self.cluster.look()
        return address

    def get(self, resource: Resource, key: str) -> Json:
        return self.world.get(resource, key)


def test_what_is_missing_is_created_and_nothing_is_sent_while_it_is_there() -> None:
    sent: list[str] = []

    def count() -> str:
        sent.append("request")
        return "none"

    host = _Host(count)
    host.bring()
    names = [host.get(*each)["metadata"]["name"] for each in KEYS]
    assert [*names[:2], names[-1]] == ["acme", f"{MIRROR}-web", "web-kubeconfig"]
    sent.clear()
    host.bring()
    assert sent == []


@pytest.mark.parametrize(("resource", "key"), KEYS)
def test_what_is_deleted_comes_back(resource: Resource, key: str) -> None:
    host = _Host()
    host.bring()
    before = host.get(resource, key)
    host.world.delete(resource, key)
    host.bring()
    after = host.get(resource, key)
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert after["metadata"]["labels"] == before["metadata"]["labels"]


@pytest.mark.parametrize("more", [{}, {"immutable": True}])
def test_what_is_changed_is_put_right(more: Json) -> None:
    host = _Host()
    host.bring()
    before = host.get(desired.SECRETS, "acme/web-kubeconfig")["data"]
    host.world.patch(desired.SECRETS, "acme/web-kubeconfig", {"data": {KUBECONFIG_KEY: "AAAA"}, **more})
    host.bring()
    assert host.get(desired.SECRETS, "acme/web-kubeconfig")["data"] == before


def test_an_object_of_another_client_is_left_as_it_is() -> None:
    host = _Host()
    host.world.put_in(desired.SECRETS, {"metadata": {"name": "web-kubeconfig", "namespace": "acme"}, "data": {}})
    with pytest.raises(TerminalError, match="delete or rename it") as failed:
        host.bring()
    assert failed.value.reason == reasons.OBJECT_EXISTS
    assert host.get(desired.SECRETS, "acme/web-kubeconfig")["data"] == {}


def test_the_identity_of_mirrors_is_in_no_namespace_of_a_tenant_and_ends_with_it() -> None:
    """H01: owners may impersonate the ServiceAccounts of their namespaces."""
    (_, account), (_, binding) = desired.mirror_objects(WEB, ACME, is_open=True)
    assert (account["metadata"]["namespace"], account["metadata"]["name"]) == ("tenantry-mirrors", "acme")
    assert [(each["kind"], each["uid"]) for each in account["metadata"]["ownerReferences"]] == [("Namespace", "u-acme")]
    assert binding["metadata"]["namespace"] == "acme"
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "acme", "namespace": "tenantry-mirrors"}]


@pytest.mark.parametrize(
    ("meta", "stays"),
    [
        ({"labels": {MANAGED_BY: MANAGER}}, False),
        ({}, True),
        # Users may set the label, but not remove the annotation.
        ({"labels": {MANAGED_BY: MANAGER}, "annotations": {MADE_BY: "alice"}}, True),
    ],
)
def test_the_identity_of_an_earlier_version_is_deleted(meta: Json, *, stays: bool) -> None:
    host = _Host()
    host.world.put_in(desired.SERVICE_ACCOUNTS, {"metadata": {"name": MIRROR, "namespace": "acme", **meta}})
    for _ in range(2):
        asyncio.run(host.objects.retire("acme"))
        assert ((desired.SERVICE_ACCOUNTS, FORMER) in host.world.objects) is stays


def test_a_suspension_keeps_the_bindings_without_subjects() -> None:
    kinds = [resource for resource, _ in desired.mirror_objects(WEB, ACME, is_open=False)]
    assert kinds == [desired.SERVICE_ACCOUNTS]


def test_a_refusal_is_not_taken_for_success() -> None:
    host = _Host()
    host.world.patch(Namespace.resource, "acme", {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
    for _ in range(2):
        with pytest.raises(Forbidden):
            host.bring()


@pytest.mark.parametrize(("resource", "key"), KEYS)
def test_a_change_wakes_the_control_planes_of_the_namespace(resource: Resource, key: str) -> None:
    host = _Host()
    host.bring()
    host.home.settle()
    host.cluster.settle()
    assert host.home.lane.queue.ready == 0, "own writes wake no reconciler"
    host.world.delete(resource, key)
    host.cluster.settle()
    assert host.home.lane.take(host.home.clock.monotonic()) == (UnplacedController.name, "acme/web")


def test_objects_of_other_names_are_not_watched() -> None:
    host = _Host()
    host.bring()
    host.world.put_in(desired.SERVICE_ACCOUNTS, {"metadata": {"name": "mine", "namespace": "acme"}})
    host.world.put_in(desired.SECRETS, {"metadata": {"name": "mine", "namespace": "acme"}})
    host.cluster.look()
    assert sum(host.cluster.count().values()) == len(KEYS)


def test_a_control_plane_that_is_gone_is_forgotten() -> None:
    sent: list[str] = []

    def count() -> str:
        sent.append("request")
        return "none"

    host = _Host(count)
    host.bring()
    sent.clear()
    host.objects.forget("other")
    host.bring()
    assert sent == []
    host.objects.forget("acme")
    host.bring()
    assert sent


SERVICE_KEY = f"acme/{apiservice.service(WEB)[1]['metadata']['name']}"


def test_the_address_of_the_api_server_outlives_its_service_and_the_operator() -> None:
    host = _Host()
    first = host.serve("")
    host.objects = HostObjects(host.cluster)
    assert host.serve("") == first
    host.world.delete(apiservice.SERVICES, SERVICE_KEY)
    assert host.serve(first) == first


def test_a_service_whose_address_is_taken_gets_another_one() -> None:
    host = _Host()
    first = host.serve("")
    host.world.delete(apiservice.SERVICES, SERVICE_KEY)
    host.world.taken = {first}
    assert host.serve(first) not in ("", first)


@pytest.mark.parametrize("spec", [{"selector": {"app": "mine"}}, {"clusterIP": "None"}])
def test_a_service_that_leads_elsewhere_is_created_again(spec: Json) -> None:
    """H01: endpoints that Kubernetes has found for a selector end with the Service only."""
    host = _Host()
    first = host.serve("")
    seen = host.get(apiservice.SERVICES, SERVICE_KEY)
    uid = seen["metadata"]["uid"]
    # Its user has created it again: no update leads to a headless one.
    host.world.delete(apiservice.SERVICES, SERVICE_KEY)
    host.world.put_in(apiservice.SERVICES, {**seen, "spec": {**seen["spec"], **spec}})
    assert host.serve(first) == first
    after = host.get(apiservice.SERVICES, SERVICE_KEY)
    assert after["metadata"]["uid"] != uid
    assert "selector" not in after["spec"]


def test_a_headless_service_that_was_there_first_gets_an_address() -> None:
    host = _Host()
    meta = {"name": SERVICE_KEY.partition("/")[2], "namespace": "acme", "ownerReferences": [{"uid": "u-web"}]}
    host.world.put_in(apiservice.SERVICES, {"metadata": meta, "spec": {"clusterIP": "None"}})
    assert host.serve("").startswith("10.96.0.")


def test_a_service_of_another_client_is_left_as_it_is() -> None:
    host = _Host()
    meta = {"name": SERVICE_KEY.partition("/")[2], "namespace": "acme"}
    host.world.put_in(apiservice.SERVICES, {"metadata": meta, "spec": {"clusterIP": "10.96.9.9"}})
    with pytest.raises(TerminalError, match="delete or rename it"):
        host.serve("")
