"""`tenantry tree`: the tenants, their namespaces, and how much of their quotas is used.

acme  Ready  User:ada, Group:devs  Isolated
└── namespace acme  Active
    ├── pods          [██░░░░░░░░]  10 / 50   20 %
    ├── requests.cpu  [█████████░]  3.5 / 4   87 %
    ├── VirtualControlPlane shop  Awake  requests.cpu 50m
    ├── VirtualControlPlane test  Asleep
    └── web  Workspace  web-d5903d54abcc14f1  Active
        └── requests.cpu  [█░░░░░░░░░]  200m / 2   10 %
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from tenantry.api import reasons
from tenantry.api.errors import InputError
from tenantry.api.model import ConditionStatus
from tenantry.api.tenantresourcequota import ClaimKind
from tenantry.api.wording import shortened
from tenantry.cli import output, place, session
from tenantry.cli.completion import candidates
from tenantry.cli.paths import TENANT_OR_PATH
from tenantry.cli.target import Target, takes_target
from tenantry.world import quantity

if TYPE_CHECKING:
    from rich.text import Text
    from rich.tree import Tree

    from tenantry.kube.client import Client
    from tenantry.views.objects import KeyUsage
    from tenantry.views.tree import ConditionView, NamespaceView, TenantView

BAR = 10
_FULL = 1.0
_NEARLY = 0.9

_REPEATS = {reasons.CONTROL_PLANE_READY, reasons.STALLED, reasons.RECONCILING, reasons.SUSPENDED}
"""Conditions that repeat Ready or the first line."""

_WARNINGS = {reasons.EXPIRING}
"""Conditions that deserve a line when they are True."""

_ORDINARY = {reasons.KERNEL_SHARED}
"""Reasons of conditions that are False although nothing is wrong; only `describe` shows them."""


@click.command()
@takes_target
@click.argument("names", nargs=-1, metavar="[TENANT]...", type=TENANT_OR_PATH, shell_complete=candidates.tenants)
@place.takes_namespace("Draw only this namespace and the namespaces below it; needs an owner's rights there.")
@output.output_option("json")
def tree(target: Target, *, names: tuple[str, ...], namespace: str, form: str | None) -> None:
    r"""Draw all tenants, or the named ones: their namespaces, and the use of each namespace's share of the quota.

    If you may not list tenants, the tree begins at the namespace of your context.

    \b
      tenantry tree
      tenantry tree acme -o json
      tenantry tree acme/web
      tenantry tree -n web-03b858802008a32a
    """
    if names and namespace:
        raise InputError("give either names of tenants or --namespace, not both")
    # A tenant's core namespace has its name.
    start = namespace or (names[0] if len(names) == 1 else "" if names else place.context_namespace(target))

    async def read(client: Client) -> tuple[list[TenantView], NamespaceView | None]:
        from tenantry.views import tree as view

        return await view.read(client, names, start, only=bool(namespace))

    tenants, root = session.run(target, read)
    if form:
        output.write(output.to_json({"tenants": tenants} if root is None else {"namespaces": [root]}))
        return
    blocks = output.has_blocks(sys.stdout.encoding)
    if root is not None:
        output.show(draw_namespace(root, blocks=blocks))
        return
    if not tenants:
        output.talk("no tenants; create one with `tenantry tenant create`")
    output.show(*draw(tenants, blocks=blocks))


# -- drawing --------------------------------------------------------------------------------------


def draw(tenants: Sequence[TenantView], *, blocks: bool) -> list[Tree]:
    """Return the tree of each tenant; its bars are blocks, or ASCII."""
    return [_tenant(each, blocks=blocks) for each in tenants]


def draw_namespace(namespace: NamespaceView, *, blocks: bool) -> Tree:
    """Return a tree that begins at a namespace."""
    root = output.tree(_title(namespace))
    _fill(root, namespace, blocks=blocks)
    return root


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
    for line in _claims(namespace):
        branch.add(output.styled(line))
    for child in namespace.children:
        _fill(branch.add(output.styled(_title(child))), child, blocks=blocks)


def _claims(namespace: NamespaceView) -> list[str]:
    """Return a line for each claim and each control plane; one that sleeps claims nothing."""
    phases = {each.name: each.phase.value for each in namespace.planes}
    lines: list[str] = []
    for claim in namespace.claims:
        phase = phases.pop(claim.claim, "") if claim.kind is ClaimKind.VIRTUAL_CONTROL_PLANE else ""
        amounts = ", ".join(f"{key} {amount}" for key, amount in sorted(claim.assigned.items()))
        lines.append("  ".join(filter(None, (f"{claim.kind} {claim.claim}", phase, amounts))))
    left = [f"{ClaimKind.VIRTUAL_CONTROL_PLANE} {name}  {phase}" for name, phase in phases.items()]
    return [*lines, *left]


def _title(namespace: NamespaceView) -> str:
    state = "not yours to look into" if namespace.is_closed else namespace.phase
    place = f"{namespace.name}  {state}" if namespace.name else "no namespace yet"
    if namespace.subnamespace:
        head = f"{namespace.subnamespace}  {namespace.kind.capitalize()}  {place}"
    else:
        head = f"namespace {place}"
    head += f"  control plane {namespace.control_plane}" if namespace.control_plane else ""
    return head if namespace.quota or not namespace.name or namespace.is_closed else f"{head}  no quota"


def _use(use: KeyUsage, widths: Sequence[int], *, blocks: bool) -> Text:
    share = _share(use)
    full = min(BAR, int(share * BAR))
    # Any use shows at least one block.
    full = max(full, 1) if share > 0 else full
    block, space = ("█", "░") if blocks else ("#", "-")
    color = "red" if share >= _FULL else "yellow" if share >= _NEARLY else "green"
    # Rounded down: only a full quota shows 100 %.
    return output.styled(
        f"{use.key.ljust(widths[0])}  [",
        (block * full + space * (BAR - full), color),
        f"]  {use.used.rjust(widths[1])} / {use.hard.ljust(widths[2])}  {int(share * 100):3d} %",
    )


def _share(use: KeyUsage) -> float:
    try:
        used, hard = quantity.parse(use.used), quantity.parse(use.hard)
    except InputError:
        return 0.0
    if hard == 0:
        return _FULL if used else 0.0
    return float(used / hard)
