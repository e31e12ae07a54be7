"""`tenantry describe` of kinds that have no page of their own."""

from __future__ import annotations

from datetime import UTC, datetime

from tenantry.api.model import Condition, ConditionStatus, ObjectMeta
from tenantry.api.requests import RequestedRole, RequestStatus, RoleKind, RoleRequest, RoleRequestSpec
from tenantry.api.tenancydefaults import TenancyDefaults, TenancyDefaultsSpec
from tenantry.cli import output
from tenantry.cli.describe import plain

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
META = ObjectMeta(
    name="edit", namespace="acme", uid="u-1", generation=2, labels={"a": "b"}, creation_timestamp="2026-01-02T03:03:05Z"
)
SPEC = RoleRequestSpec(role_ref=RequestedRole(kind=RoleKind.CLUSTER_ROLE, name="edit"), justification="night shift")


def told(value: object) -> list[str]:
    """Return the lines of a page."""
    return output.plain(*plain.page(value, [], NOW))  # type: ignore[arg-type]


def test_fields_conditions_and_events_have_a_section_each() -> None:
    done = Condition(
        type="Ready",
        status=ConditionStatus.TRUE,
        reason="Granted",
        message="it is granted",
        last_transition_time="2026-01-02T03:04:00Z",
        observed_generation=2,
    )
    status = RequestStatus(conditions=(done,), observed_generation=2, reason="she is on call")
    lines = told(RoleRequest(metadata=META, spec=SPEC, status=status))
    text = "\n".join(lines)
    assert lines[0].split() == ["Name:", "edit"]
    assert ["Namespace:", "acme"] in [each.split() for each in lines]
    assert [each for each in lines if not each.startswith(" ") and each.endswith(":")] == [
        "Spec:",
        "Status:",
        "Conditions:",
        "Events:",
    ]
    assert ["Ready", "True", "5s", "Granted", "it", "is", "granted"] in [each.split() for each in lines]
    # Once, in their own section.
    assert text.count("it is granted") == 1
    assert "apiVersion" not in text
    assert "resourceVersion" not in text


def test_conditions_about_an_older_spec_are_marked() -> None:
    ready = Condition(type="Ready", status=ConditionStatus.TRUE, reason="R", message="m", last_transition_time="")
    status = RequestStatus(conditions=(ready,), observed_generation=1)
    assert "these are about an older spec" in "\n".join(told(RoleRequest(metadata=META, spec=SPEC, status=status)))


def test_a_kind_of_the_cluster_has_no_namespace() -> None:
    lines = told(TenancyDefaults(metadata=ObjectMeta(name="default", uid="u-2"), spec=TenancyDefaultsSpec()))
    assert "Spec:" in lines
    assert "Namespace:" not in "\n".join(lines)
