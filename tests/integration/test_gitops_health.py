"""What Argo CD and Flux say of Tenantry's objects: Lua runs in an interpreter, the CEL of Flux in the API server."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from tenantry.api import reasons
from tenantry.api.errors import ApiError
from tenantry.api.marks import GROUP
from tenantry.api.model import Resource
from tenantry.api.tenant import Tenant
from tenantry.install import gitops
from testkit.api import Api, tenant_json, until
from testkit.lua import health
from testkit.operators import Operator

Json = dict[str, Any]
pytest_plugins = ["testkit.fixtures"]

_PART = re.compile(r"\b(?=status\.(observedGeneration|conditions))")
_TESTS = "gitops.test.tenantry.dev"
_RECORDED = Resource(_TESTS, "v1", "recorded", "Recorded", namespaced=False)
_CRDS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
_POLICIES = Resource(
    "admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", namespaced=False
)
_BINDINGS = Resource(
    *("admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding"),
    namespaced=False,
)


def _object(*conditions: tuple[str, str, str], generation: int = 1, observed: int = 1, **meta: object) -> Json:
    told = [
        {"type": type_, "status": status, "reason": reason, "message": f"of {type_}"}
        for type_, status, reason in conditions
    ]
    return {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "Tenant",
        "metadata": {"name": "acme", "generation": generation, **meta},
        "status": {"observedGeneration": observed, "conditions": told},
    }


RECORDED = [
    (_object(("Ready", "True", "Established")), "Healthy", "current"),
    (_object(("Ready", "True", "Established"), observed=0), "Progressing", "inProgress"),
    (_object(("Ready", "False", "Progressing"), ("Reconciling", "True", "Progressing")), "Progressing", "inProgress"),
    (_object(("Ready", "False", "InvalidSpec"), ("Stalled", "True", "InvalidSpec")), "Degraded", "failed"),
    (_object(("Ready", "False", "Asleep")), "Suspended", "current"),
    (_object(("Ready", "True", "Established"), ("Suspended", "True", "SuspendedBySpec")), "Suspended", "current"),
    (_object(("Ready", "True", "Established"), ("Suspended", "False", "Resuming")), "Healthy", "current"),
    (_object(("Ready", "False", "AwaitingDecision")), "Suspended", "inProgress"),
    (_object(("Ready", "False", "Decided"), ("Denied", "True", "Decided")), "Degraded", "failed"),
    (_object(), "Progressing", "inProgress"),
]


@pytest.mark.parametrize(("value", "status", "_"), RECORDED)
def test_argo_cd_shows_what_the_conditions_say(value: Json, status: str, _: str) -> None:
    assert health(gitops.HEALTH, value)[0] == status


def test_argo_cd_shows_the_message_of_the_condition_that_decides() -> None:
    value = _object(("Ready", "False", "InvalidSpec"), ("Stalled", "True", "InvalidSpec"))
    assert health(gitops.HEALTH, value) == ("Degraded", "of Stalled")
    ended = _object(("Ready", "True", "Established"), deletionTimestamp="2026-01-01T00:00:00Z")
    assert health(gitops.HEALTH, ended) == ("Progressing", "The object is being deleted")


def test_argo_cd_waits_for_no_kind_that_reports_nothing() -> None:
    value = {"kind": "ClusterTemplate", "metadata": {"name": "small", "generation": 1}}
    assert health(gitops.HEALTH, value)[0] == "Healthy"
    assert health(gitops.HEALTH, {**value, "kind": "Tenant"})[0] == "Progressing"


async def test_argo_cd_takes_a_real_tenant_for_healthy_once_it_is(api: Api, operator: Operator, name: str) -> None:
    await operator.stop()
    await api.create(Tenant.resource, tenant_json(name))
    assert (await asyncio.to_thread(health, gitops.HEALTH, await api.get(Tenant.resource, name)))[0] == "Progressing"
    await operator.start()
    await api.ready(name)
    found = await asyncio.to_thread(health, gitops.HEALTH, await api.get(Tenant.resource, name))
    assert found[0] == "Healthy"
    await api.patch(Tenant.resource, name, {"spec": {"suspended": True}})
    await api.condition(name, reasons.SUSPENDED, holds=True)
    found = await asyncio.to_thread(health, gitops.HEALTH, await api.get(Tenant.resource, name))
    assert found[0] == "Suspended"


async def test_exactly_one_expression_of_flux_holds_for_each_object(api: Api) -> None:
    """Flux evaluates CEL as the API server does: a policy compares the outcome with what is expected."""
    names = {"plural": _RECORDED.plural, "singular": "record", "kind": _RECORDED.kind}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    spec: Json = {"group": _TESTS, "scope": "Cluster", "names": names, "versions": [version]}
    await api.create(_CRDS, {"metadata": {"name": f"{_RECORDED.plural}.{_TESTS}"}, "spec": spec})
    # Flux names the parts of an object directly. Its generation is that of the recorded object.
    holding = [f"(({_PART.sub('object.', text)}) ? ['{name}'] : [])" for name, text in gitops.EXPRESSIONS.items()]
    outcome = " + ".join(holding).replace("metadata.generation", "object.generation")
    rule = {"resourceRules": [{"apiGroups": [_TESTS], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}]}
    policy: Json = {
        "failurePolicy": "Fail",
        "matchConstraints": rule,
        "variables": [{"name": "outcome", "expression": outcome}],
        "validations": [
            {
                "expression": "variables.outcome == [object.expected]",
                "messageExpression": "'outcome ' + variables.outcome.join(',')",
            }
        ],
    }
    meta: Json = {"metadata": {"name": "gitops-test"}}
    await api.create(_POLICIES, {**meta, "spec": policy})
    await api.create(_BINDINGS, {**meta, "spec": {"policyName": "gitops-test", "validationActions": ["Deny"]}})
    try:
        wrong = {"metadata": {"name": "wrong"}, "status": RECORDED[0][0]["status"], "generation": 1}

        async def is_in_force() -> bool:
            try:
                await api.create(_RECORDED, {**wrong, "expected": "failed"})
            except ApiError as error:
                return "outcome current" in str(error)
            await api.delete(_RECORDED, "wrong")
            return False

        await until(is_in_force, "the policy refuses what is not expected")
        for number, (value, _, expected) in enumerate(RECORDED):
            generation = value["metadata"]["generation"]
            record = {"metadata": {"name": f"record-{number}"}, "status": value["status"]}
            await api.create(_RECORDED, {**record, "generation": generation, "expected": expected})
    finally:
        await api.delete(_BINDINGS, "gitops-test")
        await api.delete(_POLICIES, "gitops-test")
        await api.delete(_CRDS, f"{_RECORDED.plural}.{_TESTS}")
