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

import click
import msgspec

from tenantry.api import marks, reasons
from tenantry.api.errors import InputError
from tenantry.api.model import Condition, ConditionStatus
from tenantry.world import quantity

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


class Style(msgspec.Struct, frozen=True):
    """What the terminal can show; colour repeats what the words say and never says anything alone."""

    draws: bool
    color: bool

    @property
    def branch(self) -> str:
        """Return the beginning of a line that has siblings below."""
        return "├── " if self.draws else "|-- "

    @property
    def last(self) -> str:
        """Return the beginning of the last line."""
        return "└── " if self.draws else "`-- "

    @property
    def trunk(self) -> str:
        """Return what stands before the children of a line that has siblings below."""
        return "│   " if self.draws else "|   "

    def paint(self, text: str, color: str) -> str:
        """Return text in a colour, where there are colours."""
        return click.style(text, fg=color) if self.color else text


def draw(tenants: Sequence[TenantView], style: Style) -> list[str]:
    """Return the lines of the tree."""
    lines: list[str] = []
    for tenant in tenants:
        lines.append(_head(tenant, style))
        below = [[line] for line in _troubles(tenant.conditions, style)]
        below += [_namespace(namespace, style) for namespace in tenant.namespaces]
        lines += _indent(below, style)
    return lines


def draw_namespaces(namespaces: Sequence[NamespaceView], style: Style) -> list[str]:
    """Return the lines of trees that begin at namespaces."""
    return [line for namespace in namespaces for line in _namespace(namespace, style)]


def conditions_view(given: Iterable[Condition]) -> tuple[ConditionView, ...]:
    """Return what conditions say."""
    return tuple(
        ConditionView(type=each.type, status=each.status, reason=each.reason, message=each.message) for each in given
    )


def _head(tenant: TenantView, style: Style) -> str:
    state = style.paint("Ready", "green") if tenant.ready else style.paint("NotReady", "red")
    if tenant.suspended:
        state += " " + style.paint("Suspended", "yellow")
    return f"{tenant.name}  {state}  {_few(tenant.owners)}  {tenant.network}"


def _troubles(conditions: Sequence[ConditionView], style: Style) -> list[str]:
    """Return a line for each thing that a person should know beyond the first line."""
    if not conditions:
        return [style.paint("the operator has not dealt with it yet", "yellow")]
    ready = [each for each in conditions if each.type == reasons.READY]
    others = [each for each in conditions if each.type not in _REPEATS | _WARNINGS | {reasons.READY}]
    wrong = [
        each for each in (*ready, *others) if each.status is not ConditionStatus.TRUE and each.reason not in _ORDINARY
    ]
    warned = [each for each in conditions if each.type in _WARNINGS and each.status is ConditionStatus.TRUE]
    return [
        *(style.paint(f"{each.type} is {each.status}: {each.reason}: {each.message}", "red") for each in wrong),
        *(style.paint(f"{each.type}: {each.message}", "yellow") for each in warned),
    ]


def _namespace(namespace: NamespaceView, style: Style) -> list[str]:
    troubles: list[str] = []
    if not namespace.bound:
        troubles = [style.paint("its Subnamespace is not there", "yellow")]
    elif namespace.subnamespace and namespace.conditions is not None:
        troubles = _troubles(namespace.conditions, style)
    bars: list[str] = []
    if namespace.quota:
        columns = zip(*(_texts(use) for use in namespace.quota), strict=True)
        widths = [max(len(text) for text in column) for column in columns]
        bars = [_use(use, widths, style) for use in namespace.quota]
    below = [[line] for line in (*troubles, *bars)]
    below += [_namespace(child, style) for child in namespace.children]
    return [_title(namespace), *_indent(below, style)]


def _title(namespace: NamespaceView) -> str:
    state = "not yours to look into" if namespace.is_closed else namespace.phase
    place = f"{namespace.name}  {state}" if namespace.name else "no namespace yet"
    if namespace.subnamespace:
        head = f"{namespace.subnamespace}  {namespace.kind.capitalize()}  {place}"
    else:
        head = f"namespace {place}"
    return head if namespace.quota or not namespace.name or namespace.is_closed else f"{head}  no quota"


def _texts(use: Use) -> tuple[str, str, str]:
    return use.key, use.used, use.hard


def _use(use: Use, widths: Sequence[int], style: Style) -> str:
    share = _share(use)
    full = min(BAR, int(share * BAR))
    # A little is not nothing.
    full = max(full, 1) if share > 0 else full
    block, space = ("█", "░") if style.draws else ("#", "-")
    bar = block * full + space * (BAR - full)
    color = "red" if share >= _FULL else "yellow" if share >= _NEARLY else "green"
    key, used, hard = (text.ljust(width) for text, width in zip(_texts(use), widths, strict=True))
    # Rounded down: 100 % is said only of what is full.
    return f"{key}  [{style.paint(bar, color)}]  {used.strip().rjust(widths[1])} / {hard}  {int(share * 100):3d} %"


def _share(use: Use) -> float:
    try:
        used, hard = quantity.parse(use.used), quantity.parse(use.hard)
    except InputError:
        return 0.0
    if hard == 0:
        return _FULL if used else 0.0
    return float(used / hard)


def _indent(groups: Sequence[Sequence[str]], style: Style) -> list[str]:
    lines: list[str] = []
    for index, group in enumerate(groups):
        is_last = index == len(groups) - 1
        lines.append((style.last if is_last else style.branch) + group[0])
        lines += [("    " if is_last else style.trunk) + line for line in group[1:]]
    return lines


def _few(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - 3} more" if len(listed) > 3 else ""  # noqa: PLR2004 - as everywhere
    return ", ".join(listed[:3]) + more
