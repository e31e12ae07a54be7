"""Whether more fits into a namespace's quota, and which quotas to raise: reads the namespaces above it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from tenantry.api import marks
from tenantry.api.errors import Forbidden, InputError, NotFound
from tenantry.api.kubernetes import Namespace
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.api.tenantresourcequota import TenantResourceQuota
from tenantry.api.wording import shortened
from tenantry.engine.reader import ObjectReader
from tenantry.engine.tasks import all_of
from tenantry.views.objects import ResourceQuotaWithUsage
from tenantry.views.snapshot import MANAGED
from tenantry.world.explain.quota import PathNamespace, QuotaAnswer, QuotaRaise
from tenantry.world.explain.quota import explain as compute

MAX_DEPTH = 1000
"""No tree is deeper: more levels mean that the parent labels form a cycle."""


class QuotaExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """Whether more fits into the quota of a namespace.

    Args:
        tenant: The tenant's name.
        namespace: The namespace's name.
        keys: An answer for each quota key, sorted.
        is_core: The namespace is the tenant's core namespace, or nothing above it may be read.
    """

    tenant: str
    namespace: str
    keys: list[QuotaAnswer]
    is_core: bool

    @property
    def fits(self) -> bool:
        """Return whether all of it fits."""
        return all(answer.fits for answer in self.keys)

    def verdict(self, answer: QuotaAnswer) -> list[str]:
        """Return the sentence about one key, and a line for each quota to raise if it does not fit."""
        key = f"{answer.key}: {answer.want}"
        if not answer.is_limited:
            return [f"{key} fits: the tenant's quota does not limit it"]
        if answer.fits:
            return [f"{key} fits into {self.namespace!r}, which has {answer.fits_now} free"]
        above = "" if self.is_core else f", {answer.could_fit} with all that is free above"
        first = f"{key} does not fit into {self.namespace!r}: {answer.fits_now} free{above}; raise"
        return [first, *(f"  {_raise(each)}" for each in answer.raises)]


def _raise(each: QuotaRaise) -> str:
    what = f"Subnamespace {each.name!r} in {each.namespace!r}" if each.namespace else f"Tenant {each.name!r}"
    how = f"from {each.before} to {each.after}" if each.after else f"by {each.by}"
    return f"spec.quota.hard[{each.key}] of {what} {how}"


def conclude(tenant: str, path: Sequence[PathNamespace], want: Mapping[str, str | int]) -> QuotaExplanation:
    """Return whether more fits, from a namespace and those above it."""
    keys = compute(tenant, path, want)
    return QuotaExplanation(tenant=tenant, namespace=path[0].namespace, keys=keys, is_core=len(path) == 1)


async def explain(reader: ObjectReader, tenant: str, name: str, want: Mapping[str, str | int]) -> QuotaExplanation:
    """Return whether more fits into the quota of a tenant's namespace.

    Args:
        reader: Reads with the user's rights: an owner sees the owner's namespaces only.
        tenant: The tenant's name.
        name: The namespace's name, or that of the only Subnamespace that has it.
        want: Quota key to quantity, any spelling.

    Raises:
        NotFound: There is no such tenant or namespace.
        InputError: Several Subnamespaces have that name, or a key or quantity is wrong.
    """
    return conclude(tenant, await gather(reader, tenant, name), want)


async def gather(reader: ObjectReader, tenant: str, name: str) -> list[PathNamespace]:
    """Read a namespace of a tenant and all above it, the core namespace last; see `explain`."""
    owner: Tenant | None = None
    try:
        owner = await reader.get(Tenant, tenant)
        chain = await _chain(reader, owner, name)
    except Forbidden:
        # An owner may read neither the Tenant nor all namespaces, so only the readable part is explained.
        chain = await _readable_chain(reader, name)
    try:
        tree = (await reader.get(TenantResourceQuota, chain[0].metadata.labels.get(marks.TENANT, ""))).status.tree
    except (Forbidden, NotFound):
        tree = ()
    held: dict[str, list[Mapping[str, str]]] = {}
    for share in tree:
        held.setdefault(share.parent, []).append(share.assigned)
    return await all_of(_place(reader, owner, each, held.get(each.metadata.name, ())) for each in chain)


async def _chain(reader: ObjectReader, tenant: Tenant, name: str) -> list[Namespace]:
    selectors = {"labelSelector": f"{marks.TENANT}={tenant.metadata.name}"}
    listed = await reader.list(Namespace, selectors=selectors)
    namespaces = {
        each.metadata.name: each for each in listed if each.metadata.labels.get(marks.TENANT_UID) == tenant.metadata.uid
    }
    core = tenant.metadata.name
    if listed and not namespaces:
        raise NotFound(
            f"the namespaces of tenant {core!r} have the uid of an earlier tenant, as after a restore: `tenantry adopt"
            " --plan` shows which of them can be bound to this one"
        )
    chain: list[Namespace] = []
    at = _choose(core, name, namespaces)
    while at in namespaces and len(chain) < MAX_DEPTH:
        chain.append(namespaces[at])
        at = namespaces[at].metadata.labels.get(marks.PARENT, "")
    if not chain or chain[-1].metadata.name != core:
        raise NotFound(f"the namespace {name!r} is not below the core namespace {core!r}: one between them is gone")
    return chain


async def _readable_chain(reader: ObjectReader, name: str) -> list[Namespace]:
    """Return a namespace and those above it, up to the highest that an owner may read.

    Raises:
        Forbidden: The namespace itself may not be read.
    """
    chain = [await reader.get(Namespace, name)]
    while (parent := chain[-1].metadata.labels.get(marks.PARENT, "")) and len(chain) < MAX_DEPTH:
        try:
            chain.append(await reader.get(Namespace, parent))
        except (Forbidden, NotFound):
            break
    return chain


def _choose(tenant: str, name: str, namespaces: Mapping[str, Namespace]) -> str:
    if name in namespaces:
        return name
    found = sorted(key for key, each in namespaces.items() if each.metadata.labels.get(marks.SUBNAMESPACE) == name)
    if not found:
        raise NotFound(f"the tenant {tenant!r} has no namespace {name!r}; `tenantry tree {tenant}` shows those it has")
    if len(found) > 1:
        names = shortened(found)
        raise InputError(f"the tenant {tenant!r} has several subnamespaces {name!r}: name one of {names}")
    return found[0]


async def _place(
    reader: ObjectReader, tenant: Tenant | None, namespace: Namespace, held: Sequence[Mapping[str, str]]
) -> PathNamespace:
    name, labels = namespace.metadata.name, namespace.metadata.labels
    subnamespace, parent = labels.get(marks.SUBNAMESPACE, ""), labels.get(marks.PARENT, "")
    quotas = await reader.list(ResourceQuotaWithUsage, namespace=name, selectors=MANAGED)
    asked = tenant.spec.quota.hard if tenant is not None else None
    if subnamespace:
        try:
            asked = (await reader.get(Subnamespace, subnamespace, parent)).spec.quota.hard
        except NotFound:
            asked = {}  # the Subnamespace is being deleted
        except Forbidden:
            asked = None  # the owner may not read the parent namespace
    return PathNamespace(
        namespace=name,
        subnamespace=subnamespace,
        parent=parent,
        asked=asked,
        hard={key: amount for each in quotas for key, amount in each.status.hard.items()},
        used={key: amount for each in quotas for key, amount in each.status.used.items()},
        held=held,
    )
