"""The policies on claims beyond the rules: the default StorageClass, reclaim policies, and existing volumes. Pure.

Source: Kubernetes, "Mutating Admission Policy", "Validating Admission Policy" (parameter resources), "Storage Classes",
"Persistent Volumes" (binding; reserving a PersistentVolume).
"""

from __future__ import annotations

from tenantry.api.model import Json
from tenantry.api.tenancyrules import EXISTING_VOLUMES_MARK, RECLAIMED, reclaim_mark
from tenantry.install.policy import IN_TENANTS, PARAM_KIND, bound, exists, mutating, rule, says, validating
from tenantry.install.rules import ACTIONS, bindings
from tenantry.policy.check import quoted
from tenantry.policy.compile import forms
from tenantry.policy.rules.storageclasses import EXISTING_VOLUMES, kept_message
from tenantry.policy.targets.claims import CLASSES, CONDITIONS, OLD_NAME
from tenantry.policy.users import CONTROL_PLANE
from tenantry.world.rules import DEFAULT_CLASS as DEFAULT

DEFAULT_CLASS = "tenantry-default-storage-class"
RECLAIM = "tenantry-reclaim-policies"
EXISTING = "tenantry-existing-volumes"

_CLAIMS = ("", ["persistentvolumeclaims"])
_RESERVED = (
    "has(oldObject.spec.claimRef) && oldObject.spec.claimRef.?namespace == object.spec.claimRef.?namespace"
    " && oldObject.spec.claimRef.?name == object.spec.claimRef.?name"
    " && (oldObject.spec.claimRef.?uid.orValue('') == ''"
    " || oldObject.spec.claimRef.?uid == object.spec.claimRef.?uid)"
)
"""CEL: the volume was reserved for the claim already: a reservation names the claim, but cannot know its uid."""

_NAMED = (
    "has(object.spec.storageClassName) && (!has(object.metadata.managedFields) || object.metadata.managedFields.exists("
    "m, has(m.fieldsV1) && 'f:spec' in m.fieldsV1 && 'f:storageClassName' in m.fieldsV1['f:spec']))"
)
"""CEL: the author of the claim names a class.

Kubernetes' own admission plugin for the default class runs before, but its value has no entry in managedFields yet.
"""


def everything() -> list[Json]:
    """Return the policies and their bindings."""
    return [*_default(), *(each for section in ACTIONS for each in _reclaimed(section)), *_existing()]


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


def _existing() -> list[Json]:
    """Return the policy that binds no existing volume to a claim of a tenant, unless it is reserved for that claim.

    A policy on claims cannot tell: a claim may name a class that does not exist, that has no provisioner, or none if
    the cluster has no default, and the volume binder then takes any volume of that class. A provisioner creates its
    volumes with their claimRef, and therefore never updates it.

    The parameters are the namespaces of tenants, because a volume has no namespace that a selector could look at.
    """
    claimed = "object.spec.claimRef"
    told = (
        "'PersistentVolume \\'' + object.metadata.name + '\\' existed before PersistentVolumeClaim \\'' +"
        f" {claimed}.name + '\\' of namespace \\'' + {claimed}.namespace + '\\' (rule {EXISTING_VOLUMES}): reserve it"
        " with spec.claimRef.namespace and name, or set spec.rules.storageClasses.existingVolumes of the Tenant to"
        " Allow'"
    )
    policy = validating(
        EXISTING,
        [rule("", ["persistentvolumes"], "UPDATE")],
        [says(f"params.metadata.name != {claimed}.?namespace.orValue('')", told, told=True)],
        conditions={"binds-to-another-claim": f"has({claimed}) && {CONTROL_PLANE} && !({_RESERVED})"},
        params={"apiVersion": "v1", "kind": "Namespace"},
    )
    refusing: Json = {
        "matchExpressions": [
            *IN_TENANTS["matchExpressions"],
            {"key": EXISTING_VOLUMES_MARK, "operator": "DoesNotExist"},
        ]
    }
    return bound(policy, paramRef={"selector": refusing, "parameterNotFoundAction": "Allow"})
