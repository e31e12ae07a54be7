"""When `tenantry tenant convert --wait` returns, and how it ends if a conversion is refused (H01)."""

from __future__ import annotations

import pytest

from tenantry.api import reasons
from tenantry.api.controlplanechoice import ControlPlaneChoice
from tenantry.api.conversion import Conversion, ConversionStep
from tenantry.api.model import Condition, ConditionStatus, ObjectMeta
from tenantry.api.tenant import Tenant, TenantSpec, TenantStatus
from tenantry.cli.convert import ConversionEnded
from testkit.worlds import user


def tenant(step: ConversionStep, to: ControlPlaneChoice, plane_ready: ConditionStatus | None) -> Tenant:
    """Return a tenant at a step of its conversion."""
    told = Condition(
        type=reasons.CONTROL_PLANE_READY,
        status=plane_ready or ConditionStatus.UNKNOWN,
        reason=reasons.ESTABLISHED,
        message="it serves",
        last_transition_time="2026-01-01T00:00:00Z",
    )
    conditions = (told,) if plane_ready is not None else ()
    status = TenantStatus(conversion=Conversion(to=to, step=step), conditions=conditions)
    return Tenant(metadata=ObjectMeta(name="acme"), spec=TenantSpec(owners=(user("alice"),)), status=status)


@pytest.mark.parametrize(
    ("step", "plane_ready", "ends"),
    [
        (ConversionStep.MOVING, ConditionStatus.TRUE, False),
        # The controller of the tenant has not yet given its owners their rights on the host.
        (ConversionStep.CONVERTED, ConditionStatus.TRUE, False),
        (ConversionStep.CONVERTED, ConditionStatus.FALSE, False),
        (ConversionStep.CONVERTED, None, True),
        (ConversionStep.REFUSED, ConditionStatus.TRUE, True),
    ],
)
def test_a_return_ends_when_the_owners_have_their_rights_on_the_host(
    step: ConversionStep, plane_ready: ConditionStatus | None, *, ends: bool
) -> None:
    shared = ControlPlaneChoice.SHARED
    assert ConversionEnded(shared).is_met(tenant(step, shared, plane_ready)) is ends


def test_a_conversion_ends_when_the_owners_have_a_kubeconfig() -> None:
    virtual, converted = ControlPlaneChoice.VIRTUAL, ConversionStep.CONVERTED
    assert not ConversionEnded(virtual).is_met(tenant(converted, virtual, ConditionStatus.FALSE))
    assert ConversionEnded(virtual).is_met(tenant(converted, virtual, ConditionStatus.TRUE))
