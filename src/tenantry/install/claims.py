"""The policies on claims beyond the rules: the default StorageClass, and reclaim policies. Pure.

Source: Kubernetes, "Mutating Admission Policy", "Validating Admission Policy" (parameter resources), "Storage Classes".
"""

from __future__ import annotations

from typing import Any

from tenantry.api.tenancyrules import RECLAIMED, reclaim_mark
from tenantry.install.policy import IN_TENANTS, PARAM_KIND, bound, exists, mutating, rule, says, validating
from tenantry.install.rules import ACTIONS, bindings
from tenantry.policy.check import quoted
from tenantry.policy.compile import forms
from tenantry.policy.rules.storageclasses import kept_message
from tenantry.policy.targets.claims import CLASSES, CONDITIONS, OLD_NAME
from tenantry.world.rules import DEFAULT_CLASS as DEFAULT

Json = dict[str, Any]

DEFAULT_CLASS = "tenantry-default-storage-class"
RECLAIM = "tenantry-reclaim-policies"

_CLAIMS = ("", ["persistentvolumeclaims"])
_NAMED = (
    "has(object.spec.storageClassName) && (!has(object.metadata.managedFields) || object.metadata.managedFields.exists("
    "m, has(m.fieldsV1) && 'f:spec' in m.fieldsV1 && 'f:storageClassName' in m.fieldsV1['f:spec']))"
)
"""CEL: the author of the claim names a class.

Kubernetes' own admission plugin for the default class runs before, but its value has no entry in managedFields yet.
"""


def everything() -> list[Json]:
    """Return the policies and their bindings."""
    return [*_default(), *(each for section in ACTIONS for each in _reclaimed(section))]


def _default() -> list[Json]:
    """Return the policy that gives claims without a StorageClass the default of the rules."""
    chosen = f"variables.chosen[{quoted(DEFAULT)}].value"
    patch = (
        f"!({_NAMED}) && {quoted(DEFAULT)} in variables.chosen"
        f" ? [JSONPatch{{op: 'add', path: '/spec/storageClassName', value: {chosen}}}] : []"
    )
    of_old = f"has(object.metadata.annotations) && {quoted(OLD_NAME)} in object.metadata.annotations"
    policy = mutating(
        DEFAULT_CLASS,
        [rule(*_CLAIMS, "CREATE")],
        [patch],
        conditions={"names-none-as-of-old": f"!({of_old})"},
        where=IN_TENANTS,
        params=PARAM_KIND,
        variables={"chosen": forms()["chosen"]},
    )
    return [policy, *bindings(DEFAULT_CLASS, "Mutating")]


def _reclaimed(section: str) -> list[Json]:
    """Return the policy that refuses classes whose volumes outlive their claims.

    Its parameters are the StorageClasses themselves, so that a change holds at once, also while the operator is down.
    A label of the namespace has the allowed reclaim policies, unless they are the standard.
    """
    mark = reclaim_mark(section)
    enforced = section == "enforce"
    name = RECLAIM + ("" if enforced else f"-{section}")
    labels = "namespaceObject.metadata.labels"
    usual = f"'{mark}' in {labels} ? {labels}['{mark}'].split('.') : ['{RECLAIMED}']"
    holds = (
        "!(params.metadata.name in variables.classes) || params.?reclaimPolicy.orValue('Delete') in variables.policies"
    )
    policy = validating(
        name,
        [rule(*_CLAIMS)],
        [says(holds, kept_message("variables.policies"), told=True)],
        conditions=CONDITIONS,
        where=IN_TENANTS if enforced else exists(mark),
        params={"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass"},
        variables={"classes": CLASSES, "policies": usual},
    )
    every: Json = {"selector": {}, "parameterNotFoundAction": "Allow"}
    return bound(policy, paramRef=every, validationActions=[ACTIONS[section]])
