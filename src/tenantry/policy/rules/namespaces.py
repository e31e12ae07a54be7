"""Which labels and annotations Subnamespaces may give their namespaces."""

from __future__ import annotations

from collections.abc import Callable

from tenantry.api import marks
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenancyrules import Section
from tenantry.policy.check import RuleCheck, RuleTarget, matches, quoted
from tenantry.policy.forms import match
from tenantry.policy.request import Item, Request, Review, part
from tenantry.policy.targets.objects import strings, whole

FIELDS = ("labels", "annotations")

_OWN = f"namespaceObject.metadata.?labels[?{quoted(marks.TENANT)}].orValue('') + {quoted(f'.{marks.GROUP}/')}"
"""CEL: the prefix of the tenant's own keys, which no rule restricts."""


def _given(of: str, field: str) -> str:
    return f"{of}.?spec.{field}.orValue({{}})"


def _keys(field: str) -> str:
    # Go's maps have no order.
    return f"{_given('object', field)}.map(k, string(k)).filter(k, !k.startsWith(variables.own)).sort()"


def _keys_of(field: str) -> Callable[[Review], list[str]]:
    def keys(review: Review) -> list[str]:
        own = f"{review.request.namespace_labels.get(marks.TENANT, '')}.{marks.GROUP}/"
        return sorted(key for key in part(review.spec, field) if not key.startswith(own))

    return keys


def _has_new_keys(request: Request) -> bool:
    return any(part(request.object, "spec", each) != part(request.old_object, "spec", each) for each in FIELDS)


SUBNAMESPACES = RuleTarget(
    name=Subnamespace.resource.plural,
    group=Subnamespace.resource.group,
    resources=(Subnamespace.resource.plural,),
    conditions={
        "has-new-marks": " || ".join(
            f"{_given('object', each)} != (request.operation == 'CREATE' ? {{}} : {_given('oldObject', each)})"
            for each in FIELDS
        )
    },
    variables={"own": _OWN, **{each: _keys(each) for each in FIELDS}},
    concerns=_has_new_keys,
    missing="Allow",
)

SUBNAMESPACE = whole(SUBNAMESPACES, "subnamespace", {"metadata": {"name": "n"}, "spec": {"mode": "Workspace"}})


def _of(field: str) -> RuleCheck:
    rule = f"namespaces.{field}"

    def mend(subnamespace: Item, rules: Section) -> None:
        given, lists = part(subnamespace, "spec", field), rules.patterns[rule]
        for key in [key for key in given if f".{marks.GROUP}/" not in key]:
            if not all(any(matches(pattern, key) for pattern in each.values) for each in lists):
                given.pop(key)

    return match(
        rule,
        strings(SUBNAMESPACE, f"variables.{field}", _keys_of(field)),
        what=f"gives its namespace the {field.removesuffix('s')}",
        mend=mend,
        example={"spec": {field: {"x": "y"}}},
        note="Keys that begin with `TENANT.tenantry.dev/` are always allowed; `spec.namespaces` of the Tenant may allow"
        " fewer.",
    )


CHECKS = tuple(_of(field) for field in FIELDS)
