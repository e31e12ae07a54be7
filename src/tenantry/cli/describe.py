"""`tenantry describe`: everything that a person asks about one tenant, on one page."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

import click

from tenantry.api.errors import Forbidden, InputError, NotFound
from tenantry.cli import complete, kinds, output, session
from tenantry.cli.target import Target, takes_target

if TYPE_CHECKING:
    from tenantry.api.model import KubernetesObject
    from tenantry.cli.page import Facts
    from tenantry.kube.client import Client

    K = TypeVar("K", bound=KubernetesObject)


@click.command()
@takes_target
@click.argument(
    "words", nargs=-1, required=True, metavar="KIND NAME... | KIND/NAME...", shell_complete=complete.objects
)
def describe(target: Target, *, words: tuple[str, ...]) -> None:
    """Print what a tenant should be, how it is, what it has, who gets in, and what happened lately."""
    from tenantry.cli import page

    asked = kinds.parse(words)
    for kind, names in asked:
        if not names:
            plural = kind.resource.plural
            raise InputError(
                f"name what to describe, as in `tenantry describe {plural} NAME`; see `tenantry get {plural}`"
            )

    async def work(client: Client) -> list[Facts]:
        return [await gather(client, name) for _, names in asked for name in names]

    now = datetime.now(UTC)
    for index, facts in enumerate(session.run(target, work)):
        output.write_lines([""] if index else [])
        output.write_lines(page.lines(facts, now))


async def gather(client: Client, name: str) -> Facts:
    """Read everything about a tenant at once; what the caller may not read is None.

    Raises:
        NotFound: There is no such tenant.
    """
    from tenantry.api.kubernetes import LimitRange, RoleBinding
    from tenantry.api.tenant import Tenant
    from tenantry.cli import page, seen
    from tenantry.controllers.tenant.desired import cluster_policy_name

    tenant = await client.get(Tenant, name)
    about = {"fieldSelector": f"regarding.kind={tenant.resource.kind},regarding.name={name}"}
    one = {"fieldSelector": f"metadata.name={name}"}
    policy = {"fieldSelector": f"metadata.name={cluster_policy_name(name)}"}
    # Two by two, because a type checker follows gather up to six.
    (namespaces, quotas, limits, policies), (above, bindings, pods, events) = await asyncio.gather(
        asyncio.gather(
            _list(client, seen.NamespaceSeen, selectors=one),
            _list(client, seen.QuotaSeen, namespace=name),
            _list(client, LimitRange, namespace=name),
            _list(client, seen.PolicySeen, namespace=name),
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
