"""The policies that put pods into the cluster's sandbox, and keep Subnamespaces from leaving it. Pure.

A policy of the rules (`policy/rules/runtimeclasses.py`) refuses pods outside of it, even if this one is missing.
Source: Kubernetes, "Mutating Admission Policy", "Runtime Class".
"""

from __future__ import annotations

from tenantry.api import marks
from tenantry.api.model import Json
from tenantry.api.runtime import RuntimeChoice
from tenantry.api.subnamespace import Subnamespace
from tenantry.install.policy import NEW_PODS, PARAM_KIND, bound, exists, mutating, rule, says, validating
from tenantry.install.rules import bindings
from tenantry.policy.compile import forms
from tenantry.policy.rules.runtimeclasses import CHOSEN, IS_THERE
from tenantry.policy.users import NOT_MIRRORED

SANDBOX = "tenantry-sandbox"
LOOSER = "tenantry-looser-runtimes"

_MARKED: Json = exists(marks.RUNTIME)


def everything() -> list[Json]:
    """Return the policies and their bindings."""
    return [*_put_in(), *_looser()]


def _put_in() -> list[Json]:
    """Return the policy that gives pods without a runtime the sandbox (E14).

    Kubernetes' own plugin sees the changed pod again, and adds the runtime's overhead, which quota counts.
    """
    patch = f"{IS_THERE} ? [JSONPatch{{op: 'add', path: '/spec/runtimeClassName', value: {CHOSEN}.value}}] : []"
    policy = mutating(
        SANDBOX,
        [NEW_PODS],
        [patch],
        conditions={"names-none": "!has(object.spec.runtimeClassName)", "not-a-mirror": NOT_MIRRORED},
        where=_MARKED,
        params=PARAM_KIND,
        variables={"chosen": forms()["chosen"]},
    )
    return [policy, *bindings(SANDBOX, "Mutating")]


def _looser() -> list[Json]:
    """Return the policy that refuses Shared in a Subnamespace below a sandboxed namespace (E14)."""
    resource = Subnamespace.resource
    says_so = f"{{}}.?spec.isolation.runtime.orValue('') == '{RuntimeChoice.SHARED}'"
    now, before = says_so.format("object"), says_so.format("oldObject")
    told = (
        "'spec.isolation.runtime must not be Shared in the namespace \\'' + request.namespace + '\\', whose pods run'"
        " + ' in a sandbox because isolation.runtime of the Tenant, or of a Subnamespace above, says so: leave it out'"
    )
    policy = validating(
        LOOSER,
        [rule(resource.group, [resource.plural])],
        [says("false", told, told=True)],
        conditions={"says-shared": f"{now} && (request.operation == 'CREATE' || !({before}))"},
        where=_MARKED,
    )
    return bound(policy)
