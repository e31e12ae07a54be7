"""What `explain denied` says of refusals by a host whose rules are not read inside."""

from __future__ import annotations

import pytest

from tenantry.api.ruledeclarations import Action
from tenantry.policy.explain.parts import Part
from tenantry.policy.explain.refusal import Cause, Obstacle
from tenantry.views.acting import DryRun
from tenantry.views.explain.denied import PartReview
from testkit.api import PODS


@pytest.mark.parametrize(("is_ruled", "agrees"), [(True, False), (False, None)])
def test_rules_that_are_not_read_disagree_with_no_refusal(is_ruled: bool, agrees: bool | None) -> None:  # noqa: FBT001 - a table
    """X07, H02: the host denies a Service inside at its creation, by rules that the host has."""
    refusal = Cause(by=Obstacle.RULE, message="spec.type is not allowed", rule="services.types", source="Tenant 'a'")
    review = PartReview(
        part=Part(resource=PODS, object={}),
        result=DryRun(None, refusal),
        value={},
        found=dict.fromkeys(Action, ()),
        compared=(),
        is_ruled=is_ruled,
    )
    assert review.server.agrees is agrees
