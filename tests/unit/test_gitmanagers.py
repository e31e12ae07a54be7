"""X03: which GitOps tool manages an object, and that no child of a cluster carries its marks."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tenantry.api.dedicatedcluster import DedicatedClusterSpec, NodePool
from tenantry.views.gitmanagers import MARKS, manager_of
from testkit.clusterworld import ClusterWorld


def fields(manager: str, subresource: str = "") -> dict[str, Any]:
    """Return the metadata of an object that a client has written."""
    return {"managedFields": [{"manager": manager, **({"subresource": subresource} if subresource else {})}]}


@pytest.mark.parametrize(
    ("meta", "told"),
    [
        ({}, None),
        (fields("kubectl-client-side-apply"), None),
        (fields("tenantry"), None),
        (fields("argocd-controller"), "Argo CD"),
        (fields("argocd-controller", "status"), None),
        (fields("kustomize-controller"), "Flux"),
        (fields("helm-controller"), "Flux"),
        (fields("helm"), "Helm"),
        ({"labels": {"app.kubernetes.io/instance": "shop"}}, "Argo CD (application 'shop')"),
        (
            {"labels": {"app.kubernetes.io/instance": "shop", "app.kubernetes.io/managed-by": "Helm"}},
            "Helm (release 'shop')",
        ),
        ({"annotations": {"argocd.argoproj.io/tracking-id": "shop:x/Y:a/b"}}, "Argo CD (application 'shop')"),
        ({"annotations": {"argocd.argoproj.io/sync-wave": "1"}}, "Argo CD"),
        (
            {"labels": {"helm.toolkit.fluxcd.io/name": "shop", "helm.toolkit.fluxcd.io/namespace": "apps"}},
            "Flux (HelmRelease 'apps/shop')",
        ),
        (
            {
                "annotations": {"kustomize.toolkit.fluxcd.io/reconcile": "disabled"},
                "labels": {"kustomize.toolkit.fluxcd.io/name": "shop"},
            },
            None,
        ),
        ({"labels": {"app.kubernetes.io/name": "shop"}, "annotations": None}, None),
    ],
)
def test_the_tool_is_found_by_its_marks(meta: dict[str, Any], told: str | None) -> None:
    """X03: managedFields, labels and annotations, as the tools document them."""
    found = manager_of({"metadata": meta})
    assert (str(found) if found is not None else None) == told


def test_children_carry_no_marks_of_the_tools() -> None:
    """X03: Argo CD would prune a child that is not in Git, and Flux, too."""
    there = ClusterWorld(DedicatedClusterSpec(nodes=2, pools=(NodePool(name="gpu", count=1),)))
    marks = {f"{each}x" if each.endswith("/") else each: "shop" for each in MARKS}
    meta = replace(there.found.metadata, labels=marks, annotations=marks)
    there.cluster = replace(there.found, metadata=meta)
    there.settle()
    children = [there.plane, *there.claims.values(), *there.handovers.values()]
    assert len(children) == 6
    for each in children:
        text = msgspec.json.encode(each).decode()
        assert not [mark for mark in MARKS if mark in text], text
