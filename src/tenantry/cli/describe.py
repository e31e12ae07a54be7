"""`tenantry describe`: everything that a person asks about one tenant, on one page."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

import click

from tenantry.api.errors import Forbidden, InputError, NotFound
from tenantry.cli import complete, kinds, output, place, session
from tenantry.cli.kinds import Asked
from tenantry.cli.target import Target, takes_target

if TYPE_CHECKING:
    from tenantry.api.model import KubernetesObject
    from tenantry.cli.output import Part
    from tenantry.cli.page import Facts
    from tenantry.kube.client import Client

    K = TypeVar("K", bound=KubernetesObject)


@click.command()
@takes_target
@click.argument(
    "words", nargs=-1, required=True, metavar="KIND NAME... | KIND/NAME...", shell_complete=complete.objects
)
@place.namespace_option
def describe(target: Target, *, words: tuple[str, ...], namespace: str) -> None:
    r"""Print what a tenant should be, how it is, what it has, who gets in, and what happened lately.

    \b
      tenantry describe tenant acme
      tenantry describe subnamespace web -n acme
      tenantry describe trq acme
    """
    asked = kinds.parse(words)
    for each in asked:
        if not each.names:
            plural = each.kind.resource.plural
            raise InputError(f"name what to describe, as in `tenantry describe {plural} NAME`; see `{each.listing}`")
    asked = place.settle(target, asked, namespace)
    now = datetime.now(UTC)

    async def work(client: Client) -> list[list[Part]]:
        return [await _page(client, each, name, now) for each in asked for name in each.names]

    output.show(*output.paragraphs(session.run(target, work)))


async def _page(client: Client, asked: Asked, name: str, now: datetime) -> list[Part]:
    from tenantry.api.subnamespace import Subnamespace
    from tenantry.api.tenant import Tenant
    from tenantry.api.tenantresourcequota import TenantResourceQuota
    from tenantry.cli import page, seen, treepages

    if asked.kind is Tenant:
        return page.lines(await gather(client, name), now)
    value = await client.get(asked.kind, name, asked.namespace)
    selector = f"regarding.kind={asked.kind.resource.kind},regarding.name={name}"
    events = await _list(client, seen.EventSeen, namespace=asked.namespace, selectors={"fieldSelector": selector})
    if isinstance(value, Subnamespace):
        return treepages.subnamespace(value, events, now)
    if isinstance(value, TenantResourceQuota):
        return treepages.quota(value, events, now)
    return [*output.to_yaml([value]).splitlines()]


async def gather(client: Client, name: str) -> Facts:
    """Read everything about a tenant at once; what the caller may not read is None.

    Raises:
        NotFound: There is no such tenant.
    """
    from tenantry.api.kubernetes import LimitRange, RoleBinding
    from tenantry.api.subnamespace import Subnamespace
    from tenantry.api.tenant import Tenant
    from tenantry.cli import page, seen
    from tenantry.controllers.tenant import clusternetworkpolicy

    tenant = await client.get(Tenant, name)
    about = {"fieldSelector": f"regarding.kind={tenant.resource.kind},regarding.name={name}"}
    one = {"fieldSelector": f"metadata.name={name}"}
    policy = {"fieldSelector": f"metadata.name={clusternetworkpolicy.name_of(name)}"}
    # Two by two, because a type checker follows gather up to six.
    (namespaces, quotas, limits, policies, below), (above, bindings, pods, events) = await asyncio.gather(
        asyncio.gather(
            _list(client, seen.NamespaceSeen, selectors=one),
            _list(client, seen.QuotaSeen, namespace=name),
            _list(client, LimitRange, namespace=name),
            _list(client, seen.PolicySeen, namespace=name),
            _list(client, Subnamespace, namespace=name),
        ),
        asyncio.gather(
            _list(client, seen.ClusterPolicySeen, selectors=policy),
            _list(client, RoleBinding, namespace=name),
            seen.count_pods(client, name),
            _list(client, seen.EventSeen, selectors=about),
        ),
    )
    return page.Facts(
        tenant=tenant,
        namespace=next(iter(namespaces or ()), None),
        quotas=quotas,
        limits=limits,
        policies=policies,
        cluster_policies=above,
        bindings=bindings,
        pods=pods,
        subnamespaces=below,
        events=events,
    )


async def _list(
    client: Client, kind: type[K], *, namespace: str = "", selectors: dict[str, str] | None = None
) -> list[K] | None:
    try:
        return await client.list(kind, namespace=namespace, selectors=selectors)
    except NotFound:
        return []  # the cluster does not have the kind
    except Forbidden:
        return None
