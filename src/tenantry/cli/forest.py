"""Draws tenants and their namespaces as a tree, in characters that the terminal has: pure.

acme  Ready  User:ada, Group:devs
└── namespace acme  Active
    ├── pods          [██░░░░░░░░]  10 / 50   20 %
    ├── requests.cpu  [█████████░]  3.5 / 4   88 %
    └── web  Workspace  web-d5903d54abcc14f1  Active
        └── requests.cpu  [█░░░░░░░░░]  200m / 2   10 %
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from tenantry.api import marks, reasons
from tenantry.api.errors import InputError
from tenantry.api.model import Condition, ConditionStatus
from tenantry.api.wording import shortened
from tenantry.cli import output
from tenantry.world import quantity

if TYPE_CHECKING:
    from rich.text import Text
    from rich.tree import Tree

BAR = 10
_FULL = 1.0
_NEARLY = 0.9

_REPEATS = {reasons.STALLED, reasons.RECONCILING, reasons.SUSPENDED}
"""Conditions that say again what Ready or the first line says."""

_WARNINGS = {reasons.EXPIRING}
"""Conditions of which True is what a person should know."""


_ORDINARY = {reasons.KERNEL_SHARED}
"""Reasons of conditions that are False with nothing being wrong: `describe` shows them."""


class Use(msgspec.Struct, frozen=True):
    """How much of one quota key is used; canonical quantities."""

    key: str
    used: str
    hard: str


class ConditionView(msgspec.Struct, frozen=True, kw_only=True):
    """What a condition says."""

    type: str
    status: ConditionStatus
    reason: str
    message: str


class NamespaceView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A namespace of a tenant, and what is below it.

    Args:
        name: "" for a Subnamespace that has no namespace yet.
        phase: Active or Terminating; "" where there is no namespace.
        kind: core, workspace or subtenant.
        subnamespace: The name of the Subnamespace that it belongs to; "" for the core namespace.
        expires_at: When that ends; "" for never.
        quota: What is used of its own share.
        bound: Its Subnamespace is there; true of the core namespace.
        is_closed: Whoever asks may not look inside; its quota is the total of all below it.
        conditions: Of the Subnamespace; None where that was not asked for.
        children: The namespaces below it.
    """

    name: str
    phase: str
    kind: str = marks.KIND_CORE
    subnamespace: str = ""
    expires_at: str = ""
    bound: bool = True
    is_closed: bool = False
    quota: tuple[Use, ...] = ()
    conditions: tuple[ConditionView, ...] | None = ()
    children: tuple[NamespaceView, ...] = ()


class TenantView(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant, as the tree shows it."""

    name: str
    ready: bool
    suspended: bool
    network: str
    owners: tuple[str, ...]
    conditions: tuple[ConditionView, ...] = ()
    namespaces: tuple[NamespaceView, ...] = ()


def draw(tenants: Sequence[TenantView], *, blocks: bool) -> list[Tree]:
    """Return the tree of each tenant; its bars are blocks, or ASCII."""
    return [_tenant(each, blocks=blocks) for each in tenants]


def draw_namespaces(namespaces: Sequence[NamespaceView], *, blocks: bool) -> list[Tree]:
    """Return trees that begin at namespaces."""
    found: list[Tree] = []
    for namespace in namespaces:
        root = output.tree(_title(namespace))
        _fill(root, namespace, blocks=blocks)
        found.append(root)
    return found


def conditions_view(given: Iterable[Condition]) -> tuple[ConditionView, ...]:
    """Return what conditions say."""
    return tuple(
        ConditionView(type=each.type, status=each.status, reason=each.reason, message=each.message) for each in given
    )


def _tenant(tenant: TenantView, *, blocks: bool) -> Tree:
    root = output.tree(
        output.styled(
            f"{tenant.name}  ",
            ("Ready", "green") if tenant.ready else ("NotReady", "red"),
            *((" ", ("Suspended", "yellow")) if tenant.suspended else ()),
            f"  {shortened(tenant.owners, in_order=True)}  {tenant.network}",
        )
    )
    for line in _troubles(tenant.conditions):
        root.add(line)
    for namespace in tenant.namespaces:
        _fill(root.add(output.styled(_title(namespace))), namespace, blocks=blocks)
    return root


def _troubles(conditions: Sequence[ConditionView]) -> list[Text]:
    """Return a line for each condition that the first line does not show."""
    if not conditions:
        return [output.styled(("the operator has not dealt with it yet", "yellow"))]
    ready = [each for each in conditions if each.type == reasons.READY]
    others = [each for each in conditions if each.type not in _REPEATS | _WARNINGS | {reasons.READY}]
    wrong = [
        each for each in (*ready, *others) if each.status is not ConditionStatus.TRUE and each.reason not in _ORDINARY
    ]
    warned = [each for each in conditions if each.type in _WARNINGS and each.status is ConditionStatus.TRUE]
    return [
        *(output.styled((f"{each.type} is {each.status}: {each.reason}: {each.message}", "red")) for each in wrong),
        *(output.styled((f"{each.type}: {each.message}", "yellow")) for each in warned),
    ]


def _fill(branch: Tree, namespace: NamespaceView, *, blocks: bool) -> None:
    """Add to a namespace's branch its conditions, the bars of its quota, and the namespaces below it."""
    if not namespace.bound:
        branch.add(output.styled(("its Subnamespace is not there", "yellow")))
    elif namespace.subnamespace and namespace.conditions is not None:
        for line in _troubles(namespace.conditions):
            branch.add(line)
    texts = [(use.key, use.used, use.hard) for use in namespace.quota]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for use in namespace.quota:
        branch.add(_use(use, widths, blocks=blocks))
    for child in namespace.children:
        _fill(branch.add(output.styled(_title(child))), child, blocks=blocks)


def _title(namespace: NamespaceView) -> str:
    state = "not yours to look into" if namespace.is_closed else namespace.phase
    place = f"{namespace.name}  {state}" if namespace.name else "no namespace yet"
    if namespace.subnamespace:
        head = f"{namespace.subnamespace}  {namespace.kind.capitalize()}  {place}"
    else:
        head = f"namespace {place}"
    return head if namespace.quota or not namespace.name or namespace.is_closed else f"{head}  no quota"


def _use(use: Use, widths: Sequence[int], *, blocks: bool) -> Text:
    share = _share(use)
    full = min(BAR, int(share * BAR))
    # A little is not nothing.
    full = max(full, 1) if share > 0 else full
    block, space = ("█", "░") if blocks else ("#", "-")
    color = "red" if share >= _FULL else "yellow" if share >= _NEARLY else "green"
    # Rounded down: 100 % is only of what is full.
    return output.styled(
        f"{use.key.ljust(widths[0])}  [",
        (block * full + space * (BAR - full), color),
        f"]  {use.used.rjust(widths[1])} / {use.hard.ljust(widths[2])}  {int(share * 100):3d} %",
    )


def _share(use: Use) -> float:
    try:
        used, hard = quantity.parse(use.used), quantity.parse(use.hard)
    except InputError:
        return 0.0
    if hard == 0:
        return _FULL if used else 0.0
    return float(used / hard)
