"""Which tenant of the other tool has which namespace, and which claims an import refuses: pure.

The input may be untrusted files. A namespace that Kubernetes or another tenant needs, or that two tenants claim, is
never adopted: each is an error that names it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping

from tenantry.api import marks
from tenantry.api.errors import InputError
from tenantry.api.kubernetes import Namespace
from tenantry.api.names import DNS_LABEL
from tenantry.world.imports.objects import SourceObjects

_LABEL = re.compile(DNS_LABEL, re.ASCII)
_LONGEST = 63


class Claims:
    """Collects claims on namespaces.

    Args:
        title: The other tool.
        world: The objects.
    """

    def __init__(self, title: str, world: SourceObjects) -> None:
        self._title = title
        self._world = world
        self._by_namespace: defaultdict[str, set[str]] = defaultdict(set)

    def add(self, namespace: str, tenant: str) -> None:
        """Add the claim of a tenant, by its name in the other tool, on a namespace."""
        self._by_namespace[namespace].add(tenant)

    @property
    def is_complete(self) -> bool:
        """Return whether all namespaces of a cluster were read."""
        return "kube-system" in self._world.namespaces

    def of(self, tenant: str, told: str, name: str) -> list[str]:
        """Return the namespaces of a tenant, sorted.

        Args:
            tenant: Its name in the other tool.
            told: The tenant in words.
            name: Its name in Tenantry.

        Raises:
            InputError: A claim is refused; see the module.
        """
        found = sorted(each for each, tenants in self._by_namespace.items() if tenant in tenants)
        if self.is_complete:
            found = [each for each in found if each in self._world.namespaces]
        for namespace in found:
            others = sorted(self._by_namespace[namespace] - {tenant})
            if others:
                raise InputError(
                    f"{told} and {others[0]!r} both claim the namespace {namespace!r}: remove the label, the owner"
                    " reference or the entry of one of the two"
                )
            _check_namespace(namespace, told, name, self._world.namespaces)
        return found

    def may_be_core(self, name: str, tenant: str) -> bool:
        """Return whether a tenant can have a name: no namespace has it, or one of the tenant's own."""
        return is_free(name, self._world.namespaces) or self._by_namespace.get(name) == {tenant}

    def check_known(self, tenants: Mapping[str, object], kind: str) -> None:
        """Check that every tenant that a namespace names was read.

        Args:
            tenants: The tenants by name.
            kind: Their kind in the other tool.

        Raises:
            InputError: The tenant of a namespace is missing.
        """
        for namespace, claiming in sorted(self._by_namespace.items()):
            missing = sorted(claiming - set(tenants))
            if missing:
                raise InputError(
                    f"the namespace {namespace!r} belongs to the {self._title} {kind} {missing[0]!r}, which was not"
                    " read: add it to the files, or remove what names it from the namespace"
                )


def is_free(name: str, namespaces: Mapping[str, Namespace]) -> bool:
    """Return whether the operator can create a core namespace of a name, or has done so for the Tenant of the name."""
    return name not in namespaces or namespaces[name].metadata.labels.get(marks.TENANT) == name


def check_name(name: str, told: str) -> None:
    """Check the name of a tenant.

    Raises:
        InputError: A Tenant cannot have it.
    """
    if not _LABEL.search(name) or len(name) > _LONGEST or "\n" in name:
        raise InputError(
            f"{told} cannot be imported as the Tenant {name!r}: a Tenant's name is a DNS label of at most {_LONGEST}"
            " lower-case letters, digits and -; rename it in the other tool"
        )
    if marks.is_reserved(name):
        raise InputError(
            f"{told} cannot be imported as the Tenant {name!r}: default, kube-… and tenantry-… are reserved names;"
            " rename it in the other tool"
        )


def _check_namespace(namespace: str, told: str, name: str, namespaces: Mapping[str, Namespace]) -> None:
    if not _LABEL.search(namespace) or len(namespace) > _LONGEST or "\n" in namespace:
        raise InputError(f"{told} claims the namespace {namespace!r}, which no namespace can be named")
    if marks.is_reserved(namespace):
        raise InputError(
            f"{told} claims the namespace {namespace!r}, which belongs to the cluster or to Tenantry: take it out of"
            " the tenant, or name the tenants to import"
        )
    labels = namespaces[namespace].metadata.labels if namespace in namespaces else {}
    owner = labels.get(marks.TENANT)
    ours = sorted(key for key in labels if _is_of_tenantry(key))
    if owner is not None and owner != name:
        raise InputError(f"{told} claims the namespace {namespace!r}, which belongs to the tenant {owner!r} already")
    if owner is None and ours:
        raise InputError(
            f"the namespace {namespace!r} of {told} has the label {ours[0]!r}, which only Tenantry sets: remove it"
        )


def check_keys(keys: list[str], where: str) -> None:
    """Check the keys of labels or annotations that the other tool gives to namespaces.

    Raises:
        InputError: A key is one that only Tenantry sets.
    """
    ours = sorted(key for key in keys if _is_of_tenantry(key))
    if ours:
        raise InputError(f"{where} has the key {ours[0]!r}, which only Tenantry sets: remove it")


def _is_of_tenantry(key: str) -> bool:
    return marks.is_protected(key) and not key.startswith(f"{marks.POD_SECURITY}/")
