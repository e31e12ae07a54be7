"""How many bytes one object may have."""

from __future__ import annotations

from tenantry.api.tenancyrules import SIZE
from tenantry.policy.check import Problem, RuleCheck, quoted
from tenantry.policy.request import Json, Review
from tenantry.policy.targets import sizes
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
_SHORTEN = "shorten it, or keep the data in a ConfigMap or a volume"

_OTHERS = quoted(SIZE + sizes.OTHERS)
_MOST_OTHERS = f"variables.maxima[{_OTHERS}]"


def _other_too_large(value: Json, review: Review) -> Problem | None:
    bound, size = review.rules.maxima.get(SIZE + sizes.OTHERS), sizes.bytes_of(value)
    if bound is None or size <= parse(bound.value) or not sizes.is_larger(review.request):
        return None
    return f"has {size} bytes", bound.source, f"must have at most {bound.value}; {_SHORTEN}"


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
    RuleCheck(
        rule="objects.maxSizes",
        form="maxima",
        scope=sizes.ANY_OBJECT,
        whole=True,
        usual=True,
        bad=f"{_OTHERS} in variables.maxima && quantity(string(variables.bytes)).isGreaterThan("
        f"quantity({_MOST_OTHERS}.value)) && ({sizes.IS_LARGER})",
        what="'has ' + string(variables.bytes) + ' bytes'",
        source=f"{_MOST_OTHERS}.source",
        fix=f"'must have at most ' + {_MOST_OTHERS}.value + {quoted('; ' + _SHORTEN)}",
        judge=_other_too_large,
        example={"metadata": {"annotations": {"key": "x" * _EXAMPLE_BYTES}}},
        given={sizes.OTHERS: "1Ki"},
        note="Objects of other kinds that `tenantry-owner` may create, and that are not custom, have the bytes of their"
        " JSON, `metadata.managedFields` and the status included. Only writes of people are measured: controllers copy"
        " what people wrote.",
    ),
)
