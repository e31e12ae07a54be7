"""The TenancyRules of a namespace, and the marks that go with them: of which levels they are merged. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tenantry.api.rules import Rules
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenancyrules import AUDIT_MARK, NAME, WARN_MARK, TenancyRules, TenancyRulesSpec
from tenantry.api.tenant import Tenant
from tenantry.controllers import interior
from tenantry.controllers.interior import Room
from tenantry.engine.plan import Child
from tenantry.world.rules import Layer, effective

DEFAULTS_SOURCE = "TenancyDefaults 'default'"


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


def rulebook(room: Room, rules: TenancyRulesSpec) -> Child:
    """Return the object that the policies read in a namespace."""
    return Child(object=TenancyRules(metadata=interior.meta(room, NAME), spec=rules), wave=interior.WAVE_LIMITS)


def labels(rules: TenancyRulesSpec) -> dict[str, str]:
    """Return the labels of a namespace by which the policies that warn and note are about it."""
    warns = {} if rules.warn.is_empty else {WARN_MARK: "true"}
    return warns if rules.audit.is_empty else {**warns, AUDIT_MARK: "true"}
