"""The API server refuses the example of every rule in the words of Python, and accepts what `--fix` makes of it."""

from __future__ import annotations

import asyncio
from typing import Any

from tenantry.api.errors import Forbidden, Invalid
from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import TENANT
from tenantry.api.model import ObjectMeta, Resource
from tenantry.api.tenancyrules import NAME, OWN_MARK, TenancyRulesSpec
from tenantry.controllers import tenancyrules
from tenantry.policy.catalog import violations
from tenantry.policy.check import RuleCheck
from tenantry.policy.explain.mend import mended
from tenantry.policy.explain.parts import Part
from testkit import versions
from testkit.api import PODS, Api
from testkit.hosts import GATEWAYS, INGRESSES, ROUTES, TCP_ROUTES, gateway_api
from testkit.refusals import refusal, tried
from testkit.rules import EVERY_CHECK, SOURCE, labels_of, request_of, target_of

pytest_plugins = ["testkit.fixtures"]

Json = dict[str, Any]

RESOURCES = {
    "pods": PODS,
    "sandbox": PODS,
    "services": Resource("", "v1", "services", "Service"),
    "claims": Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim"),
    "ingresses": INGRESSES,
    "routes": ROUTES,
    "gateways": GATEWAYS,
    "streamroutes": TCP_ROUTES,
    "podrecords": PODS,
    "resourceclaims": Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim"),
}
"""RuleTarget to kind. Endpoints need a user who may not write them in kube-system, and Subnamespaces need a tenant.

They are tried in test_rules_services.py and test_rules.py.
"""

RUNTIME_CLASSES = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False)

_OF_ALL = {
    "podSecurity.hostProcess-pods-0",  # only with hostNetwork
    "podSecurity.hostProcess-pods-1",
    "podSecurity.procMount-pods-0",  # only with hostUsers: false
    "devices.adminAccess-resourceclaims-0",  # only in a namespace with a label
    "storageClasses.existingVolumes-claims-3",  # a field behind a feature gate
}
_OF_IMAGES = {"images.allowed-pods-1", "images.cached-pods-1", "images.pullPolicies-pods-1"}
"""About volumes of images, which are off by default on the oldest version."""
NOT_TAKEN = _OF_ALL | _OF_IMAGES if versions.chosen() == versions.OLDEST else _OF_ALL
"""Checks whose example Kubernetes itself refuses, or changes, before policies see it."""


async def place(api: Api, namespace: str, check: RuleCheck) -> None:
    """Create a namespace in which the rule of a check is in force."""
    labels = {**labels_of(check), OWN_MARK: "own"}
    await api.create(Namespace.resource, {"metadata": {"name": namespace, "labels": labels}})
    spec = TenancyRulesSpec(enforce=check.section(SOURCE))
    for each in tenancyrules.objects(spec, ObjectMeta(name=NAME, namespace=namespace)):
        await api.client.create(each)
    # Without it, the API server refuses pods before it asks policies.
    await api.default_account(namespace)


async def verdict(api: Api, check: RuleCheck, namespace: str, plain: str) -> bool:
    """Compare the API server's answer with Python's; return whether Kubernetes takes the example at all."""
    resource, manifest = RESOURCES[target_of(check).name], check.scope.sample(check.example)
    try:
        stored = await tried(api, resource, manifest, plain)
    except (Invalid, Forbidden):
        return False
    rules = check.section(SOURCE)
    found = [each for each in violations(request_of(check, stored), rules) if each.check is check]
    if not found:
        return False  # Kubernetes has removed a field that it does not know
    answer = await refusal(api, resource, manifest, namespace)
    assert str(found[0]) in answer, f"{check.rule}: {answer}"
    if check.mend is not None:
        changed = mended(manifest, [(Part(resource=resource, object=manifest), each) for each in found], rules)
        assert str(found[0]) not in await refusal(api, resource, changed, namespace), f"{check.rule}: {changed}"
    return True


async def test_every_rule_refuses_its_example_as_python_does(api: Api, name: str) -> None:
    """X02, E15, X07: a rule that is added to the catalogue is compared here without another line."""
    checks = [(each, check) for each, check in EVERY_CHECK if target_of(check).name in RESOURCES]
    namespaces = {check.rule: f"{name}-{number}" for number, (_, check) in enumerate(checks)}
    first = {check.rule: check for _, check in reversed(checks)}
    async with gateway_api(api):
        await api.create(RUNTIME_CLASSES, {"metadata": {"name": "kata"}, "handler": "runc"})
        await api.create(Namespace.resource, {"metadata": {"name": name, "labels": {TENANT: "x"}}})
        await api.default_account(name)
        await asyncio.gather(*(place(api, namespaces[rule], check) for rule, check in first.items()))
        untried = {each for each, check in checks if not await verdict(api, check, namespaces[check.rule], name)}
        await api.delete(RUNTIME_CLASSES, "kata")
    assert untried == NOT_TAKEN
