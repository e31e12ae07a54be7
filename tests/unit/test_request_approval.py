"""Which TenantRequests approve themselves, and what approved requests become."""

from __future__ import annotations

import pytest

from tenantry.api.kubernetes import ClusterRoleBinding, RoleBinding
from tenantry.api.model import ObjectMeta
from tenantry.api.owner import Owner, OwnerKind
from tenantry.api.policyparameters import PolicyParameters, texts_of
from tenantry.api.quota import Quota
from tenantry.api.requests import (
    REASONS,
    REQUEST_UID,
    AutoApproval,
    ClusterRoleRequest,
    ClusterRoleRequestSpec,
    RequestedClusterRole,
    RequestedRole,
    RequestedSubject,
    Requester,
    RoleKind,
    RoleRequest,
    RoleRequestSpec,
    SubjectKind,
    TenantRequest,
    TenantRequestSpec,
)
from tenantry.controllers.requests import desired

BOB = Requester(name="bob@uni.example", groups=("students", "system:authenticated"))


def asked(
    *, owners: tuple[Owner, ...] = (), seconds: int = 0, requester: Requester = BOB, **hard: str | int
) -> TenantRequest:
    spec = TenantRequestSpec(
        requester=requester, tenant="acme", owners=owners, quota=Quota(hard={**hard}), duration_seconds=seconds
    )
    return TenantRequest(metadata=ObjectMeta(name="r", uid="u1"), spec=spec)


def rule(
    *,
    groups: tuple[str, ...] = (),
    domains: tuple[str, ...] = (),
    most: dict[str, str | int] | None = None,
    seconds: int = 0,
) -> AutoApproval:
    return AutoApproval(name="rule", groups=groups, domains=domains, max_quota=most or {}, max_duration_seconds=seconds)


@pytest.mark.parametrize(
    ("request_", "given", "fits"),
    [
        (asked(), rule(groups=("students",)), True),
        (asked(), rule(groups=("staff",)), False),
        (asked(), rule(domains=("UNI.example",)), True),
        (asked(), rule(domains=("example",)), False),
        (asked(requester=Requester(name="uni.example")), rule(domains=("uni.example",)), False),
        (asked(requester=Requester(name="x@uni.example@evil.test")), rule(domains=("uni.example",)), False),
        (asked(requester=Requester(name="x@ban\u212a.example")), rule(domains=("bank.example",)), False),
        (asked(), rule(groups=("staff",), domains=("uni.example",)), False),
        (asked(), rule(), False),
        (asked(cpu="2"), rule(groups=("students",), most={"requests.cpu": 2}), True),
        (asked(cpu="2001m"), rule(groups=("students",), most={"requests.cpu": 2}), False),
        (asked(memory="1Gi"), rule(groups=("students",), most={"cpu": 2}), False),
        (asked(cpu="1", pods=3), rule(groups=("students",), most={"cpu": 2}), True),
        (asked(), rule(groups=("students",), seconds=60), False),
        (asked(seconds=60), rule(groups=("students",), seconds=60), True),
        (asked(seconds=61), rule(groups=("students",), seconds=60), False),
        (asked(owners=(Owner(kind=OwnerKind.USER, name=BOB.name),)), rule(groups=("students",)), True),
        (asked(owners=(Owner(kind=OwnerKind.GROUP, name="students"),)), rule(groups=("students",)), False),
        (asked(bananas=1), rule(groups=("students",)), False),
    ],
)
def test_a_request_approves_itself_where_all_of_a_rule_fits(
    request_: TenantRequest, given: AutoApproval, *, fits: bool
) -> None:
    """E16: by group, domain, quota and duration, and only for who asks; no limit is more than any limit."""
    assert bool(desired.fitting(request_, [given])) is fits


def test_the_first_rule_that_fits_is_named() -> None:
    """E16: so that the reason says which."""
    given = [rule(groups=("staff",)), AutoApproval(name="second", groups=("students",))]
    assert desired.fitting(asked(), given) == "TenancyDefaults spec.autoApprove 'second'"


@pytest.mark.parametrize("named", ["students", "a\nb", "it's", "\x85\u2028"])
def test_what_a_request_says_is_a_line_of_what_the_policy_reads(named: str) -> None:
    """E16: the API server compares them, so no rule's name can make two lines, nor a line that is none."""
    given = [rule(groups=("staff",)), AutoApproval(name=named, groups=("students",))]
    said = desired.fitting(asked(), given)
    told = desired.approvals(given).object
    assert isinstance(told, PolicyParameters)
    assert said in texts_of(told.metadata.annotations)[REASONS].split("\n")
    assert len(texts_of(told.metadata.annotations)[REASONS].splitlines()) == len(given)


def test_a_tenant_belongs_to_who_asked_and_not_to_the_request() -> None:
    """E16: the paper can be thrown away."""
    tenant = desired.tenant(asked(cpu="2"), "2027-01-31T18:00:00Z")
    assert tenant.spec.owners == (Owner(kind=OwnerKind.USER, name="bob@uni.example"),)
    assert (tenant.spec.quota.hard, tenant.spec.expires_at) == ({"cpu": "2"}, "2027-01-31T18:00:00Z")
    assert tenant.metadata.owner_references == ()
    assert tenant.metadata.labels[REQUEST_UID] == "u1"


def test_a_role_is_bound_for_who_asked_and_goes_with_the_request() -> None:
    """E16: in the namespace of the request, owned by it."""
    spec = RoleRequestSpec(requester=BOB, role_ref=RequestedRole(kind=RoleKind.ROLE, name="deployer"))
    request = RoleRequest(metadata=ObjectMeta(name="r", namespace="acme", uid="u1"), spec=spec)
    made = desired.binding(request, "acme").object
    assert isinstance(made, RoleBinding)
    assert made.key == "acme/request-r"
    assert (made.role_ref.kind, made.role_ref.name) == ("Role", "deployer")
    assert [(subject.kind, subject.name) for subject in made.subjects] == [("User", "bob@uni.example")]
    assert made.metadata.owner_references[0].uid == "u1"


def test_a_cluster_role_is_bound_for_those_who_are_named_only() -> None:
    """E16: who asks for others gets nothing."""
    subjects = (RequestedSubject(kind=SubjectKind.GROUP, name="oncall"),)
    spec = ClusterRoleRequestSpec(requester=BOB, role_ref=RequestedClusterRole(name="view"), subjects=subjects)
    made = desired.binding(ClusterRoleRequest(metadata=ObjectMeta(name="r", uid="u1"), spec=spec)).object
    assert isinstance(made, ClusterRoleBinding)
    assert [(subject.kind, subject.name) for subject in made.subjects] == [("Group", "oncall")]
    assert made.metadata.name == "tenantry-request-r"
