"""A request as admission sees it, with what policies know beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tenantry.api.tenancyrules import Section

Json = Mapping[str, Any]


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request to write an object (Kubernetes: AdmissionReview).

    Args:
        user: Who asks.
        groups: Of whom.
        operation: CREATE, UPDATE or DELETE.
        group: The API group; "" for the core group.
        resource: The plural.
        subresource: "" for the object itself.
        namespace: Where it is.
        name: "" where the server makes one.
        namespace_labels: Of the namespace.
        object: What is to be, with the defaults that the API server has filled in; {} for a deletion.
        old_object: What is; {} for a creation.
        reclaim_policies: Of the cluster's StorageClasses, as far as they are known.
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


def part(value: Json, *path: str) -> dict[str, Any]:
    """Return the object at a path; {} where it is not there."""
    found: Any = value
    for field in path:
        found = found.get(field) or {}
    return found


def parts(value: Json, *path: str) -> list[dict[str, Any]]:
    """Return the list of objects at a path; [] where it is not there."""
    found: list[dict[str, Any]] | None = part(value, *path[:-1]).get(path[-1])
    return found or []


def texts(value: Json, *path: str) -> list[str]:
    """Return the list of strings at a path; [] where it is not there."""
    found: list[str] | None = part(value, *path[:-1]).get(path[-1])
    return found or []


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule has against a request.

    Args:
        rule: Its path below `rules` in a Tenant, as in images.allowed.
        source: Who set it, as in "Tenant 'acme'".
        path: What of the object it is about, as in "container 'web'".
        what: What is wrong with that.
        fix: What would pass.
    """

    rule: str
    source: str
    path: str
    what: str
    fix: str

    def __str__(self) -> str:
        """Return the text that the API server answers with; see `check.message`."""
        return f"{self.path} {self.what} (rule {self.rule} of {self.source}): {self.fix}"


class Judged(msgspec.Struct, frozen=True):
    """What a check looks at: a request, and the rules of one section of the namespace's TenancyRules."""

    request: Request
    rules: Section

    @property
    def spec(self) -> dict[str, Any]:
        """Return the object's spec."""
        return part(self.request.object, "spec")
