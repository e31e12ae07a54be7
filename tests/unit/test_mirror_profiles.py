"""Each kind is mirrored by one file, for control planes and for other clusters: what differs is data in a profile."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tenantry
from tenantry.mirror import kinds, lowerobjects, pods
from tenantry.mirror.kinds import services
from tenantry.mirror.kinds.kind import MirroredKind
from tenantry.mirror.kinds.table import KINDS
from tenantry.mirror.profile import Profile
from tenantry.mirror.shapes import NotTranslated
from testkit.mirroredpods import PAIRED
from testkit.mirroring import PROFILE, upper_pod

Json = dict[str, Any]

SOURCE = Path(tenantry.__file__).parent
APART = msgspec.structs.replace(PAIRED, is_apart=True)
PROFILES = {"control-plane": PROFILE, "another-cluster": APART}
SPECS: dict[str, Json] = {
    "services": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
    "networkpolicies": {"podSelector": {"matchLabels": {"app": "web"}}},
    "poddisruptionbudgets": {"selector": {"matchLabels": {"app": "web"}}, "minAvailable": 1},
    "ingresses": {"rules": [{"host": "web.example.com"}]},
    "persistentvolumeclaims": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    "volumesnapshots": {"source": {"persistentVolumeClaimName": "data"}},
}


def upper(kind: MirroredKind, **spec: object) -> Json:
    """Return a small upper object."""
    meta = {"name": "web", "namespace": "shop", "uid": "u-web", "labels": {"app": "web"}}
    return {"metadata": meta, "spec": {**SPECS.get(kind.resource.plural, {}), **spec}}


def test_each_kind_has_one_file() -> None:
    """A second file for a kind would be a second mirror."""
    made = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if "MirroredKind(" in (text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("MirroredKind")
    }
    assert all(name.startswith("mirror/kinds/") for name in made), made
    found = Counter(
        value.resource
        for each in pkgutil.iter_modules(kinds.__path__)
        for value in vars(importlib.import_module(f"{kinds.__name__}.{each.name}")).values()
        if isinstance(value, MirroredKind)
    )
    assert found == Counter(each.resource for each in KINDS)
    assert set(found.values()) == {1}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.resource.plural)
@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_each_kind_goes_down_by_either_profile(kind: MirroredKind, profile: Profile) -> None:
    found = lowerobjects.down(kind, profile, upper(kind))
    meta = found["metadata"]
    assert meta["name"] == profile.lower_name(kind.resource.kind, "shop", "web")
    assert (meta["name"] == "web") is not profile.computed
    assert meta["namespace"] == profile.lower_namespace("shop")
    assert profile.labels("shop").items() <= meta["labels"].items()
    assert meta["annotations"][profile.mark("uid")] == "u-web"


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_pods_go_down_by_either_profile(profile: Profile) -> None:
    made = pods.down(upper_pod(), profile)
    assert not made.refusal
    assert made.object["metadata"]["name"] == profile.lower_name("Pod", "shop", "web-0")


# -- Services at another cluster -------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        {"type": "LoadBalancer", "clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7"], "loadBalancerIP": "1.2.3.4"},
        {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}], "externalIPs": ["1.2.3.4"]},
        {"ipFamilies": ["IPv6"], "externalTrafficPolicy": "Local", "healthCheckNodePort": 30081},
    ],
)
def test_a_service_of_another_cluster_has_no_address_of_this_one_and_no_way_in(given: Json) -> None:
    """L08: pods there find pods there, and nothing else."""
    found = lowerobjects.down(services.KIND.apart(), APART, upper(services.KIND, **given))
    assert found["spec"] == {"type": "ClusterIP", "selector": {"app": "web"}, "ports": [{"port": 80}]}


def test_a_headless_service_stays_one() -> None:
    found = lowerobjects.down(services.KIND.apart(), APART, upper(services.KIND, clusterIP="None"))
    assert found["spec"]["clusterIP"] == "None"


@pytest.mark.parametrize(
    ("given", "path"),
    [({"type": "ExternalName", "externalName": "example.com"}, "spec.type"), ({"selector": {}}, "spec.selector")],
)
def test_a_service_without_pods_stays_and_names_the_field(given: Json, path: str) -> None:
    with pytest.raises(NotTranslated, match=path):
        lowerobjects.down(services.KIND.apart(), APART, upper(services.KIND, **given))


def test_nothing_of_a_service_of_another_cluster_goes_up() -> None:
    """L08: an address there could belong to another pod here."""
    kind = services.KIND.apart()
    assert (kind.status, kind.chosen, kind.readdressing) == (None, None, None)
