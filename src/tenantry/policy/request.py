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
    def spec(self) -> Json:
        """Return the object's spec."""
        return self.request.object.get("spec") or {}
