"""`tenantry explain quota`: whether more fits into a namespace, which ancestor is short, and what to raise."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from tenantry.api import marks
from tenantry.api.errors import Forbidden, InputError, NotFound
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.api.tenantresourcequota import TenantResourceQuota
from tenantry.cli import complete, flags, output, session
from tenantry.cli.delete import listed
from tenantry.cli.seen import NamespaceSeen, QuotaSeen
from tenantry.cli.target import Target, takes_target
from tenantry.world import quota as keys
from tenantry.world.explain.quota import Answer, Place, Raise
from tenantry.world.explain.quota import explain as compute

if TYPE_CHECKING:
    from tenantry.kube.client import Client

DOES_NOT_FIT = 1
"""The exit code when something that is wanted does not fit as things are."""

DEEPEST = 1000
"""No tree is deeper; labels that run in a circle are."""


@click.command()
@takes_target
@click.argument("place", metavar="TENANT/NAMESPACE", shell_complete=complete.tenants)
@click.option(
    "--want",
    "wants",
    multiple=True,
    required=True,
    metavar="KEY=QUANTITY,...",
    help="How much more, as in cpu=2,pods=5.",
)
@output.output_option("json")
def quota(target: Target, *, place: str, wants: tuple[str, ...], form: str | None) -> None:
    r"""Tell whether more fits into the quota of a tenant's namespace, and if not, which ancestor is short by how much.

    NAMESPACE may also be the name of a Subnamespace, where the tenant has only one of it; TENANT alone means its core
    namespace. An owner is told of the namespaces that are theirs. Exit code: 0 all of it fits as things are, 1
    something does not, more than 1 an error.

    \b
      tenantry explain quota acme/web --want cpu=2,memory=4Gi
    """
    tenant, slash, namespace = place.partition("/")
    if not tenant or (slash and not namespace):
        raise InputError(f"{place!r} must be TENANT/NAMESPACE, as in acme/web-03b858802008a32a")
    want = keys.normal(flags.parse_quota(wants, "--want"))
    path = session.run(target, lambda client: read_path(client, tenant, namespace or tenant))
    answers = compute(tenant, path, want)
    if form:
        output.write(output.to_json({"tenant": tenant, "namespace": path[0].namespace, "keys": answers}))
    else:
        output.write_lines(lines(path, answers))
    if not all(answer.fits for answer in answers):
        sys.exit(DOES_NOT_FIT)


async def read_path(client: Client, tenant: str, name: str) -> list[Place]:
    """Return a namespace of a tenant and all above it, the core namespace last.

    Args:
        client: Of the cluster.
        tenant: The tenant's name.
        name: The namespace's, or that of the only Subnamespace that is called so.

    Raises:
        NotFound: There is no such tenant or namespace.
        InputError: Several Subnamespaces have that name.
    """
    try:
        owner, found = await asyncio.gather(
            client.get(Tenant, tenant),
            client.list(NamespaceSeen, selectors={"labelSelector": f"{marks.TENANT}={tenant}"}),
        )
    except Forbidden:
        return await _places(client, None, await _climb(client, name))
    namespaces = {each.metadata.name: each for each in found if _uid(each) == owner.metadata.uid}
    chain: list[NamespaceSeen] = []
    at = _choose(tenant, name, namespaces)
    while at in namespaces and len(chain) < DEEPEST:
        chain.append(namespaces[at])
        at = namespaces[at].metadata.labels.get(marks.PARENT, "")
    if not chain or chain[-1].metadata.name != tenant:
        raise NotFound(f"the namespace {name!r} does not hang below the core namespace {tenant!r}: one between is gone")
    return await _places(client, owner, chain)


async def _places(client: Client, tenant: Tenant | None, chain: Sequence[NamespaceSeen]) -> list[Place]:
    held = await _held(client, chain)
    return list(await asyncio.gather(*(_place(client, tenant, each, held) for each in chain)))


async def _held(client: Client, chain: Sequence[NamespaceSeen]) -> dict[str, list[Mapping[str, str]]]:
    """Return what Subnamespaces hold by their parent, as far as the asker may read that and the status lists them."""
    try:
        quota = await client.get(TenantResourceQuota, chain[0].metadata.labels.get(marks.TENANT, ""))
    except (Forbidden, NotFound):
        return {}
    held: dict[str, list[Mapping[str, str]]] = {}
    for share in quota.status.tree:
        held.setdefault(share.parent, []).append(share.assigned)
    return held


async def _climb(client: Client, name: str) -> list[NamespaceSeen]:
    """Return a namespace and those above it, as far as an owner may look.

    Raises:
        Forbidden: Not even at the first.
    """
    chain = [await client.get(NamespaceSeen, name)]
    while (parent := chain[-1].metadata.labels.get(marks.PARENT, "")) and len(chain) < DEEPEST:
        try:
            chain.append(await client.get(NamespaceSeen, parent))
        except (Forbidden, NotFound):
            break
    return chain


def _uid(namespace: NamespaceSeen) -> str:
    return namespace.metadata.labels.get(marks.TENANT_UID, "")


def _choose(tenant: str, name: str, namespaces: dict[str, NamespaceSeen]) -> str:
    if name in namespaces:
        return name
    called = sorted(
        each.metadata.name for each in namespaces.values() if each.metadata.labels.get(marks.SUBNAMESPACE) == name
    )
    if not called:
        raise NotFound(f"the tenant {tenant!r} has no namespace {name!r}; `tenantry tree {tenant}` draws those it has")
    if len(called) > 1:
        raise InputError(f"the tenant {tenant!r} has several subnamespaces {name!r}: say which of {listed(called)}")
    return called[0]


async def _place(
    client: Client, tenant: Tenant | None, namespace: NamespaceSeen, held: Mapping[str, Sequence[Mapping[str, str]]]
) -> Place:
    name, labels = namespace.metadata.name, namespace.metadata.labels
    subnamespace, parent = labels.get(marks.SUBNAMESPACE, ""), labels.get(marks.PARENT, "")
    ours = {"labelSelector": f"{marks.MANAGED_BY}={marks.MANAGER}"}
    quotas = await client.list(QuotaSeen, namespace=name, selectors=ours)
    asked = tenant.spec.quota.hard if tenant is not None else None
    if subnamespace:
        try:
            asked = (await client.get(Subnamespace, subnamespace, parent)).spec.quota.hard
        except NotFound:
            asked = {}  # its end has begun
        except Forbidden:
            asked = None  # the parent's business
    return Place(
        namespace=name,
        subnamespace=subnamespace,
        parent=parent,
        asked=asked,
        hard={key: amount for each in quotas for key, amount in each.status.hard.items()},
        used={key: amount for each in quotas for key, amount in each.status.used.items()},
        held=held.get(name, ()),
    )


# -- printing -------------------------------------------------------------------------------------


def lines(path: Sequence[Place], answers: Sequence[Answer]) -> list[str]:
    """Return what is said of each key: a table of the namespaces that were asked, and the verdict."""
    headers = ("NAMESPACE", "KEY", "HARD", "USED", "FREE", "NEEDED", "SHORT")
    rows = [
        (level.namespace, answer.key, level.hard, level.used, level.free, level.needed, level.short)
        for answer in answers
        for level in answer.levels
    ]
    table = [*output.table(headers, rows), ""] if rows else []
    return [*table, *(line for answer in answers for line in verdict(path, answer))]


def verdict(path: Sequence[Place], answer: Answer) -> list[str]:
    """Return what is said of one key: whether it fits, and what to raise where it does not."""
    where = path[0].namespace
    if not answer.is_limited:
        return [f"{answer.key}: {answer.want} fits: the tenant's quota does not limit it"]
    if answer.fits:
        return [f"{answer.key}: {answer.want} fits into {where!r}, which has {answer.fits_now} free"]
    above = "" if len(path) == 1 else f", {answer.could_fit} if all above gave what they have free"
    first = f"{answer.key}: {answer.want} does not fit into {where!r}: {answer.fits_now} would{above}; raise"
    return [first, *(f"  {_told(each)}" for each in answer.raises)]


def _told(each: Raise) -> str:
    what = f"Subnamespace {each.name!r} in {each.namespace!r}" if each.namespace else f"Tenant {each.name!r}"
    how = f"from {each.before} to {each.after}" if each.after else f"by {each.by}"
    return f"spec.quota.hard[{each.key}] of {what} {how}"
