"""What Python has against pods that are to be sandboxed, and how a manifest is mended."""

from __future__ import annotations

from typing import Any

import pytest

from tenantry.api.marks import RUNTIME, SLICE
from tenantry.api.model import Resource
from tenantry.api.tenancyrules import Bound, Section
from tenantry.policy.catalog import violations
from tenantry.policy.explain.mend import mended
from tenantry.policy.explain.parts import parts_of
from tenantry.policy.request import Request
from tenantry.world.rules import MISSING, RUNTIME_CLASS

Json = dict[str, Any]

DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
SANDBOXED = {RUNTIME: "Sandboxed"}
THERE = Section(chosen={RUNTIME_CLASS: Bound(source="the Tenant", value="sbx")}, refused={MISSING: "Tenant 'acme'"})
GONE = Section(refused={MISSING: "Tenant 'acme'"})


def rules_against(runtime: str, labels: dict[str, str], rules: Section, *groups: str) -> list[str]:
    """Return the paths of the rules that are against a new pod of a runtime, "" for none."""
    spec: Json = {"containers": [], **({"runtimeClassName": runtime} if runtime else {})}
    request = Request(resource="pods", object={"spec": spec}, namespace_labels=labels, groups=groups)
    return [each.rule for each in violations(request, rules)]


@pytest.mark.parametrize(
    ("runtime", "labels", "rules", "against"),
    [
        ("sbx", SANDBOXED, THERE, []),
        ("", SANDBOXED, THERE, []),
        ("plain", SANDBOXED, THERE, [RUNTIME_CLASS]),
        ("plain", {RUNTIME: "Preferred"}, THERE, [RUNTIME_CLASS]),
        ("plain", {}, THERE, []),
        ("plain", {**SANDBOXED, SLICE: "mine"}, THERE, []),
        ("", SANDBOXED, GONE, [MISSING]),
        ("plain", SANDBOXED, GONE, [MISSING]),
        ("", {RUNTIME: "Preferred"}, GONE, []),
        ("", {**SANDBOXED, SLICE: "mine"}, GONE, [MISSING]),
        ("plain", {**SANDBOXED, SLICE: "mine"}, GONE, []),
        ("", SANDBOXED, Section(), []),
    ],
)
def test_who_is_refused(runtime: str, labels: dict[str, str], rules: Section, against: list[str]) -> None:
    """E14: by what the namespace and the cluster are; what a kubelet mirrors is never refused."""
    assert rules_against(runtime, labels, rules) == against
    assert rules_against(runtime, labels, rules, "system:nodes") == []


def test_a_manifest_is_mended_by_leaving_the_runtime_out() -> None:
    """X07: then the sandbox is put in."""
    spec: Json = {"runtimeClassName": "plain", "containers": [{"name": "web", "image": "busybox"}]}
    manifest: Json = {"metadata": {"name": "web"}, "spec": {"replicas": 1, "template": {"spec": spec}}}
    pod = next(each for each in parts_of(manifest, DEPLOYMENTS) if each.resource.plural == "pods")
    request = Request(resource="pods", object=pod.object, namespace_labels=SANDBOXED)
    found = [(pod, each) for each in violations(request, THERE)]
    assert "runtimeClassName" not in mended(manifest, found, THERE)["spec"]["template"]["spec"]
