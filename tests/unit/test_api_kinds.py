"""One list of kinds: manifests, rights, documentation and verbs derive from it and from the models."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import tenantry.api
from tenantry.api.kinds import KINDS
from tenantry.api.marks import GROUP
from tenantry.api.model import KubernetesObject
from tenantry.install import manifests

VERBS = {"get", "list", "watch", "create", "update", "patch", "delete", "administer"}


def test_every_model_of_the_group_is_a_kind() -> None:
    """E17: a model that is not in the list would have no CRD."""
    for module in pkgutil.iter_modules(tenantry.api.__path__):
        importlib.import_module(f"tenantry.api.{module.name}")
    ours = {kind for kind in KubernetesObject.__subclasses__() if getattr(kind, "resource", None) is not None}
    models = {kind for kind in ours if kind.resource.group == GROUP and kind.__module__.startswith("tenantry.api.")}
    assert models == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_declares_what_the_rest_is_derived_from(kind: type[KubernetesObject]) -> None:
    """E17: a contributor who forgets a part learns it from this test."""
    assert {"resource", "names", "access", "columns"} <= vars(kind).keys()
    access = vars(kind)["access"]
    assert {*access.operator, *access.owners} <= VERBS
    assert not access.updates or set(access.operator) >= {"get", "list", "watch"}
    assert not access.owners or kind.resource.namespaced


def test_the_operator_has_the_rights_that_the_kinds_declare() -> None:
    """E15: neither more nor less."""
    (role,) = [
        each
        for each in manifests.foundation(manifests.LOCAL_USER)
        if each["kind"] == "ClusterRole" and each["metadata"]["name"] == "tenantry-operator"
    ]
    granted = {
        (plural, verb)
        for each in role["rules"]
        if each["apiGroups"] == [GROUP]
        for plural in each["resources"]
        for verb in each["verbs"]
    }
    declared = {
        (name, verb)
        for kind in KINDS
        for name, verbs in (
            (kind.resource.plural, vars(kind)["access"].operator),
            *((f"{kind.resource.plural}/{part}", ("update",)) for part in vars(kind)["access"].updates),
        )
        for verb in verbs
    }
    assert granted == declared
