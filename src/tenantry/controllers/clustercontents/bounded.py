"""How much of the objects with the operator's label is cached: pure.

Users inside put the label on as many objects as they like. Of those that the operator does not want, and of those that
are too large, only the head is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from functools import partial

import msgspec

from tenantry.api.model import Resource
from tenantry.controllers.clustercontents import objects
from tenantry.controllers.clustercontents.objects import ContentFacts
from tenantry.hosting.noderuntime import NodeRuntime
from tenantry.mirror import things
from tenantry.mirror.cachedpods import MOST_BYTES, Kept
from tenantry.mirror.things import Thing

_ANY = "-"
_EVERY = objects.objects(
    ContentFacts(
        service_range="10.96.0.0/16", runtime=NodeRuntime(dns_image=_ANY, storage_class=_ANY), has_tunnels=True
    )
)

ALWAYS = frozenset(
    {
        *((each.resource, each.object_key) for each in _EVERY if each.resource.namespaced or each.object_key != _ANY),
        (objects.CONFIG_MAPS, f"{objects.SYSTEM}/{objects.RECORD}"),
    }
)
"""The objects whose names do not depend on the nodes: their kinds and keys."""


def decoder(resource: Resource, wanted: Container[tuple[Resource, str]]) -> Callable[[msgspec.Raw], Thing]:
    """Return the function that decodes the objects of a kind.

    Args:
        resource: The kind.
        wanted: The kinds and keys of those that are kept whole; asked for each object.
    """
    return partial(_decoded, resource, wanted)


def _decoded(resource: Resource, wanted: Container[tuple[Resource, str]], data: msgspec.Raw) -> Thing:
    head = things.head(data, Kept.TOO_MANY)
    if (resource, head.key) not in wanted:
        return head
    found = things.whole(data)
    return found if len(found.text) <= MOST_BYTES else things.head(data, Kept.TOO_LARGE)
