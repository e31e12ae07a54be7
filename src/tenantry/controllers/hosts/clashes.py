"""Objects with hosts that several network zones request: from the host controller to those that report them."""

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
    """Return the problem and the remedy, without the name of the other side, which is private."""
    what = f"{clash.use.kind} {clash.use.name!r} has the host {clash.host!r}, which another tenant or Subtenant"
    if clash.keeps:
        return (
            f"{what}, or the cluster itself, also requested, or one that overlaps it: this namespace keeps it, but an"
            " ingress controller may serve other paths of the other object, too"
        )
    return f"{what}, or the cluster itself, had first, or one that overlaps it: choose another one"


def summary(found: Sequence[HostClash]) -> str:
    """Return the problems of several hosts, shortened."""
    return shortened(map(told, found), separator="; ")


REPORTED = {reasons.HOSTS_TAKEN: reasons.HOST_TAKEN, reasons.HOSTS_CONTESTED: reasons.HOST_CONTESTED}
"""Type of a condition to its reason: of the side that lost a host, and of the side that keeps it."""


def condition(
    found: Sequence[HostClash] | None, before: Iterable[Condition], *, is_blind: bool = False
) -> list[Wanted]:
    """Return the conditions of the Tenant or Subnamespace of a namespace in which hosts clash (E15).

    Args:
        found: The clashes in the namespace; None before the first comparison.
        before: The conditions so far.
        is_blind: Its readers may not see the names of objects inside, as for a Subtenant; events there have them.
    """
    # After a start, the last report stands until the first comparison: conditions must not flap.
    if found is None:
        known = [each for each in (find(before, type_) for type_ in REPORTED) if each is not None]
        return [Wanted(each.type, True, each.reason, each.message, only_true=True) for each in known]
    wanted: list[Wanted] = []
    for type_, reason in REPORTED.items():
        some = [clash for clash in found if clash.keeps == (type_ == reasons.HOSTS_CONTESTED)]
        if some:
            message = _counted(some) if is_blind else summary(some)
            wanted.append(Wanted(type_, True, reason, message, only_true=True))
    return wanted


def _counted(found: Sequence[HostClash]) -> str:
    what = "also requested" if found[0].keeps else "had first"
    return f"hosts inside that another tenant or Subtenant {what}: {len(found)}; events in the namespace name them"
