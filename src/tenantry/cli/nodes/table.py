"""The table of `tenantry node list`, the sums below it, and the claims that wait. Pure: the time is an argument."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from fractions import Fraction
from typing import TYPE_CHECKING

from tenantry.api.wording import more
from tenantry.cli import durations, output
from tenantry.views.nodes import FREE, SHARED, NodesView, NodeUsage, WaitingView
from tenantry.world.quantity import parse

if TYPE_CHECKING:
    from rich.text import Text

    from tenantry.cli.output import Part

IN_PARTS = "(in parts)"
"""The tenant of nodes that are given out in parts, where nodes are counted."""

BAR = 8
"""How many characters a node's bar has."""

ALL_BAR = 40
"""How many characters the bar of all nodes has."""

NONE = "-"
MOST_TENANTS = 2
"""How many tenants of a node's pods are named if there are more than one more."""

_COLORS = {
    "Free": "green",
    "Shared": "cyan",
    "Reserved": "yellow",
    "Draining": "yellow",
    "Releasing": "yellow",
    "Bound": "cyan",
}


def lines(view: NodesView, now: datetime, *, blocks: bool) -> list[Part]:
    """Return the table of the nodes, the sums below it, and the claims that wait."""
    parts: list[list[Part]] = [
        _table(view, now, blocks=blocks),
        [] if view.partial else sums(view.nodes, blocks=blocks),
        [f"{node.name} is set aside until it is clean: {node.unclean}" for node in view.nodes if node.unclean],
        [f"{node.name} serves the cluster {node.serves}, and runs no pods here" for node in view.nodes if node.serves],
        _queue(view.waiting, now),
    ]
    return output.paragraphs(parts)


def _table(view: NodesView, now: datetime, *, blocks: bool) -> list[Part]:
    return [output.table(*rows(view, now, blocks=blocks))] if view.nodes else []


def rows(view: NodesView, now: datetime, *, blocks: bool) -> tuple[list[str], list[tuple[str | Text, ...]]]:
    """Return the headers, and a row for each node."""
    columns: list[tuple[str, Sequence[str | Text]]] = [
        ("NODE", [node.name for node in view.nodes]),
        ("STATE", [_state(node) for node in view.nodes]),
        ("TENANT", [node.tenant or _together(part.tenant for part in node.parts) for node in view.nodes]),
        ("CLAIM", [_claims(node) for node in view.nodes]),
    ]
    if any(node.ends for node in view.nodes):
        columns.append(("ENDS", [durations.remaining(node.ends, now) for node in view.nodes]))
    if any(node.contributed_by for node in view.nodes):
        columns.append(("FROM", [node.contributed_by or NONE for node in view.nodes]))
    if any(node.next for node in view.nodes):
        columns.append(("NEXT", [node.next or NONE for node in view.nodes]))
    columns += [(key.upper(), [_used(node, key, blocks=blocks) for node in view.nodes]) for key in ("cpu", "memory")]
    columns.append(("PODS OF", [_pods(node.pods) for node in view.nodes]))
    return [title for title, _ in columns], list(zip(*(cells for _, cells in columns), strict=True))


def _claims(node: NodeUsage) -> str:
    """Return the claims that have a node or parts of it; one in its tenant's core namespace without the namespace."""
    if node.parts:
        return ", ".join(f"{_short(part.claim, part.tenant)} ({part.cpu}, {part.memory})" for part in node.parts)
    return _short(node.claim, node.tenant) or NONE


def _short(claim: str, tenant: str) -> str:
    return claim.removeprefix(f"{tenant}/")


def _together(tenants: Iterable[str]) -> str:
    return ", ".join(sorted({each for each in tenants if each})) or NONE


def _state(node: NodeUsage) -> Text:
    # A node that serves another cluster is neither Ready nor schedulable here, as it should be.
    is_here = not node.serves
    also = {
        "HandedOver": not is_here,
        "NotReady": is_here and node.ready is False,
        "Cordoned": is_here and node.cordoned,
        "NotClean": bool(node.unclean),
    }
    words = "".join(f",{word}" for word, is_so in also.items() if is_so)
    return output.styled((node.state, _COLORS.get(node.state, "")), words)


def _used(node: NodeUsage, key: str, *, blocks: bool) -> str:
    """Return the share of a resource that pods request, or the amount if the capacity is unknown."""
    if node.requested is None:
        return "?"
    asked = node.requested.get(key, "0")
    if node.allocatable is None:
        return asked
    has = parse(node.allocatable.get(key, "0"))
    share = parse(asked) / has if has else Fraction(0)
    percent = f"{round(share * 100):>3}%"
    return f"{bar(share, BAR)} {percent}" if blocks else percent.strip()


def bar(share: Fraction, width: int) -> str:
    """Return a bar of this width, filled to half a character; any share above 0 is at least half a character."""
    halves = min(max(round(share * width * 2), 1 if share > 0 else 0), width * 2)
    whole, half = divmod(halves, 2)
    return ("█" * whole + "▌" * half).ljust(width, "░")


def _pods(pods: Mapping[str, int] | None) -> str:
    if pods is None:
        return "?"
    ordered = sorted(pods.items(), key=lambda item: (not item[0], -item[1], item[0]))
    texts = [f"{tenant or 'no tenant'} {number}" for tenant, number in ordered]
    if len(texts) > MOST_TENANTS + 1:
        texts[MOST_TENANTS:] = [more(sum(number for _, number in ordered[MOST_TENANTS:]))]
    return ", ".join(texts) or NONE


# -- sums -----------------------------------------------------------------------------------------


def sums(nodes: Sequence[NodeUsage], *, blocks: bool) -> list[Part]:
    """Return how many nodes each tenant has, which claims have them, and how many are free."""
    if not nodes:
        return []
    taken = sum(node.state != FREE for node in nodes)
    first = f"{taken} of {len(nodes)} nodes taken, {len(nodes) - taken} free"
    owners = Counter(_owner(node) for node in nodes if node.state != FREE)
    ordered = [*sorted(owners.items(), key=lambda item: (-item[1], item[0])), ("", len(nodes) - taken)]
    rows = [_sum(tenant, number, nodes, blocks=blocks) for tenant, number in ordered if number]
    return [first, output.table(("TENANT", "NODES", "CLAIMS"), rows)]


def _sum(tenant: str, number: int, nodes: Sequence[NodeUsage], *, blocks: bool) -> tuple[str, str, str]:
    if blocks:
        length = bar(Fraction(number, len(nodes)), ALL_BAR).rstrip("░")
        shown = f"{number:>3} {length}"
    else:
        shown = str(number)
    mine = [node for node in nodes if _owner(node) == tenant]
    claims = Counter(claim for node in mine for claim in (node.claim, *(part.claim for part in node.parts)) if claim)
    counts = ", ".join(f"{claim} {count}" for claim, count in sorted(claims.items()))
    return tenant or "(free)", shown, counts or NONE


def _owner(node: NodeUsage) -> str:
    return IN_PARTS if node.state == SHARED else node.tenant


def _queue(waiting: Iterable[WaitingView], now: datetime) -> list[Part]:
    rows = [(each.claim, durations.age(each.since, now), str(each.count), each.why) for each in waiting]
    return [output.table(("WAITING", "FOR", "NODES", "BECAUSE"), rows)] if rows else []
