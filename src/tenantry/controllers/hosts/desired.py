"""The register of hosts as objects in Tenantry's namespace: pure."""

from __future__ import annotations

import msgspec

from tenantry.api.hostregister import HOSTS_MARK, PREFIX
from tenantry.api.marks import SYSTEM_NAMESPACE
from tenantry.api.policyparameters import PolicyParameters, parameters
from tenantry.engine.observed import ObservedRegister
from tenantry.engine.plan import Child, Equivalent, Lookup, Plan, compare, same
from tenantry.world import hosts
from tenantry.world.hosts import HostClash, HostUse


class HostInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides which network zone owns each host.

    Args:
        uses: Which objects use hosts.
        is_whole: Whether the namespaces of all of them are known.
        registers: The register as it is.
        lookup: What is there, by kind and key.
    """

    uses: tuple[HostUse, ...]
    is_whole: bool
    registers: tuple[ObservedRegister, ...]
    lookup: Lookup

    @property
    def holders(self) -> dict[str, str]:
        """Return which zone owned each host so far."""
        before: dict[str, str] = {}
        for each in self.registers:
            before |= hosts.zones_in(each.entries)
        return before


Parts = dict[str, dict[str, str]]
"""The texts of each object of the register, by the end of its name."""


class HostDecision(msgspec.Struct, frozen=True, kw_only=True):
    """What the objects of a cluster mean for the register.

    Args:
        plan: The writes that bring the register up to date.
        clashes: The objects with a host that several zones request, on all sides.
        unregistered: How many hosts the register has no room for.
    """

    plan: Plan
    clashes: tuple[HostClash, ...]
    unregistered: int


def plan(inputs: HostInputs, equivalent: Equivalent = same) -> HostDecision:
    """Return the writes that bring the register up to date, and what they leave to report."""
    assignment = hosts.divided(inputs.uses, inputs.holders)
    # Computed once, for the writes and for the count: with many hosts it takes long.
    parts = hosts.register(assignment.holders)
    return HostDecision(
        plan=_writes(parts, inputs, equivalent),
        clashes=(*assignment.clashes, *assignment.contests),
        unregistered=len(assignment.holders) - sum(len(hosts.zones_in(data)) for data in parts.values()),
    )


def _writes(parts: Parts, inputs: HostInputs, equivalent: Equivalent) -> Plan:
    children = [
        Child(object=parameters(f"{PREFIX}{part}", SYSTEM_NAMESPACE, HOSTS_MARK, texts), wave=0)
        for part, texts in parts.items()
    ]
    wanted = {child.object.key for child in children}
    stale = [(PolicyParameters.resource, each) for each in inputs.registers if each.key not in wanted]
    return compare(children, inputs.lookup, stale=stale, equivalent=equivalent)
