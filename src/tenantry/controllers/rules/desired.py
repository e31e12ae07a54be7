"""The rules that all namespaces without rules of their own share, as objects in Tenantry's namespace: pure."""

from __future__ import annotations

import msgspec

from tenantry.api.policyparameters import PolicyParameters
from tenantry.api.rules import Rules
from tenantry.api.tenancydefaults import SliceDefaults, TenancyDefaults
from tenantry.api.tenancyrules import MAPS
from tenantry.controllers import tenancyrules
from tenantry.engine.observed import Observed
from tenantry.engine.plan import Equivalent, Lookup, Plan, compare, same
from tenantry.world.sandbox import Sandbox

SECTIONS = frozenset(MAPS.values())
"""The names of parameters that are ours; the list of what may be approved automatically lies beside them."""


class SharedRulesInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides the shared rules.

    Args:
        defaults: None if there are none.
        sandbox: What the cluster has.
        made: All parameters in Tenantry's namespace.
        lookup: What is there, by kind and key.
    """

    defaults: TenancyDefaults | None
    sandbox: Sandbox
    made: tuple[Observed, ...]
    lookup: Lookup


def plan(inputs: SharedRulesInputs, equivalent: Equivalent = same) -> Plan:
    """Return what has to be written.

    Raises:
        InputError: A quantity in TenancyDefaults is wrong in a way that the CRD's schema did not catch.
    """
    defaults = inputs.defaults
    rules, slices = (defaults.spec.rules, defaults.spec.slices) if defaults is not None else (Rules(), SliceDefaults())
    wanted = (*tenancyrules.shared(rules, inputs.sandbox), tenancyrules.of_slices(slices))
    # Only the sections: the approvals and the register of hosts are other controllers' objects.
    keys = {child.object.key for child in wanted}
    stale = [
        (PolicyParameters.resource, each) for each in inputs.made if each.name in SECTIONS and each.key not in keys
    ]
    return compare(wanted, inputs.lookup, stale=stale, equivalent=equivalent)
