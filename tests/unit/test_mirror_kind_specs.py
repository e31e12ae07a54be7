"""What becomes of the objects of each mirrored kind on the lower side, and of a status on the upper side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tenantry.mirror import marking
from tenantry.mirror.kinds import budgets, claims, ingresses, networkpolicies, routes, services, volumesnapshots
from tenantry.mirror.kinds.kind import MirroredKind, Origin
from tenantry.mirror.names import lower_name
from tenantry.mirror.shapes import NotTranslated
from testkit.mirroring import PROFILE

Json = dict[str, Any]

OWNER: Json = {"key": "example.dev/owner", "operator": "In", "values": ["u-plane"]}
SHOP: Json = {"key": "example.dev/namespace", "operator": "In", "values": ["shop"]}


def lowered(
    kind: MirroredKind, spec: Json, *, lower: Json | None = None, names: Sequence[str] = (), **upper: object
) -> Json:
    """Return the lower spec of an upper one in namespace shop."""
    found = kind.spec(spec, "spec")
    origin = Origin(
        profile=PROFILE,
        namespace="shop",
        upper={**upper, "spec": spec},
        lower=lower or {},
        status={},
        namespaces=lambda _: names,
    )
    kind.translate(found, origin)
    return found


def named(kind: str, name: str) -> str:
    """Return the lower name of an object in namespace shop."""
    return lower_name("u-plane", kind, "shop", name)


@pytest.mark.parametrize(
    ("peer", "names", "expected"),
    [
        ({"podSelector": {}}, (), {"matchExpressions": [OWNER, SHOP]}),
        ({"namespaceSelector": {}}, (), {"matchExpressions": [OWNER]}),
        (
            {"namespaceSelector": {"matchLabels": {"team": "a"}}},
            ("stock", "shop"),
            {"matchExpressions": [OWNER, {**SHOP, "values": ["shop", "stock"]}]},
        ),
        (
            {"namespaceSelector": {"matchLabels": {"team": "a"}}},
            (),
            {"matchExpressions": [OWNER, {**SHOP, "values": [""]}]},
        ),
    ],
    ids=["own-namespace", "all-namespaces", "selected", "none-selected"],
)
def test_peers_are_pods_of_the_owner(peer: Json, names: tuple[str, ...], expected: Json) -> None:
    """A selection of no namespaces selects no pods: without the expression it would select those of all."""
    spec = {"podSelector": {"matchLabels": {"app": "db"}}, "ingress": [{"from": [peer]}], "egress": [{"to": [peer]}]}
    found = lowered(networkpolicies.KIND, spec, names=names)
    assert found["podSelector"] == {"matchLabels": {"app": "db"}, "matchExpressions": [OWNER, SHOP]}
    assert [each["from"] for each in found["ingress"]] == [[{"podSelector": expected}]]
    assert [each["to"] for each in found["egress"]] == [[{"podSelector": expected}]]


def test_blocks_of_addresses_stay() -> None:
    """The lower side decides which addresses are allowed."""
    block = {"ipBlock": {"cidr": "203.0.113.0/24", "except": ["203.0.113.7/32"]}}
    found = lowered(networkpolicies.KIND, {"podSelector": {}, "egress": [{"to": [block]}, {}]})
    assert found["egress"] == [{"to": [block]}, {}]


@pytest.mark.parametrize(
    ("status", "kept"),
    [({}, 0), ({"expectedPods": 3, "desiredHealthy": 3}, 2), ({"expectedPods": 4, "desiredHealthy": 2}, 2)],
)
def test_a_drain_of_a_lower_node_always_finishes(status: Json, kept: int) -> None:
    """A budget that lets no pod go would keep a node of the lower side for ever."""
    found = lowered(budgets.KIND, {"selector": {}, "maxUnavailable": 0}, status=status)
    policy = {"unhealthyPodEvictionPolicy": "AlwaysAllow"}
    assert found == {"selector": {"matchExpressions": [OWNER, SHOP]}, "minAvailable": kept, **policy}
    assert lowered(budgets.KIND, {"minAvailable": 1}, status=status) == {"minAvailable": kept, **policy}


def test_an_ingress_leads_to_lower_services() -> None:
    """Hosts stay, names do not."""
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    spec = {
        "defaultBackend": backend,
        "tls": [{"hosts": ["a.example"], "secretName": "cert"}],
        "rules": [{"host": "a.example", "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}],
    }
    found = lowered(ingresses.KIND, spec)
    below = {"service": {"name": named("Service", "web"), "port": {"number": 80}}}
    assert found["defaultBackend"] == below
    assert found["tls"] == [{"hosts": ["a.example"], "secretName": named("Secret", "cert")}]
    assert found["rules"][0]["host"] == "a.example"
    assert found["rules"][0]["http"]["paths"][0]["backend"] == below
    with pytest.raises(NotTranslated, match="name a Service"):
        lowered(ingresses.KIND, {"defaultBackend": {"resource": {"kind": "Bucket", "name": "b"}}})


def test_a_service_selects_pods_of_its_namespace_and_keeps_its_addresses() -> None:
    """What the lower API server has chosen stays, until the type changes."""
    chosen = {"type": "NodePort", "clusterIP": "10.96.1.2", "clusterIPs": ["10.96.1.2"], "healthCheckNodePort": 31000}
    lower = {**chosen, "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30080}]}
    spec = {"type": "NodePort", "selector": {"app": "web"}, "ports": [{"port": 80}]}
    found = lowered(services.KIND, spec, lower=lower)
    marks = {"example.dev/owner": "u-plane", "example.dev/namespace": "shop"}
    assert found == {**chosen, "selector": {"app": "web", **marks}, "ports": [{"port": 80, "nodePort": 30080}]}
    assert lowered(services.KIND, {"type": "ExternalName", "externalName": "a.example"}, lower=lower) == {
        "type": "ExternalName",
        "externalName": "a.example",
    }
    # Without a selector, the endpoints are those of its own pods that the user names.
    assert lowered(services.KIND, {"ports": [{"port": 80}]}) == {
        "selector": {"example.dev/owner": "u-plane", f"example.dev/serves-{named('Service', '')[-16:]}": ""},
        "publishNotReadyAddresses": True,
        "ports": [{"port": 80}],
    }
    assert services.chosen({"spec": spec}, {"spec": lower})["spec"] == {
        **spec,
        **{key: value for key, value in chosen.items() if key != "type"},
        "ports": [{"port": 80, "nodePort": 30080}],
    }


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"volumeName": "pv-of-another"}, "spec.volumeName may not be set"),
        ({"selector": {"matchLabels": {"a": "b"}}}, "spec.selector may not be set"),
        ({"dataSource": {"kind": "Image", "name": "s", "apiGroup": "images.example.dev"}}, "dataSource"),
        ({"dataSource": {"kind": "VolumeSnapshot", "name": "s"}}, "dataSource"),
        (
            {"dataSourceRef": {"kind": "PersistentVolumeClaim", "name": "s", "namespace": "kube-system"}},
            "dataSourceRef",
        ),
    ],
)
def test_claims_name_nothing_of_others(spec: Json, words: str) -> None:
    """A volume by its name, or a source elsewhere, could be another owner's."""
    with pytest.raises(NotTranslated, match=words):
        lowered(claims.KIND, spec)


def test_a_claim_keeps_its_lower_volume() -> None:
    """The binder of the lower side has chosen it."""
    source = {"kind": "PersistentVolumeClaim", "name": "old"}
    found = lowered(claims.KIND, {"dataSource": source}, lower={"volumeName": "pv-7", "storageClassName": "fast"})
    assert (found["volumeName"], found["storageClassName"]) == ("pv-7", "fast")
    assert found["dataSource"]["name"] == named("PersistentVolumeClaim", "old")
    status = {"phase": "Bound", "capacity": {"storage": "1Gi"}, "conditions": [{"type": "Resizing"}]}
    assert claims.status({"status": status}) == {"phase": "Bound", "capacity": {"storage": "1Gi"}}


def test_marks_of_users_do_not_reach_the_lower_side() -> None:
    """Neither forged marks, nor owners, finalizers or whole manifests; labels of the lower side's programs stay."""
    upper: Json = {
        "metadata": {
            "name": "web",
            "namespace": "shop",
            "uid": "u-1",
            "labels": {"app": "web", "example.dev/owner": "u-other", "tenantry.dev/zone": "x"},
            "annotations": {"note": "a", "x.Example.dev/name": "y", marking.APPLIED: "{}"},
            "ownerReferences": [{"uid": "u-2"}],
            "finalizers": ["a/b"],
        }
    }
    found = marking.metadata("Service", upper, PROFILE)
    assert sorted(found) == ["annotations", "labels", "name", "namespace", "ownerReferences"]
    assert found["labels"] == {"app": "web", "example.dev/owner": "u-plane", "example.dev/namespace": "shop"}
    assert {key for key in found["annotations"] if not key.startswith("example.dev/")} == {"note"}
    assert [each["uid"] for each in found["ownerReferences"]] == ["u-plane"]
    live = {**found, "labels": {**found["labels"], "app": "old", "of-below": "1"}}
    assert marking.changed(found, found, PROFILE) == {}
    assert marking.changed(live, found, PROFILE) == {"labels": {"app": "web"}}
    bare = marking.metadata("Service", {"metadata": {"name": "web", "namespace": "shop", "uid": "u-1"}}, PROFILE)
    patch = marking.changed(live, bare, PROFILE)
    assert patch["labels"] == {"app": None}
    assert patch["annotations"]["note"] is None
    with pytest.raises(NotTranslated, match=r"metadata\.name"):
        marking.metadata("Service", {"metadata": {"namespace": "shop"}}, PROFILE)


def test_a_policy_cannot_grow_without_bound() -> None:
    """X03: peers times namespaces is the work and the size of the lower policy."""
    one = {"namespaceSelector": {"matchLabels": {"team": "a"}}}
    names = [f"n{number}" for number in range(100)]
    peers = networkpolicies.MOST_NAMES // len(names)
    within: Json = {"podSelector": {}, "ingress": [{"from": [one] * peers}]}
    assert len(lowered(networkpolicies.KIND, within, names=names)["ingress"][0]["from"]) == peers
    with pytest.raises(NotTranslated, match="namespaces in all peers"):
        lowered(networkpolicies.KIND, {"podSelector": {}, "egress": [{"to": [one] * (peers + 1)}]}, names=names)


def test_a_claim_is_filled_from_an_own_snapshot() -> None:
    source = {"kind": "VolumeSnapshot", "apiGroup": "snapshot.storage.k8s.io", "name": "s"}
    found = lowered(claims.KIND, {"dataSource": source})
    assert found["dataSource"] == {**source, "name": named("VolumeSnapshot", "s")}


def test_a_snapshot_is_one_of_an_own_claim_and_shows_nothing_of_the_storage() -> None:
    """H01: neither the content nor the message of an error comes up."""
    found = lowered(volumesnapshots.KIND, {"source": {"persistentVolumeClaimName": "data"}})
    assert found == {"source": {"persistentVolumeClaimName": named("PersistentVolumeClaim", "data")}}
    for source in ({"volumeSnapshotContentName": "of-another"}, {}):
        with pytest.raises(NotTranslated, match="name a PersistentVolumeClaim"):
            lowered(volumesnapshots.KIND, {"source": source})
    status = {
        "readyToUse": False,
        "restoreSize": "1Gi",
        "boundVolumeSnapshotContentName": "content-1",
        "error": {"time": "t", "message": "snap-0123 of vol-9 failed"},
    }
    assert volumesnapshots.status({"status": status}) == {
        "readyToUse": False,
        "restoreSize": "1Gi",
        "error": {"time": "t", "message": volumesnapshots.FAILED},
    }


PARENT: Json = {"name": "public", "namespace": "gateways"}


def test_a_route_leads_from_gateways_of_the_lower_side_to_own_services() -> None:
    """Hosts and Gateways stay, names of Services do not, in filters too."""
    mirror = {"type": "RequestMirror", "requestMirror": {"backendRef": {"name": "copy", "port": 80}}}
    backend = {"name": "web", "port": 80, "namespace": "shop", "filters": [mirror]}
    spec = {
        "parentRefs": [PARENT],
        "hostnames": ["a.example"],
        "rules": [{"filters": [mirror], "backendRefs": [backend]}],
    }
    found = lowered(routes.HTTP_KIND, spec)
    assert (found["parentRefs"], found["hostnames"]) == ([PARENT], ["a.example"])
    (rule,) = found["rules"]
    copy = {"name": named("Service", "copy"), "port": 80}
    assert rule["filters"][0]["requestMirror"]["backendRef"] == copy
    (below,) = rule["backendRefs"]
    assert (below["name"], "namespace" in below) == (named("Service", "web"), False)
    assert below["filters"][0]["requestMirror"]["backendRef"] == copy


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"parentRefs": [{"name": "own"}]}, "must be that of a Gateway of the host"),
        ({"parentRefs": [{**PARENT, "kind": "Service", "group": ""}]}, "must name a Gateway"),
        ({"rules": [{"backendRefs": [{"name": "a", "namespace": "stock"}]}]}, "must be that of the route"),
        ({"rules": [{"backendRefs": [{"name": "a", "kind": "Bucket", "group": "x.dev"}]}]}, "must name a Service"),
        ({"rules": [{"filters": [{"extensionRef": {"kind": "Policy", "name": "p"}}]}]}, "use another filter"),
        (
            {"rules": [{"filters": [{"requestMirror": {"backendRef": {"name": "a", "namespace": "kube-system"}}}]}]},
            "requestMirror.backendRef.namespace must be that of the route",
        ),
    ],
)
def test_routes_name_nothing_of_others(spec: Json, words: str) -> None:
    """A reference by the name of another kind or namespace could lead to objects of any owner."""
    for kind in (routes.HTTP_KIND, routes.GRPC_KIND):
        with pytest.raises(NotTranslated, match=words):
            lowered(kind, spec)


@pytest.mark.parametrize("kind", [routes.TLS_KIND, routes.TCP_KIND], ids=lambda kind: kind.resource.kind)
def test_routes_of_connections_lead_to_own_services(kind: MirroredKind) -> None:
    """They have no matches and no filters, and a TCPRoute has no hosts."""
    backend = {"name": "web", "port": 443, "weight": 1, "filters": [{"extensionRef": {"kind": "Policy", "name": "p"}}]}
    rule: Json = {"name": "r", "backendRefs": [backend], "matches": [{}], "filters": []}
    spec: Json = {"parentRefs": [PARENT], "hostnames": ["a.example"], "rules": [rule], "useDefaultGateways": "All"}
    found = lowered(kind, spec)
    below = {"name": named("Service", "web"), "port": 443, "weight": 1}
    assert found["rules"] == [{"name": "r", "backendRefs": [below]}]
    hosts = {"hostnames": ["a.example"]} if kind is routes.TLS_KIND else {}
    assert {key: value for key, value in found.items() if key != "rules"} == {"parentRefs": [PARENT], **hosts}
    for foreign, words in (
        ({"parentRefs": [{"name": "own"}]}, "must be that of a Gateway of the host"),
        ({"rules": [{"backendRefs": [{"name": "a", "namespace": "stock"}]}]}, "must be that of the route"),
        ({"rules": [{"backendRefs": [{"name": "a", "kind": "Bucket", "group": "x.dev"}]}]}, "must name a Service"),
    ):
        with pytest.raises(NotTranslated, match=words):
            lowered(kind, foreign)


def test_a_route_shows_which_gateways_have_accepted_it() -> None:
    condition = {"type": "Accepted", "status": "True", "reason": "Accepted", "message": "", "lastTransitionTime": "t"}
    parent = {"parentRef": PARENT, "controllerName": "example.dev/gateways"}
    below = {"parents": [{**parent, "conditions": [{**condition, "observedGeneration": 7}], "secret": "x"}]}
    assert routes.status({"status": below}) == {"parents": [{**parent, "conditions": [condition]}]}
    assert routes.status({}) == {"parents": []}
