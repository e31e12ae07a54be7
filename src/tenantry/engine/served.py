"""The kinds that an API server serves, read from its discovery API.

Source: Kubernetes, "The Kubernetes API" (discovery API).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

import msgspec

from tenantry.api.errors import NotFound
from tenantry.api.model import Resource

LIST = "list"


class ServedKind(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One entry of a list of kinds, as in https://kubernetes.io/docs/concepts/overview/kubernetes-api/."""

    name: str
    kind: str
    namespaced: bool
    verbs: tuple[str, ...] = ()


class _Kinds(msgspec.Struct, frozen=True):
    resources: tuple[ServedKind, ...] = ()


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    group_version: str


class _Group(msgspec.Struct, frozen=True):
    versions: tuple[_Version, ...] = ()


class _Groups(msgspec.Struct, frozen=True):
    groups: tuple[_Group, ...] = ()


async def listable(read: Callable[[str], Awaitable[bytes]], left_out: Collection[str] = ()) -> list[Resource]:
    """Return the kinds whose objects can be listed, each in the version that its group names first.

    Args:
        read: Returns the body of a GET request for a path.
        left_out: Groups that are not read, as those of aggregated API servers that need not answer.

    Raises:
        ApiError: The API server does not answer for one of the other groups, whose kinds would be missing.
    """
    groups = msgspec.json.decode(await read("/apis"), type=_Groups).groups
    versions = ["v1", *(each.group_version for group in groups for each in group.versions)]
    found: dict[tuple[str, str], Resource] = {}
    for version in versions:
        group, _, name = version.rpartition("/")
        if group in left_out:
            continue
        try:
            body = await read(f"/{'apis' if group else 'api'}/{version}")
        except NotFound:
            continue  # its last kind was deleted since
        for each in msgspec.json.decode(body, type=_Kinds).resources:
            # A name with a slash is a subresource.
            if LIST in each.verbs and "/" not in each.name:
                resource = Resource(group, name, each.name, each.kind, namespaced=each.namespaced)
                found.setdefault((group, each.name), resource)
    return list(found.values())
