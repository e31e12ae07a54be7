"""What owners read of their Tenant on its namespace."""

from __future__ import annotations

import msgspec
import pytest

from tenantry.api import marks, reasons
from tenantry.api.errors import InputError
from tenantry.api.model import Condition, ConditionStatus, ObjectMeta
from tenantry.api.owner import Owner, OwnerKind
from tenantry.api.rules import Images, Rules
from tenantry.api.tenant import Isolation, NetworkIsolation, Tenant, TenantQuota, TenantSpec, TenantStatus
from tenantry.controllers.tenant import summary

SINCE = "2026-01-01T00:00:00Z"
SPEC = TenantSpec(
    owners=(Owner(kind=OwnerKind.USER, name="ada"),),
    quota=TenantQuota(hard={"cpu": "10"}),
    isolation=Isolation(network=NetworkIsolation.BASELINE),
    expires_at="2027-01-01T00:00:00Z",
)


def _condition(type_: str, reason: str, *, holds: bool) -> Condition:
    status = ConditionStatus.TRUE if holds else ConditionStatus.FALSE
    return Condition(
        type=type_, status=status, reason=reason, message="'secret-child' has 4", last_transition_time=SINCE
    )


def _namespace(tenant: Tenant) -> ObjectMeta:
    labels = {marks.TENANT: "acme", marks.TENANT_UID: "uid-1"}
    return ObjectMeta(name="acme", labels=labels, annotations=summary.marked(tenant), creation_timestamp=SINCE)


def _tenant(*conditions: Condition, spec: TenantSpec = SPEC) -> Tenant:
    return Tenant(metadata=ObjectMeta(name="acme", uid="uid-1"), spec=spec, status=TenantStatus(conditions=conditions))


READY = _condition(reasons.READY, reasons.ESTABLISHED, holds=True)
SHORT = _condition(reasons.READY, reasons.QUOTA_SHORT, holds=False)
CLOSED = _condition(reasons.SUSPENDED, reasons.SUSPENDED_BY_SPEC, holds=True)


def test_a_ready_tenant_costs_no_second_write() -> None:
    """X02: what is written with the namespace stays right when the tenant becomes Ready."""
    assert summary.marked(_tenant()) == summary.marked(_tenant(READY))
    assert summary.notable([READY]) == ()


def test_what_the_api_server_stores_empty_is_no_difference() -> None:
    """H04: `tenantry diff` of the file that was applied shows nothing."""
    stored = msgspec.json.decode(
        b'{"owners":[{"kind":"User","name":"ada"}],"isolation":{},"quota":{"hard":{}},"rules":{}}', type=TenantSpec
    )
    assert summary.marked(_tenant(spec=stored)) == summary.marked(_tenant(spec=TenantSpec(owners=SPEC.owners)))


@pytest.mark.parametrize("conditions", [(READY,), (SHORT,), (READY, CLOSED)])
def test_an_owner_reads_spec_and_conditions_without_messages(conditions: tuple[Condition, ...]) -> None:
    tenant = _tenant(*conditions)
    text = summary.marked(tenant)[marks.SUMMARY]
    found = summary.read(_namespace(tenant))
    assert found.spec == SPEC
    assert [(each.type, each.status, each.reason) for each in found.status.conditions] == [
        (each.type, each.status, each.reason) for each in conditions
    ]
    assert "secret-child" not in text


def test_rules_are_left_out() -> None:
    """They can be as long as the annotations of an object may be together."""
    long = tuple(f"registry-{number}.example.com/*" for number in range(64))
    spec = TenantSpec(owners=SPEC.owners, rules=Rules(images=Images(allowed=long)))
    assert "registry-1" not in summary.marked(_tenant(spec=spec))[marks.SUMMARY]


@pytest.mark.parametrize(
    ("annotations", "labels", "told"),
    [
        ({}, {marks.TENANT: "acme"}, "not the core namespace"),
        (summary.marked(_tenant()), {marks.TENANT: "globex"}, "not the core namespace"),
        ({marks.SUMMARY: "{}"}, {marks.TENANT: "acme"}, "another version"),
    ],
)
def test_another_namespace_is_no_summary(annotations: dict[str, str], labels: dict[str, str], told: str) -> None:
    with pytest.raises(InputError, match=told):
        summary.read(ObjectMeta(name="acme", annotations=annotations, labels=labels))
