"""Which priority levels there are, and whom they serve."""

from __future__ import annotations

from itertools import pairwise

from tenantry.api.fairness import Fairness, ReservedLevel, Trusted, TrustedKind
from tenantry.api.flowcontrol import FlowSchema, PriorityLevelConfiguration
from tenantry.api.model import OwnerReference
from tenantry.api.owner import Owner, OwnerKind
from tenantry.controllers.fairness import desired

DEFAULTS = OwnerReference(api_version="tenantry.dev/v1alpha1", kind="TenancyDefaults", name="default", uid="u1")
GOLD = desired.members_of([Owner(kind=OwnerKind.USER, name="gina")], ["gold"])


def found(fairness: Fairness, owner: OwnerReference | None = DEFAULTS) -> tuple[dict[str, int], list[FlowSchema]]:
    """Return the shares of each level, and the FlowSchemas in the order in which they are asked."""
    objects = [child.object for child in desired.children(fairness, {"gold": GOLD, "gone": []}, owner)]
    levels = {
        each.metadata.name: each.spec.limited.nominal_concurrency_shares
        for each in objects
        if isinstance(each, PriorityLevelConfiguration)
    }
    schemas = [each for each in objects if isinstance(each, FlowSchema)]
    return levels, sorted(schemas, key=lambda each: each.spec.matching_precedence)


def test_all_tenants_share_a_level_that_neither_lends_nor_borrows() -> None:
    """H06: a flood finds no more seats than these, however many others have to spare."""
    levels, schemas = found(Fairness(shares=7), None)
    assert levels == {"tenantry-tenants": 7}
    assert [each.metadata.name for each in schemas] == ["tenantry-tenants"]
    limited = desired.level("any", 1).spec.limited
    assert (limited.lendable_percent, limited.borrowing_limit_percent) == (0, 0)


def test_the_more_particular_is_asked_first_and_kubernetes_own_before_all() -> None:
    """H06: trusted users, then tenants with a level of their own, then all others."""
    reserved = (ReservedLevel(tenant="gold", shares=3),)
    trusted = (Trusted(kind=TrustedKind.NAMESPACE, name="cert-manager"), Trusted(kind=TrustedKind.GROUP, name="staff"))
    levels, schemas = found(Fairness(reserved=reserved, trusted=trusted))
    assert levels == {"tenantry-tenants": 1, "tenantry-reserved-gold": 3}
    names = ["tenantry-trusted", "tenantry-reserved-gold", "tenantry-tenants"]
    assert [each.metadata.name for each in schemas] == names
    precedences = [900, *(each.spec.matching_precedence for each in schemas), 9000]
    assert all(before < after for before, after in pairwise(precedences))
    first, second, last = (each.spec.rules[0].subjects for each in schemas)
    assert [each.kind for each in first] == ["ServiceAccount", "Group"]
    assert list(second) == GOLD
    assert list(last) == [desired.AUTHENTICATED]


def test_a_tenant_that_is_not_there_has_no_level() -> None:
    """H06: a FlowSchema without subjects would be refused, and an unused level costs all others seats."""
    levels, _ = found(Fairness(reserved=(ReservedLevel(tenant="gone"), ReservedLevel(tenant="never"))))
    assert levels == {"tenantry-tenants": 1}


def test_what_is_for_one_tenant_goes_with_the_defaults() -> None:
    """H06: the common level stays when there are no TenancyDefaults any more."""
    children = desired.children(Fairness(reserved=(ReservedLevel(tenant="gold"),)), {"gold": GOLD}, DEFAULTS)
    owned = {child.object.metadata.name for child in children if child.owner_uid == "u1"}
    assert owned == {"tenantry-reserved-gold"}


def test_mirrors_have_a_level_while_there_are_control_planes() -> None:
    """H06: only their identities are served there, and no ServiceAccount that a tenant may impersonate."""
    names = {child.object.metadata.name for child in desired.children(Fairness(), {}, DEFAULTS)}
    assert desired.MIRRORS not in names
    objects = [child.object for child in desired.children(Fairness(), {}, DEFAULTS, has_planes=True)]
    (schema,) = (each for each in objects if isinstance(each, FlowSchema) and each.metadata.name == desired.MIRRORS)
    accounts = [each.service_account for each in schema.spec.rules[0].subjects]
    found_ = [(each.namespace, each.name) for each in accounts if each is not None]
    assert found_ == [("tenantry-mirrors", "*")]
    (made,) = (each for each in objects if isinstance(each, PriorityLevelConfiguration) and each.key == desired.MIRRORS)
    assert made.spec.limited.borrowing_limit_percent == 0
    assert desired.TRUSTED_PRECEDENCE < schema.spec.matching_precedence < desired.RESERVED_PRECEDENCE


def test_other_clusters_have_a_level_of_their_own_while_one_of_them_is_a_guest() -> None:
    """L05: what a home writes here makes neither tenants nor control planes wait."""
    levels, _ = found(Fairness(), None)
    assert desired.GUESTS not in levels
    objects = [child.object for child in desired.children(Fairness(), {}, DEFAULTS, has_guests=True)]
    (schema,) = (each for each in objects if isinstance(each, FlowSchema) and each.metadata.name == desired.GUESTS)
    accounts = [each.service_account for each in schema.spec.rules[0].subjects]
    assert [(each.namespace, each.name) for each in accounts if each is not None] == [("tenantry-peers", "*")]
    assert desired.MIRRORS_PRECEDENCE < schema.spec.matching_precedence < desired.RESERVED_PRECEDENCE
