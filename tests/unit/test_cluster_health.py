"""What `tenantry status` makes of what it reads: healthy, not healthy, or unknown, and what to do next."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from tenantry import __version__
from tenantry.api import reasons
from tenantry.api.model import Condition, ConditionStatus, ObjectMeta
from tenantry.api.owner import Owner, OwnerKind
from tenantry.api.tenant import Tenant, TenantSpec, TenantStatus
from tenantry.cli import output
from tenantry.cli.status import lines
from tenantry.controllers.installation.release import HelmRelease
from tenantry.engine.lease import HOLDER_VERSION, Lease, LeaseSpec, version_of
from tenantry.views.health import Findings, OperatorView, TenantsView, count, judged
from tenantry.views.installation import BY_OPERATOR

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LEADS = OperatorView(leader="pod_1", version=__version__, renewed="2026-01-02T03:04:02Z", is_leading=True)
GOOD = Findings(
    kubernetes="v1.36.3",
    installed=__version__,
    operator=LEADS,
    tenants=TenantsView(total=1, ready=1),
    pending_requests=0,
)


def test_a_cluster_without_problems_is_healthy_and_needs_nothing() -> None:
    health = judged(GOOD)
    assert (health.healthy, health.problems, health.next) == (True, (), ())
    shown = output.plain(*lines(health, NOW, wide=False))
    assert shown[0] == f"Healthy: Tenantry {__version__} on Kubernetes v1.36.3"
    assert shown[1].split() == [
        "operator:",
        "version",
        f"{__version__},",
        "leader",
        "pod_1,",
        *("Lease", "renewed", "3s", "ago"),
    ]
    assert "intact" in shown[2]


@pytest.mark.parametrize(
    ("found", "healthy", "problem", "step"),
    [
        (Findings(kubernetes="v1.36.3", is_installed=False), False, "not installed", "tenantry install"),
        (
            replace(GOOD, operator=OperatorView()),
            False,
            "no operator leads",
            "kubectl -n tenantry-system describe pods",
        ),
        (replace(GOOD, operator=OperatorView(), is_local=True), False, "no operator leads", "tenantry logs operator"),
        (replace(GOOD, operator=replace(LEADS, is_leading=False)), False, "'pod_1' does not renew", "kubectl"),
        (replace(GOOD, operator=replace(LEADS, replicas=2, available_replicas=1)), False, "1 of 2", "kubectl"),
        (replace(GOOD, differences=("ClusterRole 'x' is missing",)), False, "'x' is missing", "tenantry install"),
        (replace(GOOD, differences=None), None, "not compared", ""),
        (
            replace(GOOD, differences=None, installed="9.9.9"),
            None,
            "does not know the objects",
            "use tenantry 9.9.9 or later",
        ),
        (replace(GOOD, differences=None, installed="0.0.1"), None, "does not know the objects", "tenantry install"),
    ],
)
def test_each_problem_is_named_with_what_to_do(
    found: Findings,
    healthy: bool | None,  # noqa: FBT001 - a column of the table
    problem: str,
    step: str,
) -> None:
    health = judged(found)
    assert health.healthy is healthy
    assert problem in " ".join(health.problems)
    assert step in " ".join(health.next)
    assert health.problems[0] in "\n".join(output.plain(*lines(health, NOW, wide=False)))


@pytest.mark.parametrize(
    ("changes", "step"),
    [
        ({"differences": ("ClusterRole 'x' is missing",)}, "helm upgrade acme CHART --namespace there "),
        ({"differences": None, "installed": "0.0.1"}, "helm upgrade acme CHART --namespace there "),
        ({"differences": None, "installed": "9.9.9"}, "use tenantry 9.9.9 or later"),
    ],
)
def test_no_step_is_a_command_that_is_refused(changes: dict[str, object], step: str) -> None:
    """X12: `tenantry install` ends with exit code 2 if Helm has the installation, and with 3 if it is newer."""
    (found,) = judged(replace(GOOD, release=HelmRelease("acme", "there"), **changes)).next
    assert found.startswith(step)


def test_what_the_operator_writes_needs_no_installation() -> None:
    """Right after an installation, and if the operator is stopped, `tenantry install` would change nothing."""
    written = f"LimitRange 'tenantry-system/tenantry-rules' differs from what TenancyDefaults says{BY_OPERATOR}"
    health = judged(replace(GOOD, operator=OperatorView(), differences=(written,)))
    assert health.next == ("kubectl -n tenantry-system describe pods",)
    both = judged(replace(GOOD, differences=(written, "ClusterRole 'x' is missing")))
    assert both.next == ("tenantry install",)


@pytest.mark.parametrize(
    ("differences", "still"), [((), True), (("ValidatingAdmissionPolicy 'x' is missing",), False), (None, False)]
)
def test_guards_that_refuse_without_an_operator_are_only_stated_of_an_intact_installation(
    differences: tuple[str, ...] | None,
    still: bool,  # noqa: FBT001 - a column of the table
) -> None:
    health = judged(replace(GOOD, operator=OperatorView(), differences=differences))
    assert ("every guard of admission still refuses" in health.problems[0]) is still


def test_a_known_problem_weighs_more_than_an_unknown_part() -> None:
    assert judged(replace(GOOD, differences=None, operator=OperatorView())).healthy is False


def test_tenants_and_requests_that_wait_are_next_steps_and_no_problem() -> None:
    health = judged(replace(GOOD, waiting=tuple((f"t{each}", "Why") for each in range(5)), pending_requests=2))
    assert health.healthy is True
    assert health.next[0] == "tenantry describe tenant t0   # Why"
    assert health.next[-2:] == ("tenantry get tenants   # 5 are not ready", health.next[-1])
    assert "2 wait for a decision" in health.next[-1]


def _tenant(name: str, **conditions: ConditionStatus) -> Tenant:
    found = tuple(
        Condition(type=type_, status=status, reason="Why", message="", last_transition_time="2026-01-02T03:04:05Z")
        for type_, status in conditions.items()
    )
    spec = TenantSpec(owners=(Owner(kind=OwnerKind.USER, name="ada"),))
    return Tenant(metadata=ObjectMeta(name=name), spec=spec, status=TenantStatus(conditions=found))


def test_each_tenant_is_counted_in_one_state() -> None:
    """A suspended tenant waits for no person; one without a condition is not reconciled yet."""
    yes, no = ConditionStatus.TRUE, ConditionStatus.FALSE
    view, waiting = count(
        [
            _tenant("a", Ready=yes, Expiring=yes),
            _tenant("b", Ready=yes, Suspended=yes),
            _tenant("c", Ready=no, Stalled=yes),
            _tenant("d"),
            _tenant("e", Ready=no, Stalled=yes, Suspended=yes),
        ]
    )
    assert (view.total, view.ready) == (5, 1)
    assert view.states == {reasons.READY: 1, "NotReady": 1, reasons.STALLED: 1, reasons.SUSPENDED: 2}
    assert view.conditions == {reasons.EXPIRING: 1}
    assert waiting == (("c", "Why"), ("d", "NotReconciled"))


def test_the_first_line_counts_stalled_tenants_which_leave_the_cluster_healthy() -> None:
    view = TenantsView(total=6, ready=5, states={reasons.READY: 5, reasons.STALLED: 1}, conditions={"Expiring": 2})
    health = judged(replace(GOOD, tenants=view, waiting=(("umbrella", reasons.NOT_ADOPTED), ("legacy", "Why"))))
    assert health.healthy is True
    shown = output.plain(*lines(health, NOW, wide=False))
    assert shown[0] == f"Healthy: Tenantry {__version__} on Kubernetes v1.36.3; 1 of 6 tenants Stalled"
    assert any(line.endswith("6: 5 Ready, 1 Stalled; conditions: 2 Expiring") for line in shown)
    assert health.next == ("tenantry adopt --plan   # NotAdopted: umbrella", "tenantry describe tenant legacy   # Why")


@pytest.mark.parametrize(("annotation", "version"), [("0.9/pod_1", "0.9"), ("0.9/pod_0", ""), ("", ""), ("0.9", "")])
def test_the_version_of_a_former_holder_is_not_that_of_the_leader(annotation: str, version: str) -> None:
    """An operator of an older release takes the Lease over without changing the annotation."""
    meta = ObjectMeta(name="x", annotations={HOLDER_VERSION: annotation})
    assert version_of(Lease(metadata=meta, spec=LeaseSpec(holder_identity="pod_1"))) == version
