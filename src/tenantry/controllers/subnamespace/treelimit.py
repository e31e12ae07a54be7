"""How many namespaces a tree has at this moment, and which Subnamespaces wait until one of them is gone."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from tenantry.controllers.watched import BY_TENANT, tenant_of
from tenantry.engine.cache import Cache
from tenantry.engine.observed import Observed


class TreeLimit:
    """Counts the namespaces of each tenant, also those that are being created: many are asked for at the same time."""

    def __init__(self) -> None:
        # Both by tenant: names of namespaces, and keys of Subnamespaces.
        self._creating: dict[str, set[str]] = {}
        self._waiting: dict[str, set[str]] = {}

    @contextmanager
    def creating(self, tenant: str, namespace: str) -> Generator[None]:
        """Count a namespace as long as the request that creates it lasts; then the cache has it, or it failed."""
        names = self._creating.setdefault(tenant, set())
        names.add(namespace)
        try:
            yield
        finally:
            names.discard(namespace)
            if not names:
                self._creating.pop(tenant, None)

    def count(self, tenant: str, namespaces: Cache[Observed]) -> int:
        """Return how many namespaces a tenant has below its core namespace."""
        found = (namespaces.get(name) for name in self._creating.get(tenant, ()))
        new = sum(each is None or tenant not in tenant_of(each) for each in found)
        return max(0, namespaces.count(BY_TENANT, tenant) - 1) + new

    def wait(self, tenant: str, key: str) -> None:
        """Note that a Subnamespace was refused because its tenant has enough namespaces."""
        self._waiting.setdefault(tenant, set()).add(key)

    def waiting(self, tenant: str) -> set[str]:
        """Return the Subnamespaces to reconcile after a namespace of a tenant is gone; each is returned once."""
        return self._waiting.pop(tenant, set())
