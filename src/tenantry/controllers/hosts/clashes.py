"""Objects that use a host of another tenant: from the host controller to the controllers that report them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tenantry.api import reasons
from tenantry.api.model import Condition
from tenantry.api.wording import shortened
from tenantry.engine.conditions import Wanted, find
from tenantry.world.hosts import HostClash


class Clashes:
    """The clashes in each namespace; unknown before the first comparison."""

    def __init__(self) -> None:
        self._by_namespace: dict[str, tuple[HostClash, ...]] | None = None

    @property
    def is_known(self) -> bool:
        """Return whether the hosts have been compared once."""
        return self._by_namespace is not None

    def inside(self, namespace: str) -> tuple[HostClash, ...] | None:
        """Return the clashes in a namespace; None before the first comparison."""
        return self._by_namespace.get(namespace, ()) if self._by_namespace is not None else None

    def set(self, found: Iterable[HostClash]) -> set[str]:
        """Replace all clashes, and return the namespaces whose clashes differ from before."""
        groups: dict[str, list[HostClash]] = {}
        for clash in found:
            groups.setdefault(clash.use.namespace, []).append(clash)
        before, after = self._by_namespace or {}, {name: tuple(each) for name, each in groups.items()}
        self._by_namespace = after
        return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def told(clash: HostClash) -> str:
    """Return the problem and the remedy, without the name of the tenant that owns the host: that name is private."""
    return (
        f"{clash.use.kind} {clash.use.name!r} has the host {clash.host!r}, which another tenant, or the cluster itself,"
        " had first, or one that overlaps it: choose another one"
    )


def summary(found: Sequence[HostClash]) -> str:
    """Return the problems of several hosts, shortened."""
    return shortened(map(told, found), separator="; ")


def condition(
    found: Sequence[HostClash] | None, before: Iterable[Condition], *, is_blind: bool = False
) -> list[Wanted]:
    """Return the condition HostsTaken of the Tenant or Subnamespace of a namespace in which hosts clash (E15).

    Args:
        found: The clashes in the namespace; None before the first comparison.
        before: The conditions so far.
        is_blind: Its readers may not see the names of objects inside, as for a Subtenant; events there have them.
    """
    # After a start, the last report stands until the first comparison: conditions must not flap.
    if found is None:
        known = find(before, reasons.HOSTS_TAKEN)
        return [Wanted(known.type, True, known.reason, known.message, only_true=True)] if known is not None else []
    if not found:
        return []
    if is_blind:
        message = f"hosts inside that another tenant had first: {len(found)}; events in the namespace name them"
        return [Wanted(reasons.HOSTS_TAKEN, True, reasons.HOST_TAKEN, message, only_true=True)]
    return [Wanted(reasons.HOSTS_TAKEN, True, reasons.HOST_TAKEN, summary(found), only_true=True)]
