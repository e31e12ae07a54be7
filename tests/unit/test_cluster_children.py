"""H04: the policies by which users neither make nor change what the operator makes for a cluster."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tenantry.api.virtualcontrolplane import VirtualControlPlaneSpec
from tenantry.install import dedicatedclusters, manifests

Json = dict[str, Any]


def policy(name: str) -> Json:
    """Return the spec of an installed policy."""
    made = dedicatedclusters.everything(manifests.LOCAL_USER)
    (found,) = (
        each for each in made if each["kind"] == "ValidatingAdmissionPolicy" and each["metadata"]["name"] == name
    )
    return found["spec"]


def test_the_fields_that_a_cluster_decides_are_not_those_of_requests() -> None:
    """H04: what administrators and requests write there stays theirs."""
    decided = set(dedicatedclusters.DECIDED)
    assert decided <= {field.encode_name for field in msgspec.structs.fields(VirtualControlPlaneSpec)}
    assert not {"snapshots", "rotation", "upgrade", "egress"} & decided


@pytest.mark.parametrize("field", ["version", "replicas", "datastore", "resources", "nodes", "addOns", "sleep"])
def test_only_the_operator_and_administrators_change_what_the_cluster_decides(field: str) -> None:
    """H04: an owner could raise it in the child first, and keep it as what the cluster has."""
    owned = policy(dedicatedclusters.OWNED)
    (rule,) = owned["matchConstraints"]["resourceRules"]
    assert (rule["resources"], rule["operations"]) == (["virtualcontrolplanes"], ["UPDATE"])
    (kept,) = (each["expression"] for each in owned["validations"] if f"spec.{field} " in each["expression"])
    assert f"object.?spec.{field} == oldObject.?spec.{field}" in kept
    assert kept.startswith("!oldObject.metadata.ownerReferences.exists(o, (o.kind in ['DedicatedCluster'] && ")
    assert {"not-an-administrator"} <= {each["name"] for each in owned["matchConditions"]}


def test_users_add_no_controlling_reference_to_a_cluster() -> None:
    """H04: to a new object, or to one that exists; other references stay theirs to write."""
    children = policy(dedicatedclusters.CHILDREN)
    (rule,) = children["matchConstraints"]["resourceRules"]
    assert set(rule["resources"]) == {"virtualcontrolplanes", "sliceclaims"}
    assert set(rule["operations"]) == {"CREATE", "UPDATE"}
    (validation,) = children["validations"]
    expression = validation["expression"]
    kinds = "o.kind in ['DedicatedCluster', 'TenantryControlPlane', 'TenantryMachine'] && o.?controller.orValue(false)"
    assert kinds in expression
    assert "request.operation == 'UPDATE' && " in expression
    assert "n.uid == o.uid && n.kind == o.kind && n.?controller.orValue(false)" in expression
    assert [each["name"] for each in children["matchConditions"]] == ["not-an-administrator"]


def test_no_reference_becomes_one_of_another_kind() -> None:
    """H04: the control plane would be free of the policies, which look at the kind."""
    kept = policy(dedicatedclusters.OWNED)["validations"][0]["expression"]
    assert "n.uid == o.uid && n.kind == o.kind && n.?controller.orValue(false)" in kept
