"""X10: what Tenantry would make of HNC's trees."""

from __future__ import annotations

import pytest

from tenantry.api.errors import InputError
from tenantry.api.owner import Owner, OwnerKind
from tenantry.api.subnamespace import Adoption, InheritanceMode, Mode, OtherInheritance
from tenantry.api.tenant import NetworkIsolation
from tenantry.world.hnc.objects import read
from tenantry.world.hnc.plan import ImportOptions, ImportPlan, plan
from tenantry.world.imports.findings import FindingWeight

Json = dict[str, object]
API = "hnc.x-k8s.io/v1alpha2"
ADA = Owner(kind=OwnerKind.USER, name="ada")


def anchor(parent: str, name: str, **spec: object) -> Json:
    metadata = {"namespace": parent, "name": name}
    return {"apiVersion": API, "kind": "SubnamespaceAnchor", "metadata": metadata, "spec": spec}


def hierarchy(name: str, **spec: object) -> Json:
    metadata = {"namespace": name, "name": "hierarchy"}
    return {"apiVersion": API, "kind": "HierarchyConfiguration", "metadata": metadata, "spec": spec}


def configuration(*resources: Json) -> Json:
    metadata = {"name": "config"}
    return {"apiVersion": API, "kind": "HNCConfiguration", "metadata": metadata, "spec": {"resources": [*resources]}}


def binding(role: str, *subjects: dict[str, str], **labels: str) -> Json:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"namespace": "acme", "name": role, "labels": labels},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [*subjects],
    }


def planned(*documents: object, **wishes: object) -> ImportPlan:
    given = {"owners": (ADA,), **wishes}
    world = read((f"document {index}", value) for index, value in enumerate(documents))
    return plan(world, ImportOptions(**given))  # pyright: ignore[reportArgumentType] - each test gives what it is about


def said(found: ImportPlan, weight: FindingWeight) -> list[str]:
    return [finding.text for finding in found.findings if finding.weight is weight]


def test_a_tree_becomes_a_tenant_and_subnamespaces_that_adopt() -> None:
    """X10: the namespaces keep their names, and parents come first."""
    found = planned(anchor("team", "squad"), anchor("acme", "team"), configuration())
    [tree] = found.trees
    assert tree.tenant.metadata.name == "acme"
    assert tree.tenant.spec.owners == (ADA,)
    assert tree.tenant.spec.isolation.network is NetworkIsolation.OPEN
    assert [child.subnamespace.key for child in tree.children] == ["acme/team", "team/squad"]
    for child, name in zip(tree.children, ["team", "squad"], strict=True):
        spec = child.subnamespace.spec
        assert (spec.mode, spec.adopt) == (Mode.WORKSPACE, Adoption(namespace=name))
        assert spec.inheritance.roles is spec.inheritance.role_bindings is InheritanceMode.SYNC
        assert spec.inheritance.secrets is InheritanceMode.NONE
    assert not found.is_blocked


def test_a_long_name_is_shortened_and_the_namespace_keeps_its_own() -> None:
    """X10: a Subnamespace's name is shorter than a namespace's may be."""
    first, second = "a" * 60 + "1", "a" * 60 + "2"
    found = planned(anchor("acme", first), anchor("acme", second))
    children = found.trees[0].children
    names = [child.subnamespace.metadata.name for child in children]
    assert [child.subnamespace.spec.adopt.namespace for child in children] == [first, second]
    assert len(set(names)) == 2
    assert {len(name) for name in names} == {46}


def test_only_the_trees_that_are_asked_for_and_their_findings() -> None:
    """X10: one tree after the other."""
    found = planned(hierarchy("a", parent="acme"), hierarchy("b", parent="globex"), roots=("globex",))
    assert [tree.tenant.metadata.name for tree in found.trees] == ["globex"]
    assert "a" not in {name for finding in found.findings for name in finding.where}
    assert "b" in {name for finding in found.findings for name in finding.where}
    with pytest.raises(InputError, match="'a' is not the root of an HNC tree; roots are 'acme'"):
        planned(hierarchy("a", parent="acme"), roots=("a",))
    with pytest.raises(InputError, match="no HNC tree found"):
        planned()


def test_owners_are_those_whom_a_binding_makes_an_administrator() -> None:
    """X10: but none of Kubernetes' own, nor through a copy of HNC's or another role."""
    user, group = {"kind": "User", "name": "bob"}, {"kind": "Group", "name": "leads"}
    account = {"kind": "ServiceAccount", "name": "deployer", "namespace": "ci"}
    found = planned(
        anchor("acme", "team"),
        binding("admin", user, group, account, {"kind": "Group", "name": "system:masters"}),
        binding("edit", {"kind": "User", "name": "editor"}),
        binding("cluster-admin", {"kind": "User", "name": "copied"}, **{"hnc.x-k8s.io/inherited-from": "above"}),
        owners=(),
    )
    assert found.trees[0].tenant.spec.owners == (
        Owner(kind=OwnerKind.USER, name="bob"),
        Owner(kind=OwnerKind.GROUP, name="leads"),
        Owner(kind=OwnerKind.SERVICE_ACCOUNT, name="deployer", namespace="ci"),
    )
    with pytest.raises(InputError, match=r"no owner found for 'acme'.*--owner"):
        planned(anchor("acme", "team"), binding("edit", user), owners=())


def test_what_is_propagated_is_kept_the_same() -> None:
    """X10: Propagate, also where no mode is given, is Sync; Remove and Ignore are None; the rest is told."""
    found = planned(
        anchor("acme", "team"),
        configuration(
            {"resource": "secrets"},
            {"resource": "configmaps", "mode": "AllowPropagate"},
            {"resource": "limitranges", "mode": "Ignore"},
            {"resource": "serviceaccounts", "mode": "Remove"},
            {"group": "networking.k8s.io", "resource": "networkpolicies", "mode": "Propagate"},
            {"group": "example.com", "resource": "widgets", "mode": "Propagate"},
            {"resource": "resourcequotas", "mode": "Propagate"},
            {"group": "apps", "resource": "replicasets", "mode": "Propagate"},
        ),
    )
    inheritance = found.trees[0].children[0].subnamespace.spec.inheritance
    assert inheritance.secrets is inheritance.network_policies is InheritanceMode.SYNC
    assert inheritance.config_maps is inheritance.limit_ranges is InheritanceMode.NONE
    assert inheritance.service_accounts is InheritanceMode.NONE
    assert inheritance.others == (OtherInheritance(resource="widgets.example.com", mode=InheritanceMode.SYNC),)
    lost = said(found, FindingWeight.LOST)
    assert [text.partition(":")[0] for text in lost] == ["resourcequotas", "replicasets.apps"]
    assert any("configmaps: propagated only if" in text for text in said(found, FindingWeight.NOTE))
    assert any("widgets.example.com: an administrator must allow" in text for text in said(found, FindingWeight.NOTE))


def test_labels_go_down_and_protected_ones_do_not() -> None:
    """X10: the nearest wins; the tenant's rules allow what is used."""
    found = planned(
        hierarchy("acme", labels=[{"key": "cost", "value": "1"}, {"key": "kept", "value": "top"}]),
        anchor("acme", "team", labels=[{"key": "cost", "value": "2"}], annotations=[{"key": "mail", "value": "a@b"}]),
        hierarchy("team", labels=[{"key": "pod-security.kubernetes.io/enforce", "value": "baseline"}]),
    )
    tree = found.trees[0]
    spec = tree.children[0].subnamespace.spec
    assert (spec.labels, spec.annotations) == ({"cost": "2", "kept": "top"}, {"mail": "a@b"})
    assert tree.tenant.spec.namespaces.labels.allowed == ("cost", "kept")
    assert tree.tenant.spec.namespaces.annotations.allowed == ("mail",)
    [lost] = said(found, FindingWeight.LOST)
    assert lost.startswith("label pod-security.kubernetes.io/enforce not carried over: only administrators set it")


def test_cascading_deletion_is_allowed_where_something_above_allows_it() -> None:
    """X10: as HNC reads it."""
    found = planned(
        anchor("acme", "one"),
        anchor("one", "two"),
        anchor("acme", "three"),
        hierarchy("one", allowCascadingDeletion=True),
    )
    cascades = {child.namespace: child.subnamespace.spec.allow_cascading_deletion for child in found.trees[0].children}
    assert cascades == {"one": True, "two": True, "three": False}
