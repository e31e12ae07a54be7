"""The ConfigMaps and Secrets that a pod refers to."""

from __future__ import annotations

from tenantry.mirror.references import PodReference, references
from testkit.mirroring import FULL, upper_pod


def test_all_places_are_found() -> None:
    found = {(each.kind, each.name, each.optional) for each in references(FULL)}
    assert found == {
        ("ConfigMap", "colours", True),
        ("ConfigMap", "kube-root-ca.crt", False),
        ("ConfigMap", "settings", False),
        ("Secret", "extra", False),
        ("Secret", "init", False),
        ("Secret", "keys", True),
        ("Secret", "password", False),
        ("Secret", "registry", False),
    }
    assert {each.namespace for each in references(FULL)} == {"shop"}


def test_an_object_is_optional_only_if_all_places_say_so() -> None:
    both = [{"configMapRef": {"name": "a", "optional": True}}, {"configMapRef": {"name": "a"}}]
    pod = upper_pod(containers=[{"name": "web", "envFrom": both}])
    assert references(pod) == {PodReference(kind="ConfigMap", namespace="shop", name="a")}


def test_a_malformed_pod_refers_to_nothing() -> None:
    assert references({"spec": {"volumes": [{"configMap": "x"}]}}) == frozenset()
    assert references({}) == frozenset()


def test_ephemeral_containers_refer_to_objects_unless_they_are_malformed() -> None:
    named = {"name": "d", "envFrom": [{"secretRef": {"name": "keys"}}]}
    pod = upper_pod(ephemeralContainers=[named])
    assert references(pod) == {PodReference(kind="Secret", namespace="shop", name="keys")}
    pod["spec"]["ephemeralContainers"].append({"name": 3})
    assert references(pod) == frozenset()
