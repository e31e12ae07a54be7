"""The ConfigMaps and Secrets that a pod refers to."""

from __future__ import annotations

from typing import Any

import msgspec

from tenantry.mirror import pods, things
from tenantry.mirror.references import MOST_REFERENCES, PodReference, is_translated, references
from tenantry.mirror.things import Copy
from testkit.mirroring import FULL, PROFILE, upper_pod

Json = dict[str, Any]


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


def test_a_pod_is_refused_for_its_metadata_as_for_its_spec() -> None:
    assert is_translated(FULL)
    assert not is_translated({"metadata": {**FULL["metadata"], "labels": {"app": 1}}, "spec": FULL["spec"]})
    assert not is_translated({"metadata": FULL["metadata"], "spec": {"volumes": "x"}})


def test_ephemeral_containers_refer_to_objects_unless_they_are_malformed() -> None:
    named = {"name": "d", "envFrom": [{"secretRef": {"name": "keys"}}]}
    pod = upper_pod(ephemeralContainers=[named])
    assert references(pod) == {PodReference(kind="Secret", namespace="shop", name="keys")}
    pod["spec"]["ephemeralContainers"].append({"name": 3})
    assert references(pod) == frozenset()


def _many(count: int, first: int = 0) -> list[Json]:
    return [{"secretRef": {"name": f"s{number}", "optional": True}} for number in range(first, first + count)]


def test_a_pod_that_names_too_many_objects_is_refused_and_not_indexed() -> None:
    """VCP-63: each name is kept in the memory of the operator, and 256 KiB have thousands of them."""
    most = upper_pod(containers=[{"name": "web", "envFrom": [*_many(MOST_REFERENCES), *_many(MOST_REFERENCES)]}])
    assert len(references(most)) == MOST_REFERENCES
    assert not pods.down(most, PROFILE).refusal
    more = upper_pod(containers=[{"name": "web", "envFrom": _many(MOST_REFERENCES + 1)}])
    assert references(more) == frozenset()
    refused = pods.down(more, PROFILE)
    assert (refused.object, refused.needs) == ({}, frozenset())
    assert refused.refusal.startswith(
        f"spec.containers[0].envFrom[{MOST_REFERENCES}].secretRef.name must not name one more object: a pod may name at"
        f" most {MOST_REFERENCES} different"
    )


def test_ephemeral_containers_do_not_name_further_objects_without_bound() -> None:
    """VCP-63: they are added while the pod runs, which goes on without them."""
    named: Json = {"name": "web", "envFrom": _many(MOST_REFERENCES)}
    pod = upper_pod(containers=[named], ephemeralContainers=[{"name": "d", "envFrom": _many(1, MOST_REFERENCES)}])
    assert {each.name for each in references(pod)} == {f"s{number}" for number in range(MOST_REFERENCES)}
    made = pods.down(pod, PROFILE)
    assert (made.refusal, made.ephemeral) == ("", ())
    assert made.ephemeral_refusal.startswith("spec.ephemeralContainers[0].envFrom[0].secretRef.name must not name one")


def test_labels_and_annotations_of_sources_are_not_kept() -> None:
    """VCP-63: 400 KB of labels become 5 MB of Python objects."""
    mark = PROFILE.mark(things.WRITTEN_MARK)
    labels = {f"k{number}": "" for number in range(10_000)} | {mark: "true"}
    meta: Json = {"name": "keys", "namespace": "shop", "uid": "u", "resourceVersion": "7"}
    data = msgspec.json.encode({"metadata": {**meta, "labels": labels, "annotations": labels}, "data": {"a": "x"}})
    assert things.source(mark)(msgspec.Raw(data)) == Copy("shop/keys", "u", 7, {mark: "true"}, {})
    bare = things.source(mark)(msgspec.Raw(msgspec.json.encode({"metadata": {**meta, "labels": {"a": "b"}}})))
    assert bare == Copy("shop/keys", "u", 7, {}, {})
    # All listeners of a kind name one function.
    assert things.source(mark) is things.source(mark)
