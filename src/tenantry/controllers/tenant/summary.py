"""What the owners of a tenant read of it: an annotation of the core namespace, which the operator writes anyway. Pure.

Owners have no right on the Tenant: its status and the TenantResourceQuota name what is in namespaces of Subtenants.

    Tenant ─► marked() ─► annotation ─► read() ─► Tenant, with what an owner needs of the spec, and no messages
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import msgspec

from tenantry.api import marks, reasons
from tenantry.api.errors import InputError
from tenantry.api.model import Condition, ConditionStatus, Json, Model, ObjectMeta
from tenantry.api.tenant import Tenant, TenantSpec, TenantStatus
from tenantry.engine.conditions import is_true


class ConditionSummary(Model, frozen=True, kw_only=True):
    """A condition without its message, which may name namespaces that the owner may not read."""

    type: str
    status: ConditionStatus
    reason: str
    last_transition_time: str


class TenantSummary(Model, frozen=True, kw_only=True):
    """What the annotation has: the spec without its rules, and the conditions that are worth a look.

    A tenant that is Ready, and nothing else, has no conditions here, so that its establishment costs no second write.
    """

    spec: TenantSpec
    conditions: tuple[ConditionSummary, ...] = ()


_decoder = msgspec.json.Decoder(TenantSummary)
_encoder = msgspec.json.Encoder(order="deterministic")


def notable(conditions: Sequence[Condition]) -> tuple[ConditionSummary, ...]:
    """Return the conditions of a status that a summary has."""
    found = [] if is_true(conditions, reasons.READY) else [each for each in conditions if each.type == reasons.READY]
    found += [each for each in conditions if each.type in _NOTABLE and each.status is ConditionStatus.TRUE]
    return tuple(
        ConditionSummary(
            type=each.type,
            status=each.status,
            reason=each.reason,
            last_transition_time=each.last_transition_time,
        )
        for each in found
    )


_NOTABLE = frozenset({reasons.SUSPENDED, reasons.EXPIRING, reasons.OBJECTS_EXCEEDED, reasons.EGRESS_NARROWED})


def marked(tenant: Tenant) -> dict[str, str]:
    """Return the annotation of a tenant's core namespace.

    The rules are left out: they can be long, and `tenantry explain` shows an owner what they refuse. A part of the spec
    that is empty reads the same whether the API server stored it or a file left it out.
    """
    whole: Json = msgspec.to_builtins(TenantSummary(spec=tenant.spec, conditions=notable(tenant.status.conditions)))
    whole["spec"].pop("rules", None)
    return {marks.SUMMARY: _encoder.encode(_without_empty(whole)).decode()}


def _without_empty(value: Json) -> Json:
    found: Json = {}
    for key, part in value.items():
        kept = _without_empty(cast("Json", part)) if isinstance(part, dict) else part
        if kept != {}:
            found[key] = kept
    return found


def read(namespace: ObjectMeta) -> Tenant:
    """Return the tenant of a core namespace, as far as its owners may know it.

    Raises:
        InputError: The namespace is no tenant's core namespace, or the operator has not written its summary yet.
    """
    text = namespace.annotations.get(marks.SUMMARY)
    if text is None or namespace.labels.get(marks.TENANT) != namespace.name:
        raise InputError(
            f"namespace {namespace.name!r} is not the core namespace of a tenant, or the operator has not written"
            " a summary for its owners yet"
        )
    try:
        summary = _decoder.decode(text)
    except msgspec.MsgspecError as error:
        raise InputError(
            f"namespace {namespace.name!r}: the annotation {marks.SUMMARY} is from another version of Tenantry"
            f" ({error}); use the CLI of the installed version"
        ) from error
    told = [
        Condition(**msgspec.structs.asdict(each), message="only administrators can read the message")
        for each in summary.conditions
    ]
    if all(each.type != reasons.READY for each in told):
        told.insert(
            0,
            Condition(
                type=reasons.READY,
                status=ConditionStatus.TRUE,
                reason=reasons.ESTABLISHED,
                message="",
                last_transition_time=namespace.creation_timestamp,
            ),
        )
    return Tenant(
        metadata=ObjectMeta(
            name=namespace.name,
            uid=namespace.labels.get(marks.TENANT_UID, ""),
            creation_timestamp=namespace.creation_timestamp,
        ),
        spec=summary.spec,
        status=TenantStatus(namespace=namespace.name, conditions=tuple(told)),
    )
