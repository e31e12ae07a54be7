"""What the API server will say of a tenant, known before it is asked: pure.

The rules are those of the CRD (`validations` and `Meta` in `tenantry.api.tenant`), written a second time because CEL
runs in the server only. A test gives both the same table of tenants and compares the verdicts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec

from tenantry.api import marks
from tenantry.api.errors import InputError
from tenantry.api.names import DNS_LABEL, DNS_SUBDOMAIN
from tenantry.api.owner import Owner, OwnerKind
from tenantry.api.quota import CONTAINER_RESOURCE
from tenantry.api.tenant import Tenant
from tenantry.world import quantity, quota

_LABEL = re.compile(DNS_LABEL, re.ASCII)
_SUBDOMAIN = re.compile(DNS_SUBDOMAIN, re.ASCII)
_RESOURCE = re.compile(CONTAINER_RESOURCE, re.ASCII)
_LABEL_LENGTH = 63


class Problem(msgspec.Struct, frozen=True):
    """One thing that is wrong.

    Args:
        path: The JSON path of the field, "" for the object as a whole.
        message: What it must or must not be.
    """

    path: str
    message: str

    def __str__(self) -> str:
        """Return one line."""
        return f"{self.path} {self.message}" if self.path else self.message


def validate_tenant(tenant: Tenant) -> list[Problem]:
    """Return everything that is wrong with a tenant, in the order of its fields; [] for a good one."""
    return [*_name(tenant.metadata.name), *_owners(tenant.spec.owners), *_quantities(tenant)]


def _name(name: str) -> Iterator[Problem]:
    path = "metadata.name"
    if not name:
        yield Problem(path, "must be given")
    elif not _LABEL.fullmatch(name) or len(name) > _LABEL_LENGTH:
        yield Problem(
            path,
            f"is {name!r}; it must be a DNS label (at most 63 lower-case letters, digits and -), because the tenant's"
            " namespace has the same name",
        )
    elif marks.is_reserved(name):
        yield Problem(
            path,
            f"is {name!r}; it must not be default nor begin with kube- or tenantry-, which are reserved:"
            " choose another name",
        )


def _owners(owners: tuple[Owner, ...]) -> Iterator[Problem]:
    path = "spec.owners"
    if not owners:
        yield Problem(path, "must have at least one owner, as in {kind: User, name: ada}")
    if len(owners) > 64:  # noqa: PLR2004 - maxItems of the model
        yield Problem(path, f"has {len(owners)} items; it may have at most 64: use a Group")
    for index, owner in enumerate(owners):
        yield from _owner(f"{path}[{index}]", owner)


def _owner(path: str, owner: Owner) -> Iterator[Problem]:
    if not owner.name:
        yield Problem(f"{path}.name", "must not be empty")
    if len(owner.name) > 253:  # noqa: PLR2004 - maxLength of the model
        yield Problem(f"{path}.name", "must be at most 253 characters long")
    if len(owner.namespace) > _LABEL_LENGTH:
        yield Problem(f"{path}.namespace", "must be at most 63 characters long")
    if owner.kind is OwnerKind.SERVICE_ACCOUNT:
        if not owner.namespace:
            yield Problem(f"{path}.namespace", "must be given for a ServiceAccount")
        elif not _LABEL.fullmatch(owner.namespace):
            yield Problem(f"{path}.namespace", f"is {owner.namespace!r}; it must be a namespace's name")
        if owner.name and not _SUBDOMAIN.fullmatch(owner.name):
            yield Problem(f"{path}.name", f"is {owner.name!r}; it must be a ServiceAccount's name")
        return
    if owner.namespace:
        yield Problem(f"{path}.namespace", f"must not be given for a {owner.kind}: only a ServiceAccount has one")
    if owner.name.startswith(("system:", "tenantry:")):
        yield Problem(
            f"{path}.name",
            f"is {owner.name!r}; it must not begin with system: or tenantry:, which name users and groups of Kubernetes"
            " and of Tenantry",
        )


def _quantities(tenant: Tenant) -> Iterator[Problem]:
    hard, defaults = tenant.spec.quota.hard, tenant.spec.container_defaults
    yield from _keys("spec.quota.hard", hard)
    for side, given in (("requests", defaults.requests), ("limits", defaults.limits)):
        wrong = sorted(key for key in given if not _RESOURCE.fullmatch(key))
        if wrong:
            yield Problem(
                f"spec.containerDefaults.{side}",
                f"has {wrong[0]!r}; it must have only resources of containers, as in cpu, memory, ephemeral-storage or"
                " example.com/gpu",
            )
    for path, given in (
        ("spec.quota.hard", hard),
        ("spec.containerDefaults.requests", defaults.requests),
        ("spec.containerDefaults.limits", defaults.limits),
    ):
        if len(given) > 64:  # noqa: PLR2004 - maxProperties of the model
            yield Problem(path, f"has {len(given)} keys; it may have at most 64")
        for key, value in given.items():
            yield from _quantity(f"{path}[{key}]", value)


def _keys(path: str, hard: Mapping[str, int | str]) -> Iterator[Problem]:
    seen: dict[str, str] = {}
    for key in hard:
        try:
            normal = quota.normal_key(key)
        except InputError as error:
            yield Problem(path, f"has a wrong key: {error}")
            continue
        if normal in seen:
            yield Problem(path, f"has both {seen[normal]!r} and {key!r}, which mean the same; keep one")
        seen[normal] = key


def _quantity(path: str, value: int | str) -> Iterator[Problem]:
    try:
        negative = quantity.parse(value) < 0
    except InputError as error:
        yield Problem(path, f"must be a quantity: {error}")
        return
    if negative:
        yield Problem(path, f"is {value!r}; it must not be negative")
