"""What outlives the removal of an owner: tokens of ServiceAccounts, and bindings that name the owner.

An owner can request tokens of every ServiceAccount in its namespaces. Kubernetes checks a token against the
ServiceAccount's uid, but not against the rights of the person who requested it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import msgspec

from tenantry.api import marks
from tenantry.api.kubernetes import ClusterRoleBinding, Namespace, RoleBinding
from tenantry.api.model import Model, ObjectMeta, Resource
from tenantry.api.owner import Owner, OwnerKind, owner_line
from tenantry.api.tokens import ACCOUNT_NAME, TOKEN_SECRET
from tenantry.controllers.requesters.desired import role_name
from tenantry.controllers.tenantnamespace import OWNER_BINDING
from tenantry.engine.reader import ObjectReader
from tenantry.engine.tasks import all_of
from tenantry.views.permitted import list_permitted
from tenantry.views.pods import FINISHED
from tenantry.world.subtenants import subtenant_of

ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
_PODS = Resource("", "v1", "pods", "Pod")
_SECRETS = Resource("", "v1", "secrets", "Secret")
_AT_ONCE = 16
"""Namespaces that are read at the same time."""


class TokenAccount(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A ServiceAccount whose tokens an owner may have.

    Args:
        namespace: Its namespace.
        name: Its name.
        made_by: The user who created it; "" if that is unknown, or was Kubernetes.
        is_stamped: The owner created it, or one of its token Secrets.
        secrets: The names of its token Secrets, whose tokens never expire.
        pods: The names of the pods that run with a token of it.
    """

    namespace: str
    name: str
    made_by: str
    is_stamped: bool
    secrets: tuple[str, ...]
    pods: tuple[str, ...]


class NamespaceReach(msgspec.Struct, frozen=True, kw_only=True):
    """What an owner could reach in some namespaces.

    Args:
        namespaces: Their names.
        accounts: The ServiceAccounts, those with the owner's stamp first.
        bindings: The RoleBindings that name the owner, as namespace/name, without those that Tenantry creates.
        is_known: A RoleBinding names the owner, those of Tenantry included, or it created a ServiceAccount or token
            Secret that exists.
    """

    namespaces: tuple[str, ...]
    accounts: tuple[TokenAccount, ...]
    bindings: tuple[str, ...]
    is_known: bool


class _Metadata(Model, frozen=True, kw_only=True):
    metadata: ObjectMeta


class _TokenSource(Model, frozen=True, kw_only=True):
    service_account_token: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Projected(Model, frozen=True, kw_only=True):
    sources: tuple[_TokenSource, ...] | None = ()


class _Volume(Model, frozen=True, kw_only=True):
    projected: _Projected = _Projected()


class _PodSpec(Model, frozen=True, kw_only=True):
    service_account_name: str = ""
    volumes: tuple[_Volume, ...] = ()


class _PodStatus(Model, frozen=True, kw_only=True):
    phase: str = ""


class _Pod(Model, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()

    @property
    def account(self) -> str:
        """Return the ServiceAccount of which the pod has a token; "" for none, and after its end."""
        mounted = (source for volume in self.spec.volumes for source in volume.projected.sources or ())
        has_token = any(source.service_account_token is not msgspec.UNSET for source in mounted)
        return self.spec.service_account_name if has_token and self.status.phase not in FINISHED else ""


async def reach(reader: ObjectReader, root: str, owner: Owner, *, is_owner: bool) -> NamespaceReach:
    """Return what an owner could reach in the namespaces of a Tenant or a Subnamespace.

    These are the namespaces of which it is an owner, in which a RoleBinding names it, or in which it created a
    ServiceAccount or a token Secret.

    Args:
        reader: The cluster, as the user may read it.
        root: The namespace of the Tenant or the Subnamespace.
        owner: The owner.
        is_owner: It is still in spec.owners. If not, all namespaces of the same Subtenant, or of none, count.

    Raises:
        Forbidden: The user may not list the ServiceAccounts or RoleBindings of these namespaces.
    """
    tree = await list_permitted(reader, Namespace, selectors={"labelSelector": f"{root}{marks.TREE_SUFFIX}"})
    # A user who may not list namespaces still has rights in this one.
    found = tree or [Namespace(metadata=ObjectMeta(name=root))]
    labels_of = {each.metadata.name: each.metadata.labels for each in found}
    subtenant = subtenant_of(root, labels_of)

    def counts(each: Namespace) -> bool:
        name, annotations = each.metadata.name, each.metadata.annotations
        is_its = name == root or _line(owner) in annotations.get(marks.OWNERS, "")
        return is_its or (not is_owner and subtenant_of(name, labels_of) == subtenant)

    own = frozenset(each.metadata.name for each in found if counts(each))
    return await read(reader, [each.metadata.name for each in found], owner, own=own)


async def read(
    reader: ObjectReader, namespaces: Iterable[str], owner: Owner, *, own: frozenset[str] | None = None
) -> NamespaceReach:
    """Return what an owner could reach in some namespaces.

    Args:
        reader: The cluster.
        namespaces: The namespaces.
        owner: The owner.
        own: Those that count in any case; the others only with a RoleBinding or a stamp of the owner. None for all.

    Raises:
        Forbidden: The user may not list the ServiceAccounts or RoleBindings of these namespaces.
    """
    slots = asyncio.Semaphore(_AT_ONCE)

    async def one(name: str) -> NamespaceReach | None:
        async with slots:
            return await _inside(reader, name, owner, counts=own is None or name in own)

    parts = [each for each in await all_of(one(name) for name in namespaces) if each is not None]
    accounts = [account for part in parts for account in part.accounts]
    return NamespaceReach(
        namespaces=tuple(name for part in parts for name in part.namespaces),
        accounts=tuple(sorted(accounts, key=lambda each: (not each.is_stamped, each.namespace, each.name))),
        bindings=tuple(sorted(binding for part in parts for binding in part.bindings)),
        is_known=any(part.is_known for part in parts),
    )


async def cluster_wide(reader: ObjectReader, owner: Owner) -> tuple[str, ...] | None:
    """Return the ClusterRoleBindings that name an owner; None if the user may not list them.

    The binding by which the owner reads its own TenantRequests is left out: the operator creates it.
    """
    found = await list_permitted(reader, ClusterRoleBinding)
    if found is None:
        return None
    own = role_name(owner.name) if owner.kind is OwnerKind.USER else ""
    return tuple(sorted(each.metadata.name for each in found if names(each, owner) and each.metadata.name != own))


def _line(owner: Owner) -> str:
    return f"\n{owner_line(owner.kind, owner.name, owner.namespace)}\n"


async def _inside(reader: ObjectReader, namespace: str, owner: Owner, *, counts: bool) -> NamespaceReach | None:
    """Return what an owner could reach in one namespace; None if it has no rights there.

    Args:
        reader: The cluster.
        namespace: The namespace.
        owner: The owner.
        counts: The owner has rights there for another reason than RoleBindings and stamps.
    """
    bindings = [each for each in await reader.list(RoleBinding, namespace=namespace) if names(each, owner)]
    accounts = [each.metadata async for each in reader.items(ACCOUNTS, _Metadata, namespace=namespace)]
    selectors = {"fieldSelector": f"type={TOKEN_SECRET}"}
    secrets = [each async for each in reader.items(_SECRETS, _Metadata, namespace=namespace, selectors=selectors)]
    pods = [each async for each in reader.items(_PODS, _Pod, namespace=namespace)]
    listed = [_account(each, owner, secrets, pods) for each in accounts]
    is_known = bool(bindings) or any(each.is_stamped for each in listed)
    if not counts and not is_known:
        return None
    own = tuple(each.key for each in bindings if not _is_made(each))
    return NamespaceReach(namespaces=(namespace,), accounts=tuple(listed), bindings=own, is_known=is_known)


def _is_made(binding: RoleBinding) -> bool:
    """Return whether Tenantry creates and changes a RoleBinding: that of the owners, and copies of the users' own."""
    return binding.metadata.name == OWNER_BINDING or marks.INHERITED_FROM in binding.metadata.labels


def _account(account: ObjectMeta, owner: Owner, secrets: Iterable[_Metadata], pods: Iterable[_Pod]) -> TokenAccount:
    made_by = account.annotations.get(marks.MADE_BY, "")
    own = [each.metadata for each in secrets if each.metadata.annotations.get(ACCOUNT_NAME) == account.name]
    makers = {made_by, *(each.annotations.get(marks.MADE_BY, "") for each in own)}
    return TokenAccount(
        namespace=account.namespace,
        name=account.name,
        made_by=made_by,
        is_stamped=username(owner) in makers,
        secrets=tuple(sorted(each.name for each in own)),
        pods=tuple(sorted(each.metadata.name for each in pods if each.account == account.name)),
    )


def username(owner: Owner) -> str | None:
    """Return the user name of an owner in requests; None for a group, whose members are not known."""
    if owner.kind is OwnerKind.GROUP:
        return None
    is_account = owner.kind is OwnerKind.SERVICE_ACCOUNT
    return f"system:serviceaccount:{owner.namespace}:{owner.name}" if is_account else owner.name


def names(binding: RoleBinding | ClusterRoleBinding, owner: Owner) -> bool:
    """Return whether a binding names an owner among its subjects."""
    return any(
        (each.kind, each.name) == (owner.kind, owner.name)
        and (owner.kind is not OwnerKind.SERVICE_ACCOUNT or each.namespace == owner.namespace)
        for each in binding.subjects
    )
