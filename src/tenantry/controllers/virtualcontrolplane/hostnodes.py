"""The nodes of the host in the form in which a mirror reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tenantry.api.node import Node
from tenantry.engine.cache import Cache
from tenantry.mirror.nodenames import HOSTNAME, LowerNode


class HostNodes(Mapping[str, LowerNode]):
    """The nodes of the host, as last seen."""

    def __init__(self, cache: Cache[Node]) -> None:
        self._cache = cache

    def __getitem__(self, name: str) -> LowerNode:
        found = self._cache.get(name)
        if found is None:
            raise KeyError(name)
        hostname = found.metadata.labels.get(HOSTNAME, "")
        return LowerNode(name=name, uid=found.metadata.uid, hostname=hostname, allocatable=found.status.allocatable)

    def __iter__(self) -> Iterator[str]:
        return iter([each.key for each in self._cache])

    def __len__(self) -> int:
        return len(self._cache)
