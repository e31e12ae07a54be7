"""A request as the API server's admission sees it, with what policies know about its surroundings. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tenantry.api.tenancyrules import Section

Json = Mapping[str, Any]
"""An object of any kind as decoded JSON, or a part of one, to be read."""

Item = dict[str, Any]
"""The same, to be changed by a fix."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request to write an object (Kubernetes: AdmissionReview).

    Args:
        user: The name of the user.
        groups: The user's groups.
        operation: CREATE, UPDATE or DELETE.
        group: The API group; "" for the core group.
        resource: The plural.
        subresource: "" for the object itself.
        namespace: The object's.
        name: "" if the server generates one.
        namespace_labels: The labels of the namespace.
        object: The new object, with the defaults that the API server has filled in; {} for a deletion.
        old_object: The stored object; {} for a creation.
        reclaim_policies: StorageClass to reclaim policy, for the classes that are known.
    """

    resource: str
    object: Json
    user: str = ""
    groups: tuple[str, ...] = ()
    operation: str = "CREATE"
    group: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    namespace_labels: Mapping[str, str] = {}
    old_object: Json = {}
    reclaim_policies: Mapping[str, str] = {}


class Review(msgspec.Struct, frozen=True):
    """A request, and the section of the namespace's TenancyRules that decides on it."""

    request: Request
    rules: Section

    @property
    def spec(self) -> Item:
        """Return the object's spec."""
        return part(self.request.object, "spec")


def is_new(request: Request, *fields: str) -> bool:
    """Return whether a request creates an object, or changes the field at one of these paths with dots."""
    return request.operation == "CREATE" or any(
        _at(request.object, path) != _at(request.old_object, path) for path in fields
    )


def _at(value: Json, path: str) -> object:
    *above, field = path.split(".")
    return part(value, *above).get(field)


def part(value: Json, *path: str) -> Item:
    """Return the object at a path; {} if it is not there."""
    found: Any = value
    for field in path:
        found = found.get(field) or {}
    return found


def parts(value: Json, *path: str) -> list[Item]:
    """Return the list of objects at a path; [] if it is not there."""
    found: list[Item] | None = part(value, *path[:-1]).get(path[-1])
    return found or []


def texts(value: Json, *path: str) -> list[str]:
    """Return the list of strings at a path; [] if it is not there."""
    found: list[str] | None = part(value, *path[:-1]).get(path[-1])
    return found or []
