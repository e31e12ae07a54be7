"""What `tenantry nodes` shows: whose each node is, what is used of it, who is next. Pure, the time is an argument."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from fractions import Fraction
from typing import TYPE_CHECKING

import msgspec

from tenantry.cli import durations, output
from tenantry.world.quantity import parse

if TYPE_CHECKING:
    from rich.text import Text

    from tenantry.cli.output import Part

FREE = "Free"
SHARED = "Shared"
"""Of a node that is given out in parts."""

IN_PARTS = "(in parts)"
"""Who has it, where nodes are counted."""

BAR = 8
"""How many characters a node's bar has."""

ALL_BAR = 40
"""How many the bar of all nodes has."""

NOBODY = "-"
MOST_TOLD = 2
"""How many tenants of a node's pods are named where there are more than one more."""

_COLORS = {
    "Free": "green",
    "Shared": "cyan",
    "Reserved": "yellow",
    "Draining": "yellow",
    "Releasing": "yellow",
    "Bound": "cyan",
}


class PartView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of a node, and whose it is: `cpu` and `memory` are its size, the claim is NAMESPACE/NAME."""

    tenant: str
    claim: str
    slice: str
    cpu: str
    memory: str


class NodeView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A node, and whose it is; None is what the asker may not read.

    Args:
        name: Of the node.
        state: Free, Shared, Reserved, Draining, Bound or Releasing.
        tenant: Whose; "" for everybody's.
        slice: Which slice; "" for none.
        claim: NAMESPACE/NAME; "" for none.
        ends: When the claim expires, RFC 3339; "" for never.
        next: The claim that would get it next, as NAMESPACE/NAME; "" for none.
        ready: Pods can run there.
        cordoned: No new pods come there.
        unclean: What its last tenant left there could not be removed; "" where nothing is known of that.
        contributed_by: The tenant for whom it was contributed, which has the first claim on it; "" for none.
        allocatable: Resource to what pods can have.
        requested: Resource to what pods there ask for.
        pods: Tenant to how many of its pods are there; "" for pods of no tenant.
        parts: What it has given, by slice.
    """

    name: str
    state: str = FREE
    tenant: str = ""
    slice: str = ""
    claim: str = ""
    ends: str = ""
    next: str = ""
    ready: bool | None = None
    cordoned: bool = False
    unclean: str = ""
    contributed_by: str = ""
    allocatable: Mapping[str, str] | None = None
    requested: Mapping[str, str] | None = None
    pods: Mapping[str, int] | None = None
    parts: tuple[PartView, ...] = ()


class WaitingView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A claim that waits for nodes.

    Args:
        claim: NAMESPACE/NAME.
        since: When it was made, RFC 3339.
        count: How many nodes it asks for.
        why: What it lacks.
    """

    claim: str
    since: str
    count: int
    why: str


class NodesView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All nodes that the asker may see, and the claims that wait for some, oldest first.

    Args:
        nodes: By name, numbers in their order.
        waiting: Oldest first.
        partial: Only those that claims of one namespace have, or of the asker, who may not read nodes.
    """

    nodes: tuple[NodeView, ...]
    waiting: tuple[WaitingView, ...] = ()
    partial: bool = False


def in_order(name: str) -> tuple[tuple[int, str], ...]:
    """Return what names are sorted by: node-2 comes before node-10."""
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"([0-9]+)", name))


def lines(view: NodesView, now: datetime, *, blocks: bool) -> list[Part]:
    """Return the map of the nodes, the sums below it, and who waits."""
    parts: list[list[Part]] = [
        _map(view, now, blocks=blocks),
        [] if view.partial else sums(view.nodes, blocks=blocks),
        [f"{node.name} is set aside until it is clean: {node.unclean}" for node in view.nodes if node.unclean],
        _queue(view.waiting, now),
    ]
    return output.paragraphs(parts)


def _map(view: NodesView, now: datetime, *, blocks: bool) -> list[Part]:
    if not view.nodes:
        return []
    columns: list[tuple[str, Sequence[str | Text]]] = [
        ("NODE", [node.name for node in view.nodes]),
        ("STATE", [_state(node) for node in view.nodes]),
        ("TENANT", [node.tenant or _together(part.tenant for part in node.parts) for node in view.nodes]),
        ("CLAIM", [_claims(node) for node in view.nodes]),
    ]
    if any(node.ends for node in view.nodes):
        columns.append(("ENDS", [ends(node.ends, now) for node in view.nodes]))
    if any(node.contributed_by for node in view.nodes):
        columns.append(("FROM", [node.contributed_by or NOBODY for node in view.nodes]))
    if any(node.next for node in view.nodes):
        columns.append(("NEXT", [node.next or NOBODY for node in view.nodes]))
    columns += [(key.upper(), [_used(node, key, blocks=blocks) for node in view.nodes]) for key in ("cpu", "memory")]
    columns.append(("PODS OF", [_pods(node.pods) for node in view.nodes]))
    return [output.table([title for title, _ in columns], zip(*(cells for _, cells in columns), strict=True))]


def _claims(node: NodeView) -> str:
    """Return who has a node, or how much of it; a claim in its tenant's own namespace goes by its name."""
    if node.parts:
        return ", ".join(f"{_short(part.claim, part.tenant)} ({part.cpu}, {part.memory})" for part in node.parts)
    return _short(node.claim, node.tenant) or NOBODY


def _short(claim: str, tenant: str) -> str:
    return claim.removeprefix(f"{tenant}/")


def _together(tenants: Iterable[str]) -> str:
    return ", ".join(sorted({each for each in tenants if each})) or NOBODY


def _state(node: NodeView) -> Text:
    also = {"NotReady": node.ready is False, "Cordoned": node.cordoned, "NotClean": bool(node.unclean)}
    words = "".join(f",{word}" for word, is_so in also.items() if is_so)
    return output.styled((node.state, _COLORS.get(node.state, "")), words)


def ends(at: str, now: datetime) -> str:
    """Return in how long a claim expires."""
    if not at:
        return NOBODY
    left = durations.left(at, now)
    return f"in {durations.text(left)}" if left > 0 else "now"


def _used(node: NodeView, key: str, *, blocks: bool) -> str:
    """Return how much of a resource is asked for: of what there is, where that is known."""
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
    """Return a bar of so many characters of which a share is filled, to half a character; more than all is all.

    What is used at all is seen: a little is half a character.
    """
    halves = min(max(round(share * width * 2), 1 if share > 0 else 0), width * 2)
    whole, half = divmod(halves, 2)
    return ("█" * whole + "▌" * half).ljust(width, "░")


def _pods(pods: Mapping[str, int] | None) -> str:
    if pods is None:
        return "?"
    ordered = sorted(pods.items(), key=lambda item: (not item[0], -item[1], item[0]))
    told = [f"{tenant or 'no tenant'} {number}" for tenant, number in ordered]
    if len(told) > MOST_TOLD + 1:
        told[MOST_TOLD:] = [f"{sum(number for _, number in ordered[MOST_TOLD:])} more"]
    return ", ".join(told) or NOBODY


# -- sums -----------------------------------------------------------------------------------------


def sums(nodes: Sequence[NodeView], *, blocks: bool) -> list[Part]:
    """Return how many nodes each tenant has, which claims have them, and how many are free."""
    if not nodes:
        return []
    taken = sum(node.state != FREE for node in nodes)
    said = f"{taken} of {len(nodes)} nodes taken, {len(nodes) - taken} free"
    owners = Counter(_owner(node) for node in nodes if node.state != FREE)
    ordered = [*sorted(owners.items(), key=lambda item: (-item[1], item[0])), ("", len(nodes) - taken)]
    rows = [_sum(tenant, number, nodes, blocks=blocks) for tenant, number in ordered if number]
    return [said, output.table(("TENANT", "NODES", "CLAIMS"), rows)]


def _sum(tenant: str, number: int, nodes: Sequence[NodeView], *, blocks: bool) -> tuple[str, str, str]:
    if blocks:
        length = bar(Fraction(number, len(nodes)), ALL_BAR).rstrip("░")
        shown = f"{number:>3} {length}"
    else:
        shown = str(number)
    mine = [node for node in nodes if _owner(node) == tenant]
    claims = Counter(claim for node in mine for claim in (node.claim, *(part.claim for part in node.parts)) if claim)
    told = ", ".join(f"{claim} {count}" for claim, count in sorted(claims.items()))
    return tenant or "(free)", shown, told or NOBODY


def _owner(node: NodeView) -> str:
    return IN_PARTS if node.state == SHARED else node.tenant


def _queue(waiting: Iterable[WaitingView], now: datetime) -> list[Part]:
    rows = [(each.claim, durations.age(each.since, now), str(each.count), each.why) for each in waiting]
    return [output.table(("WAITING", "FOR", "NODES", "BECAUSE"), rows)] if rows else []
