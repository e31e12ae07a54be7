"""What the metrics of refusals take from Events, which owners may write, too."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantry.api.kubernetes import Namespace, ResourceQuota
from tenantry.api.marks import MANAGED_BY, MANAGER, TENANT
from tenantry.api.model import Json, Resource
from tenantry.api.tenant import Tenant
from tenantry.controllers.operator import controllers
from tenantry.controllers.tenantmetrics import refusals
from tenantry.controllers.tenantmetrics.figures import Figures
from tenantry.controllers.tenantmetrics.gather import gather
from tenantry.controllers.tenantnamespace import COUNTS
from tenantry.engine.cluster import HOME, Cluster
from tenantry.engine.metrics import Metrics
from tenantry.engine.runtime import Runtime
from tenantry.kube.client import Client
from tenantry.kube.kubeconfig import Connection
from tenantry.mirror.podevents import EVENTS
from tenantry.policy.catalog import CHECKS
from tenantry.policy.explain.refusal import Obstacle
from testkit.clock import ManualClock

_POLICIES = {"tenantry-rules-pods", "tenantry-suspended", "tenantry-marks"}
_DENIED = "ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request: {said}"
_HEAD = 'Error creating: pods "web-" is forbidden: '


def _denied(policy: str, said: str) -> str:
    return _HEAD + _DENIED.format(policy=policy, said=said)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            _denied(
                "tenantry-rules-pods",
                "spec.hostNetwork must not be true (rule podSecurity.hostNamespaces of Tenant 'acme'): leave it out;"
                " container 'web' has image 'x' (rule images.allowed of TenancyDefaults 'default'): use one of a, b",
            ),
            {("Rule", "podSecurity.hostNamespaces"), ("Rule", "images.allowed")},
        ),
        (_denied("tenantry-marks", "the label is Tenantry's"), {("Policy", "tenantry-marks")}),
        (_denied("tenantry-suspended", "tenant 'acme' is suspended"), {("Suspension", "tenantry-suspended")}),
        (_denied("of-another-product", "no"), {("Policy", "")}),
        (_denied("tenantry-rules-pods", "no (rule made.up of Tenant 'acme'): no"), {("Rule", "")}),
        (_HEAD + "exceeded quota: tenantry, requested: pods=1, used: pods=4, limited: pods=4", {("Quota", "")}),
        (_HEAD + 'violates PodSecurity "restricted:latest": host namespaces (hostNetwork=true)', {("Kubernetes", "")}),
        ('Error creating: Pod "web-" is invalid: spec.containers: Required value', {("Validation", "")}),
        ("Error creating: the server is currently unable to handle the request", {("Kubernetes", "")}),
        ("", {("Kubernetes", "")}),
    ],
)
def test_a_message_names_what_refused_the_object(message: str, expected: set[tuple[str, str]]) -> None:
    assert set(refusals.causes(message, _POLICIES)) == expected


@given(
    st.lists(st.sampled_from([" (rule ", " of ", "): ", "; ", "Tenant 'a'", "images.allowed", "x.y", "'", '"', "\n"]))
)
def test_no_message_makes_labels_of_its_own(parts: list[str]) -> None:
    known = {"", *(check.rule for check in CHECKS), *_POLICIES}
    for message in ("".join(parts), _denied("tenantry-rules-pods", "".join(parts)), _denied("".join(parts), "no")):
        for by, rule in refusals.causes(message, _POLICIES):
            assert by in {*Obstacle}
            assert rule in known


def _event(**fields: object) -> msgspec.Raw:
    meta: Json = {"name": "web.1", "namespace": "acme", "resourceVersion": "7"}
    return msgspec.Raw(msgspec.json.encode({"metadata": meta, "message": _HEAD + "exceeded quota: q", **fields}))


def test_an_event_counts_as_often_as_it_was_repeated() -> None:
    assert refusals.read(_event(), ()).count == 1
    assert refusals.read(_event(count=3), ()).count == 3
    assert refusals.read(_event(series={"count": 5}), ()).count == 5
    assert refusals.read(_event(count=-4), ()).count == 1
    # An owner may write any number.
    assert refusals.read(_event(count=2**31 - 1), ()).count == 1_000_000


def test_an_event_is_known_by_its_key() -> None:
    found = refusals.read(_event(), ())
    assert (found.key, found.version, found.namespace) == ("acme/web.1", 7, "acme")


class _Home:
    """The caches of an operator that leads, which a test fills."""

    def __init__(self) -> None:
        clock = ManualClock()
        client = Client(Connection(server="https://192.0.2.1", source="a test"))
        self.cluster = Cluster(HOME, client, clock=clock, instance="test")
        refusing = refusals.RefusalController(self.cluster, None)
        Runtime(clock=clock, metrics=Metrics()).add(self.cluster, [*controllers("uid"), refusing])
        self.cluster.is_synced = True
        self._version = 0

    def put(self, resource: Resource, meta: Json, **fields: object) -> None:
        """Take in an object, as a watch brings it."""
        self._version += 1
        value = {"metadata": {"uid": "u", **meta, "resourceVersion": str(self._version)}, **fields}
        found = self.cluster.decode(resource, msgspec.json.encode(value))
        if found is not None:
            self.cluster.cache(resource).put(found)

    def tenant(self, name: str, *namespaces: str) -> None:
        """Take in a tenant with namespaces."""
        self.put(Tenant.resource, {"name": name}, spec={"owners": [{"kind": "User", "name": "ada"}]})
        for each in (name, *namespaces):
            self.put(Namespace.resource, {"name": each, "labels": {TENANT: name, MANAGED_BY: MANAGER}})

    def refuse(self, namespace: str, name: str, message: str = "exceeded quota: q", count: int = 1) -> None:
        """Take in an Event."""
        self.put(EVENTS, {"name": name, "namespace": namespace}, message=f"{_HEAD}{message}", count=count)

    def figures(self) -> dict[str, Figures]:
        return {each.tenant: each for each in gather(self.cluster)}


async def test_events_count_for_the_tenant_of_their_namespace_alone() -> None:
    home = _Home()
    home.tenant("acme", "acme-web")
    home.tenant("umbra")
    home.refuse("acme", "a.1", count=2)
    home.refuse("acme-web", "a.1", count=3)
    home.refuse("umbra", "a.1", _DENIED.format(policy="x", said="no (rule images.allowed of Tenant 'acme'): no"))
    home.refuse("kube-system", "a.1")
    found = home.figures()
    assert found["acme"].refusals == {("Quota", ""): 5}
    assert found["umbra"].refusals == {("Rule", "images.allowed"): 1}


async def test_the_events_that_are_kept_of_a_namespace_are_bounded() -> None:
    """An owner writes as many Events as it likes: other tenants keep theirs, and the operator its memory."""
    home = _Home()
    home.tenant("acme")
    home.tenant("umbra")
    for number in range(refusals.MOST_OF_NAMESPACE + 50):
        home.refuse("acme", f"forged.{number}")
    home.refuse("umbra", "a.1")
    cache = home.cluster.cache(EVENTS)
    assert len(cache) == refusals.MOST_OF_NAMESPACE + 1
    assert home.figures()["umbra"].refusals == {("Quota", ""): 1}
    # One that is known still counts on, and one that ends makes room.
    home.refuse("acme", "forged.0", count=7)
    assert home.figures()["acme"].refusals == {("Quota", ""): refusals.MOST_OF_NAMESPACE + 6}
    cache.remove("acme/forged.1", 10**6)
    home.refuse("acme", "real.1")
    assert cache.get("acme/real.1") is not None


async def test_pods_are_those_that_the_quota_of_each_namespace_counts() -> None:
    home = _Home()
    home.tenant("acme", "acme-web")
    home.tenant("umbra")
    for namespace, pods in (("acme", "3"), ("acme-web", "4")):
        home.put(
            ResourceQuota.resource,
            {"name": COUNTS, "namespace": namespace, "labels": {MANAGED_BY: MANAGER}},
            status={"used": {"count/pods": pods}},
        )
    assert (home.figures()["acme"].pods, home.figures()["umbra"].pods) == (7, None)
