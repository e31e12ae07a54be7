"""X10: what HNC keeps from being propagated, Tenantry keeps from being inherited."""

from __future__ import annotations

import pytest

from tenantry.api.owner import Owner, OwnerKind
from tenantry.world.hnc.objects import read
from tenantry.world.hnc.plan import ImportOptions, ImportPlan, plan

Json = dict[str, object]
API = "hnc.x-k8s.io/v1alpha2"
SECRETS: Json = {"resource": "secrets", "mode": "Propagate"}
SECRETS_IF_MARKED: Json = {"resource": "secrets", "mode": "AllowPropagate"}


def anchor(parent: str, name: str) -> Json:
    return {"apiVersion": API, "kind": "SubnamespaceAnchor", "metadata": {"namespace": parent, "name": name}}


def configuration(*resources: Json) -> Json:
    metadata = {"name": "config"}
    return {"apiVersion": API, "kind": "HNCConfiguration", "metadata": metadata, "spec": {"resources": [*resources]}}


def secret(annotations: dict[str, str], *, place: str = "acme", labels: dict[str, str] | None = None) -> Json:
    named = {f"propagate.hnc.x-k8s.io/{key}": value for key, value in annotations.items()}
    metadata = {"namespace": place, "name": "s", "annotations": named, "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}


def planned(*documents: object) -> ImportPlan:
    world = read((f"document {index}", value) for index, value in enumerate(documents))
    return plan(world, ImportOptions(owners=(Owner(kind=OwnerKind.USER, name="ada"),)))


def marks(*documents: object) -> list[tuple[str, str]]:
    return [(exempt.source.told, exempt.inherit) for exempt in planned(*documents).exceptions]


@pytest.mark.parametrize(
    ("annotations", "inherit"),
    [
        ({"none": "true"}, "none"),
        ({"none": "nonsense"}, "none"),
        ({"none": "false"}, None),
        ({"all": "true"}, None),
        ({"select": "env=prod,!old"}, "env=prod,!old"),
        ({"select": "team.tree.hnc.x-k8s.io/depth=0"}, "team.tree.tenantry.dev/depth=0"),
        ({"treeSelect": "team"}, "team.tree.tenantry.dev/depth"),
        ({"treeSelect": "!a, !b"}, "!a.tree.tenantry.dev/depth,!b.tree.tenantry.dev/depth"),
        ({"select": "x", "treeSelect": "!a"}, "x,!a.tree.tenantry.dev/depth"),
        ({"select": "x", "none": "1"}, "none"),
    ],
)
def test_exceptions_have_an_equivalent(annotations: dict[str, str], inherit: str | None) -> None:
    """X10: where the kind is propagated unless an object says otherwise."""
    found = marks(anchor("acme", "team"), configuration(SECRETS), secret(annotations))
    assert found == ([("Secret acme/s", inherit)] if inherit else [])


@pytest.mark.parametrize(
    ("annotations", "inherit"),
    [
        ({"all": "true"}, "all"),
        ({"all": "false"}, None),
        ({"none": "true"}, None),
        ({"none": "false"}, None),
        ({"select": "x"}, "x"),
        ({"treeSelect": "team"}, "team.tree.tenantry.dev/depth"),
        ({"all": "true", "none": "true"}, None),
    ],
)
def test_where_only_marked_objects_go_down_nothing_else_is_marked(
    annotations: dict[str, str], inherit: str | None
) -> None:
    """X10: AllowPropagate; a mark too many would hand a secret down."""
    found = marks(anchor("acme", "team"), configuration(SECRETS_IF_MARKED), secret(annotations))
    assert found == ([("Secret acme/s", inherit)] if inherit else [])


@pytest.mark.parametrize("mode", [None, "Ignore", "Remove"])
def test_what_is_not_propagated_is_not_marked(mode: str | None) -> None:
    """X10: a mark would hand it down, which HNC does not."""
    told = configuration(*([{**SECRETS, "mode": mode}] if mode else []))
    assert marks(anchor("acme", "team"), told, secret({"select": "x"})) == []


def test_kinds_of_files_are_found_by_their_plural() -> None:
    """X10: a file has the kind, HNC's configuration the resource."""
    told = configuration(
        {"group": "networking.k8s.io", "resource": "networkpolicies", "mode": "Propagate"},
        {"group": "networking.k8s.io", "resource": "ingresses", "mode": "Propagate"},
    )
    policy, ingress = (
        {**secret({"none": "true"}), "apiVersion": "networking.k8s.io/v1", "kind": kind}
        for kind in ("NetworkPolicy", "Ingress")
    )
    found = marks(anchor("acme", "team"), told, policy, ingress)
    assert found == [("Ingress acme/s", "none"), ("NetworkPolicy acme/s", "none")]


def test_copies_and_leaves_need_no_mark() -> None:
    """X10: HNC's copies get no mark, nor do objects without children below."""
    copy, leaf = (
        secret({"none": "true"}, labels={"hnc.x-k8s.io/inherited-from": "x"}),
        secret({"none": "true"}, place="team"),
    )
    assert marks(anchor("acme", "team"), configuration(SECRETS), copy, leaf) == []


def test_what_rancher_made_is_kept_back() -> None:
    """X10: HNC never propagates it."""
    made = secret({}, labels={"cattle.io/creator": "norman"})
    assert marks(anchor("acme", "team"), configuration(SECRETS), made) == [("Secret acme/s", "none")]


def test_who_is_selected_below_one_that_is_not_is_told() -> None:
    """X10: HNC asks every namespace, Tenantry goes from parent to child."""
    found = planned(
        anchor("acme", "team"),
        anchor("team", "squad"),
        anchor("acme", "other"),
        configuration(SECRETS),
        secret({"treeSelect": "squad"}),
    )
    assert [
        (finding.where, finding.text.partition(";")[0])
        for finding in found.findings
        if "does not reach" in finding.text
    ] == [
        (
            ("Secret acme/s",),
            "does not reach 'squad': objects are copied from parent to child, and 'team' is not selected",
        )
    ]
    whole = planned(
        anchor("acme", "team"), anchor("team", "squad"), configuration(SECRETS), secret({"treeSelect": "team"})
    )
    assert not [finding for finding in whole.findings if "does not reach" in finding.text]


def test_a_selector_that_means_nothing_here_is_told() -> None:
    """X10: it keeps the object back, and a person has to know."""
    found = planned(anchor("acme", "team"), configuration(SECRETS), secret({"select": "level > 3"}))
    assert [exempt.inherit for exempt in found.exceptions] == ["level > 3"]
    assert any("'level > 3' is not a valid selector in Tenantry" in finding.text for finding in found.findings)
