"""The TenancyRules of a namespace, and the marks that go with them: of which levels they are merged. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tenantry.api import marks
from tenantry.api.model import ObjectMeta
from tenantry.api.rules import Rules
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenancyrules import (
    AUDIT_MARK,
    NAME,
    OWN_MARK,
    RECLAIMED,
    WARN_MARK,
    TenancyRules,
    TenancyRulesSpec,
    reclaim_mark,
)
from tenantry.api.tenant import Tenant
from tenantry.controllers import interior
from tenantry.controllers.interior import Room
from tenantry.engine.plan import Child
from tenantry.policy.compile import ENFORCED, SECTIONS
from tenantry.policy.storage import RECLAIM_POLICIES
from tenantry.world.rules import Layer, effective

DEFAULTS_SOURCE = "TenancyDefaults 'default'"
NO_RULES = Rules()


def rules_of(defaults: Rules, tenant: Tenant, lineage: Sequence[Subnamespace] = ()) -> TenancyRulesSpec:
    """Return what is in force in a namespace.

    Args:
        defaults: The cluster's.
        tenant: Whose namespace it is.
        lineage: The Subnamespaces from the top of the tree down to the namespace's own; none for a core namespace.

    Raises:
        InputError: A quantity in them is wrong in a way that the CRD's schema did not catch.
    """
    above = [Layer(DEFAULTS_SOURCE, defaults), Layer(f"Tenant {tenant.metadata.name!r}", tenant.spec.rules)]
    return effective(above, [Layer(f"Subnamespace {each.key!r}", each.spec.rules) for each in lineage])


def has_own(tenant: Tenant, lineage: Sequence[Subnamespace] = ()) -> bool:
    """Tell whether a namespace has rules of its own, beside what holds for all tenants.

    Args:
        tenant: Whose namespace it is.
        lineage: As in `rules_of`.
    """
    return tenant.spec.rules != NO_RULES or any(each.spec.rules != NO_RULES for each in lineage)


class Rulebook(msgspec.Struct, frozen=True):
    """What a namespace has for its rules.

    Args:
        labels: Its labels, by which policies find the rules, and by which those that warn and note are about it.
        children: Its TenancyRules; none where it shares those of all.
    """

    labels: dict[str, str]
    children: tuple[Child, ...]


def rulebook(room: Room, defaults: Rules, lineage: Sequence[Subnamespace] = ()) -> Rulebook:
    """Return what a namespace has for its rules.

    Args:
        room: The namespace.
        defaults: The cluster's rules.
        lineage: As in `rules_of`.

    Raises:
        InputError: As `rules_of`.
    """
    rules = rules_of(defaults, room.tenant, lineage)
    labels = {} if rules.warn.is_empty else {WARN_MARK: "true"}
    labels |= {} if rules.audit.is_empty else {AUDIT_MARK: "true"}
    labels |= _reclaim_labels(rules)
    if not has_own(room.tenant, lineage):
        return Rulebook(labels, ())
    own = TenancyRules(metadata=interior.meta(room, NAME), spec=rules)
    return Rulebook({**labels, OWN_MARK: "own"}, (Child(object=own, wave=interior.WAVE_LIMITS),))


def _reclaim_labels(rules: TenancyRulesSpec) -> dict[str, str]:
    """Return what a namespace says of the reclaim policies of its volumes, where that is not the usual."""
    labels: dict[str, str] = {}
    for section in SECTIONS:
        listed = getattr(rules, section).allowed.get(RECLAIM_POLICIES)
        if listed is not None and (section != ENFORCED or listed.values != (RECLAIMED,)):
            labels[reclaim_mark(section)] = ".".join(sorted(listed.values))
    return labels


def shared(defaults: Rules) -> TenancyRules:
    """Return the rules of all namespaces that have none of their own.

    Raises:
        InputError: As `rules_of`.
    """
    return TenancyRules(
        metadata=ObjectMeta(name=NAME, namespace=marks.SYSTEM_NAMESPACE, labels={marks.MANAGED_BY: marks.MANAGER}),
        spec=effective([Layer(DEFAULTS_SOURCE, defaults)]),
    )
