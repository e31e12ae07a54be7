"""Which labels and annotations the namespaces of a tree may have, as Subnamespaces ask for them."""

from __future__ import annotations

from collections.abc import Callable

from tenantry.api import marks
from tenantry.api.subnamespace import Subnamespace
from tenantry.policy.check import Subject, quoted
from tenantry.policy.objects import matches_all
from tenantry.policy.request import Judged, Request, part

NOUN = "subnamespace"
FIELDS = ("labels", "annotations")

_OWN = f"namespaceObject.metadata.?labels[?{quoted(marks.TENANT)}].orValue('') + {quoted(f'.{marks.GROUP}/')}"
"""CEL: what the keys begin with that are the tenant's own; no rule is about them."""


def _given(of: str, field: str) -> str:
    return f"{of}.?spec.{field}.orValue({{}})"


def _keys(field: str) -> str:
    # Go's maps have no order.
    return f"{_given('object', field)}.map(k, string(k)).filter(k, !k.startsWith(variables.own)).sort()"


def _keys_of(field: str) -> Callable[[Judged], list[str]]:
    def keys(judged: Judged) -> list[str]:
        own = f"{judged.request.namespace_labels.get(marks.TENANT, '')}.{marks.GROUP}/"
        return sorted(key for key in part(judged.spec, field) if not key.startswith(own))

    return keys


def _is_new(request: Request) -> bool:
    return any(part(request.object, "spec", each) != part(request.old_object, "spec", each) for each in FIELDS)


NAMESPACES = Subject(
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
    checks=tuple(
        matches_all(
            NOUN,
            f"namespaces.{each}",
            among=f"variables.{each}",
            what=f"gives its namespace the {each.removesuffix('s')}",
            of=_keys_of(each),
        )
        for each in FIELDS
    ),
    concerns=_is_new,
    missing="Allow",
)
