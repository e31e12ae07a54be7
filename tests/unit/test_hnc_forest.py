"""X10: which trees HNC's objects mean, and what of them cannot be imported."""

from __future__ import annotations

import pytest

from tenantry.api.errors import InputError
from tenantry.world.hnc.forest import HncForest, grow
from tenantry.world.hnc.objects import read
from tenantry.world.imports.findings import FindingWeight, ImportFindings

Json = dict[str, object]
API = "hnc.x-k8s.io/v1alpha2"


def namespace(name: str, **metadata: object) -> Json:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, **metadata}}


def anchor(parent: str, name: str) -> Json:
    return {"apiVersion": API, "kind": "SubnamespaceAnchor", "metadata": {"namespace": parent, "name": name}}


def below(name: str, parent: str, **status: object) -> Json:
    return {
        "apiVersion": API,
        "kind": "HierarchyConfiguration",
        "metadata": {"name": "hierarchy", "namespace": name},
        "spec": {"parent": parent},
        "status": status,
    }


def grown(*documents: object) -> tuple[HncForest, list[tuple[str, tuple[str, ...], str]]]:
    findings = ImportFindings()
    forest = grow(read((f"document {index}", value) for index, value in enumerate(documents)), findings)
    return forest, [(found.weight, found.where, found.text) for found in findings.all()]


def test_a_tree_is_known_by_whatever_names_it() -> None:
    """X10: anchors, hierarchies, the annotation of a namespace, and the label of its tree."""
    forest, findings = grown(
        anchor("acme", "by-anchor"),
        below("by-hierarchy", "acme"),
        namespace("by-annotation", annotations={"hnc.x-k8s.io/subnamespace-of": "by-anchor"}),
        namespace("by-label", labels={"by-anchor.tree.hnc.x-k8s.io/depth": "1", "acme.tree.hnc.x-k8s.io/depth": "2"}),
        namespace("stranger"),
    )
    assert forest.roots == ["acme"]
    assert forest.below("acme") == ["by-anchor", "by-hierarchy", "by-annotation", "by-label"]
    assert forest.line("by-label") == ["acme", "by-anchor", "by-label"]
    assert forest.full == {"by-hierarchy", "by-label"}
    assert findings == []


def test_a_list_holds_objects_too_and_nulls_are_not_given() -> None:
    """X10: as `kubectl get … -o yaml` prints them."""
    held = {
        "apiVersion": "v1",
        "kind": "List",
        "items": [namespace("acme", creationTimestamp=None), below("a", "acme")],
    }
    forest, _ = grown(held)
    assert forest.roots == ["acme"]
    assert forest.below("acme") == ["a"]


def test_an_anchor_of_another_ones_child_is_not_followed() -> None:
    """X10: HNC says Conflict of it."""
    forest, findings = grown(
        namespace("child", annotations={"hnc.x-k8s.io/subnamespace-of": "acme"}),
        anchor("acme", "child"),
        anchor("globex", "child"),
        anchor("globex", "own"),
    )
    assert forest.below("acme") == ["child"]
    assert forest.below("globex") == ["own"]
    text = "not followed: the namespace 'child' is below 'acme'; delete the anchor"
    assert findings == [(FindingWeight.LOST, ("SubnamespaceAnchor globex/child",), text)]


def test_cycles_are_left_out_with_what_is_below() -> None:
    """X10: a critical condition in HNC."""
    forest, findings = grown(below("a", "b"), below("b", "a"), below("c", "b"), anchor("acme", "d"))
    assert forest.roots == ["acme"]
    assert forest.parent == {"d": "acme"}
    assert [(where, text.partition(";")[0]) for _, where, text in findings] == [
        (("a", "b"), "left out: a cycle (a below b below a)"),
        (("c",), "left out, because its ancestor 'b' is"),
    ]


def test_what_is_not_there_is_left_out_where_all_namespaces_are_known() -> None:
    """X10: parents that are gone, and anchors whose namespace HNC has not made."""
    everything = [namespace(name) for name in ("kube-system", "acme", "made", "orphan", "under")]
    forest, findings = grown(
        *everything,
        anchor("acme", "made"),
        anchor("acme", "awaited"),
        below("orphan", "gone"),
        below("under", "orphan"),
    )
    assert forest.parent == {"made": "acme"}
    assert forest.roots == ["acme"]
    assert {where[0]: text.partition(";")[0] for _, where, text in findings} == {
        "awaited": "left out: HNC has not created this namespace",
        "orphan": "left out: its parent 'gone' does not exist",
        "under": "left out, because its ancestor 'orphan' is",
    }


@pytest.mark.parametrize(("root", "child"), [("tenantry-system", "a"), ("default", "a"), ("kube-public", "a")])
def test_reserved_names_are_left_out(root: str, child: str) -> None:
    """X10: a tenant's namespace may not have them."""
    forest, findings = grown(anchor(root, child))
    assert forest.roots == []
    assert [where for _, where, _ in findings] == [(root,), (child,)]


def test_what_halts_hnc_is_told() -> None:
    """X10: a condition of HNC's, but not the one that only repeats it further down."""
    conditions = [
        {"type": "ActivitiesHalted", "status": "True", "reason": "IllegalManagedLabel", "message": "no such label"},
        {"type": "ActivitiesHalted", "status": "True", "reason": "AncestorHaltActivities", "message": "above"},
    ]
    _, findings = grown(below("a", "acme", conditions=conditions))
    text = (
        "HNC reports IllegalManagedLabel: no such label; copies of HNC here and below may be out of date; fix it in HNC"
    )
    assert [found[2] for found in findings] == [f"{text} first"]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("text", "document 0: must be a Kubernetes object"),
        ({"kind": 3}, "document 0: must be a Kubernetes object"),
        (anchor("", "x"), "document 0: metadata.namespace and metadata.name must be given"),
        (below("a", "b") | {"spec": {"parent": 3}}, "document 0: is not a valid HierarchyConfiguration"),
        ({"kind": "List", "items": [namespace("a"), None]}, r"document 0, items\[1\]: must be a Kubernetes object"),
    ],
)
def test_what_is_no_object_is_refused_with_its_place(document: object, message: str) -> None:
    """X10: bad input."""
    with pytest.raises(InputError, match=message):
        grown(document)


def test_two_namespaces_of_one_name_are_refused_if_they_differ() -> None:
    """X10: they are of two clusters."""
    with pytest.raises(InputError, match="document 1: two Namespaces 'acme' differ; leave one of the two out"):
        grown(namespace("acme", uid="1"), namespace("acme", uid="2"))
    assert grown(namespace("acme", uid="1"), below("acme", ""), namespace("acme", uid="1"))[1] == []
