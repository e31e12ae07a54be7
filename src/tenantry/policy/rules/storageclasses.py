"""The StorageClasses of claims, and that no claim gets a volume that another one has left."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tenantry.api.tenancyrules import NAME, Section
from tenantry.policy.check import Violation
from tenantry.policy.forms import allow, refuse
from tenantry.policy.mend import drops, into
from tenantry.policy.request import Item, Review, part
from tenantry.policy.targets.claims import CLAIM, CLASS, NAMES_VOLUME, NOUN, classes_of, is_new_claim, names_volume
from tenantry.policy.targets.objects import name_of, named
from tenantry.world.rules import DEFAULT_CLASS

ALLOWED = "storageClasses.allowed"
RECLAIM_POLICIES = "storageClasses.reclaimPolicies"
EXISTING_VOLUMES = "storageClasses.existingVolumes"


def _name_class(claim: Item, rules: Section) -> None:
    values, default = rules.allowed[ALLOWED].values, rules.chosen.get(DEFAULT_CLASS)
    if values:
        is_allowed = default is not None and default.value in values
        into(claim, "spec")["storageClassName"] = default.value if default is not None and is_allowed else values[0]


def _take_a_new_one(claim: Item, _: Section) -> None:
    spec = into(claim, "spec")
    drops("volumeName", "selector")(spec, _)
    if spec.get("storageClassName") == "":
        spec.pop("storageClassName")


_existing = partial(refuse, EXISTING_VOLUMES, CLAIM)

CHECKS = (
    allow(
        ALLOWED,
        CLASS,
        find=lambda name, allowed, _: None if name in allowed else name,
        what="has the StorageClass",
        mend=_name_class,
        example={"spec": {"storageClassName": "fast"}},
        given=["standard"],
    ),
    _existing(
        bad=NAMES_VOLUME,
        is_bad=lambda _, review: names_volume(review.request),
        what="names its volume",
        fix="leave out volumeName, and let a StorageClass make one",
        mend=_take_a_new_one,
        example={"spec": {"volumeName": "pv-1"}},
    ),
    _existing(
        bad="'' in variables.classes",
        is_bad=lambda claim, _: "" in classes_of(claim),
        what="takes a volume without a StorageClass",
        fix="name a StorageClass, or leave out storageClassName for the default one",
        mend=_take_a_new_one,
        example={"spec": {"storageClassName": ""}},
    ),
    _existing(
        bad="request.operation == 'CREATE' && has(object.spec.selector)",
        is_bad=lambda claim, review: review.request.operation == "CREATE" and "selector" in part(claim, "spec"),
        what="selects volumes by label",
        fix="leave out selector",
        mend=_take_a_new_one,
        example={"spec": {"selector": {"matchLabels": {"a": "b"}}}},
    ),
    _existing(
        bad="object.?spec.dataSourceRef.namespace.orValue('') != ''",
        is_bad=lambda claim, _: bool(part(claim, "spec", "dataSourceRef").get("namespace")),
        what="takes its data from another namespace",
        fix="leave out dataSourceRef.namespace",
        # No mend: without its namespace the reference names other data.
        example={"spec": {"dataSourceRef": {"kind": "PersistentVolumeClaim", "name": "x", "namespace": "other"}}},
    ),
)


# -- reclaim policies -----------------------------------------------------------------------------


def kept_message(policies: str) -> str:
    """Return CEL: the message about a claim of the StorageClass `params`."""
    return (
        f"{named(NOUN)} + ' has the StorageClass \\'' + params.metadata.name + '\\', whose reclaimPolicy is ' +"
        f" params.?reclaimPolicy.orValue('Delete') + ' (rule {RECLAIM_POLICIES} of TenancyRules \\'{NAME}\\'): must be"
        f" one whose reclaimPolicy is ' + {policies}.join(' or ')"
    )


def kept(review: Review) -> Iterator[Violation]:
    """Find claims of classes whose volumes outlive the claim.

    This is not a `RuleCheck`, because the parameters of the policy are the StorageClasses instead of the rules.
    """
    request = review.request
    listed = review.rules.allowed.get(RECLAIM_POLICIES)
    if listed is None or request.resource != "persistentvolumeclaims" or not is_new_claim(request):
        return
    for name in classes_of(request.object):
        policy = request.reclaim_policies.get(name)
        if policy is not None and policy not in listed.values:
            what = f"has the StorageClass '{name}', whose reclaimPolicy is {policy}"
            fix = f"must be one whose reclaimPolicy is {' or '.join(listed.values)}"
            source, path = f"TenancyRules '{NAME}'", name_of(NOUN, request.object)
            yield Violation(rule=RECLAIM_POLICIES, source=source, path=path, what=what, fix=fix)
