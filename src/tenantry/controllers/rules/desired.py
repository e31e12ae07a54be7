"""The rules that all namespaces without rules of their own share, as objects in Tenantry's namespace: pure."""

from __future__ import annotations

from tenantry.api.rules import Rules
from tenantry.api.tenancydefaults import SliceDefaults
from tenantry.api.tenancyrules import MAPS, RulesMap
from tenantry.controllers import tenancyrules
from tenantry.controllers.rules.gather import SharedRulesInputs
from tenantry.engine.plan import Equivalent, Plan, compare, same

SECTIONS = frozenset(MAPS.values())
"""The RulesMaps that are ours; the list of what may be approved automatically lies beside them."""


def plan(inputs: SharedRulesInputs, equivalent: Equivalent = same) -> Plan:
    """Return what has to be written.

    Raises:
        InputError: A quantity in TenancyDefaults is wrong in a way that the CRD's schema did not catch.
    """
    defaults = inputs.defaults
    rules, slices = (defaults.spec.rules, defaults.spec.slices) if defaults is not None else (Rules(), SliceDefaults())
    wanted = (*tenancyrules.shared(rules, inputs.sandbox), tenancyrules.of_slices(slices))
    keys = {child.object.key for child in wanted}
    stale = [(RulesMap.resource, each) for each in inputs.made if each.name in SECTIONS and each.key not in keys]
    return compare(wanted, inputs.lookup, stale=stale, equivalent=equivalent)
