"""How many bytes one object may have."""

from __future__ import annotations

from tenantry.api.tenancyrules import SIZE
from tenantry.policy.check import Problem, RuleCheck, quoted
from tenantry.policy.request import Json, Review
from tenantry.policy.targets.configuration import (
    ENTRY_BYTES,
    IS_LARGER,
    MOST_ENTRIES,
    OBJECT,
    SECRETS,
    bytes_of,
    entries_of,
    is_larger,
    kind_of,
)
from tenantry.world.quantity import parse

_KEY = f"{quoted(SIZE)} + variables.kind"
_MOST = f"variables.maxima[{_KEY}]"
_EXAMPLE_BYTES = 2000


def _too_large(value: Json, review: Review) -> Problem | None:
    request = review.request
    bound, size = review.rules.maxima.get(SIZE + kind_of(request)), bytes_of(value, request.resource)
    if bound is None or size <= parse(bound.value) or not is_larger(request):
        return None
    entries = entries_of(value, request.resource)
    has = f"has {entries} entries" if entries > MOST_ENTRIES else f"has {size} bytes"
    return has, bound.source, f"must have at most {bound.value}; split it, or keep it in a volume"


CHECKS = (
    RuleCheck(
        rule="objects.maxSizes",
        form="maxima",
        scope=OBJECT,
        whole=True,
        usual=True,
        bad=f"({_KEY}) in variables.maxima && quantity(string(variables.bytes)).isGreaterThan(quantity({_MOST}.value))"
        f" && ({IS_LARGER})",
        what=f"'has ' + (variables.entries > {MOST_ENTRIES} ? string(variables.entries) + ' entries'"
        " : string(variables.bytes) + ' bytes')",
        source=f"{_MOST}.source",
        fix=f"'must have at most ' + {_MOST}.value + '; split it, or keep it in a volume'",
        judge=_too_large,
        example={"data": {"key": "x" * _EXAMPLE_BYTES}},
        given={SECRETS: "1Ki"},
        note="Data, keys, the type of a Secret, annotations, labels, owner references and finalizers count, and"
        f" {ENTRY_BYTES} bytes for each entry of a map. Keys count once more for each field manager. An object with"
        f" more than {MOST_ENTRIES} entries counts as the"
        " largest that etcd stores, 1536Ki. Larger objects that exist may be changed if they do not grow.",
    ),
)
