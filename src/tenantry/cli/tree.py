"""`tenantry tree`: the tenants, their namespaces, and how much of their quotas is used."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from tenantry.api import marks, reasons
from tenantry.api.errors import Forbidden, InputError
from tenantry.api.model import ConditionStatus
from tenantry.api.owner import Owner
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.cli import complete, forest, output, place, session
from tenantry.cli.forest import NamespaceView, TenantView, Use, conditions_view
from tenantry.cli.seen import NamespaceSeen, QuotaSeen, tenants_named
from tenantry.cli.target import Target, takes_target
from tenantry.engine.conditions import find

if TYPE_CHECKING:
    from tenantry.kube.client import Client

OURS = {"labelSelector": f"{marks.MANAGED_BY}={marks.MANAGER}"}


@click.command()
@takes_target
@click.argument("names", nargs=-1, metavar="[TENANT]...", shell_complete=complete.tenants)
@place.takes_namespace("Only this namespace and what is below it. Needs an owner's rights there, and no others.")
@output.output_option("json")
def tree(target: Target, *, names: tuple[str, ...], namespace: str, form: str | None) -> None:
    r"""Draw all tenants, or those named: their namespaces and what is used of the share of each.

    Whoever may not list tenants gets the tree below the namespace of their context.

    \b
      tenantry tree
      tenantry tree acme -o json
      tenantry tree -n web-03b858802008a32a
    """
    if names and namespace:
        raise InputError("give either names of tenants or --namespace, not both")
    # A tenant's core namespace has its name.
    start = namespace or (names[0] if len(names) == 1 else "" if names else place.context_namespace(target))
    tenants, namespaces = session.run(target, lambda client: _read(client, names, start, only=bool(namespace)))
    if form:
        output.write(output.to_json({"tenants": tenants} if namespaces is None else {"namespaces": namespaces}))
        return
    blocks = output.has_blocks(sys.stdout.encoding)
    if namespaces is not None:
        output.show(*forest.draw_namespaces(namespaces, blocks=blocks))
        return
    if not tenants:
        output.talk("no tenants; make one with `tenantry tenant create`")
    output.show(*forest.draw(tenants, blocks=blocks))


async def _read(
    client: Client, names: tuple[str, ...], start: str, *, only: bool
) -> tuple[list[TenantView], list[NamespaceView] | None]:
    """Return tenants; or, where only a namespace was asked for or nothing else may be read, the tree below that."""
    from tenantry.cli.walk import walk

    if not only:
        try:
            return await read(client, names), None
        except Forbidden:
            if not start:
                raise
    return [], [await walk(client, start)]


async def read(client: Client, names: tuple[str, ...]) -> list[TenantView]:
    """Return the tenants of these names, all where none are given, sorted by name.

    Raises:
        NotFound: One of the names is no tenant's.
    """
    tenants = await tenants_named(client, names)
    namespaces, quotas, subnamespaces = await asyncio.gather(
        client.list(NamespaceSeen, selectors=OURS),
        client.list(QuotaSeen, selectors=OURS),
        client.list(Subnamespace),
    )
    return assemble(tenants, namespaces, quotas, subnamespaces)


def assemble(
    tenants: Sequence[Tenant],
    namespaces: Sequence[NamespaceSeen],
    quotas: Sequence[QuotaSeen],
    subnamespaces: Sequence[Subnamespace],
) -> list[TenantView]:
    """Return the trees of these tenants, sorted by name.

    Args:
        tenants: Those to show.
        namespaces: All that are Tenantry's.
        quotas: Tenantry's own.
        subnamespaces: All of them.
    """
    owned: dict[str, list[NamespaceSeen]] = {}
    for namespace in namespaces:
        owned.setdefault(namespace.metadata.labels.get(marks.TENANT_UID, ""), []).append(namespace)
    used = {quota.metadata.namespace: quota.uses() for quota in quotas}
    inside: dict[str, list[Subnamespace]] = {}
    for each in subnamespaces:
        inside.setdefault(each.metadata.namespace, []).append(each)
    return [
        view_of(tenant, _Tree(owned.get(tenant.metadata.uid, []), used, inside).roots())
        for tenant in sorted(tenants, key=lambda each: each.key)
    ]


class _Tree:
    """The namespaces of one tenant.

    Args:
        namespaces: All of them.
        used: What is used of each namespace's share.
        inside: The Subnamespaces in each namespace.
    """

    def __init__(
        self,
        namespaces: Sequence[NamespaceSeen],
        used: Mapping[str, tuple[Use, ...]],
        inside: Mapping[str, Sequence[Subnamespace]],
    ) -> None:
        self._used = used
        self._inside = inside
        self._left = {each.metadata.name: each for each in sorted(namespaces, key=lambda each: each.key)}
        self._below: dict[str, list[NamespaceSeen]] = {}
        for each in self._left.values():
            self._below.setdefault(each.metadata.labels.get(marks.PARENT, ""), []).append(each)

    def roots(self) -> tuple[NamespaceView, ...]:
        """Return the core namespace with all below it, and whatever hangs nowhere."""
        found = [self._view(each, None) for each in self._below.get("", ())]
        while self._left:
            # A parent that is gone, or labels that run in a circle: shown at the top rather than not at all.
            found.append(self._view(next(iter(self._left.values())), None))
        return tuple(found)

    def _view(self, namespace: NamespaceSeen, bound: Subnamespace | None) -> NamespaceView:
        meta = namespace.metadata
        self._left.pop(meta.name, None)
        subnamespaces = {each.metadata.uid: each for each in self._inside.get(meta.name, ())}
        children: list[NamespaceView] = []
        for each in self._below.get(meta.name, ()):
            uid = each.metadata.labels.get(marks.SUBNAMESPACE_UID, "")
            if each.metadata.name in self._left:
                children.append(self._view(each, subnamespaces.pop(uid, None)))
        children += [_pending(each) for each in subnamespaces.values()]
        subnamespace = meta.labels.get(marks.SUBNAMESPACE, "")
        return NamespaceView(
            name=meta.name,
            phase=namespace.status.phase,
            kind=meta.labels.get(marks.KIND, marks.KIND_CORE),
            subnamespace=subnamespace,
            bound=bound is not None or not subnamespace,
            expires_at=bound.spec.expires_at if bound is not None else "",
            quota=self._used.get(meta.name, ()),
            conditions=conditions_view(bound.status.conditions) if bound is not None else (),
            children=tuple(sorted(children, key=lambda child: child.subnamespace)),
        )


def _pending(value: Subnamespace) -> NamespaceView:
    return NamespaceView(
        name="",
        phase="",
        kind=value.spec.mode.value.lower(),
        subnamespace=value.metadata.name,
        expires_at=value.spec.expires_at,
        conditions=conditions_view(value.status.conditions),
    )


def view_of(tenant: Tenant, namespaces: tuple[NamespaceView, ...]) -> TenantView:
    """Return what the tree shows of a tenant. One whose newest spec was not dealt with yet is not ready."""
    current = tenant.status.observed_generation >= tenant.metadata.generation
    ready = find(tenant.status.conditions, reasons.READY)
    return TenantView(
        name=tenant.metadata.name,
        ready=current and ready is not None and ready.status is ConditionStatus.TRUE,
        suspended=tenant.spec.suspended,
        network=tenant.spec.isolation.network,
        owners=tuple(owner_text(owner) for owner in tenant.spec.owners),
        conditions=conditions_view(tenant.status.conditions),
        namespaces=namespaces,
    )


def owner_text(owner: Owner) -> str:
    """Return an owner as `--owner` takes it."""
    name = f"{owner.namespace}/{owner.name}" if owner.namespace else owner.name
    return f"{owner.kind}:{name}"
