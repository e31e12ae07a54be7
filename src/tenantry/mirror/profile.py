"""What one mirror is configured with, and the marks that its lower objects have: pure."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tenantry.api.marks import GROUP
from tenantry.api.model import Json, object_key
from tenantry.mirror import names


def _none(_kind: str, _namespace: str, _name: str) -> bool:
    return False


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of the mirror of one upper side.

    Args:
        owner_uid: The uid that is part of all lower names, and the value of the label `<prefix>/owner`.
        owner: The owner reference of every lower object; None for none.
        namespace: The namespace of all lower objects.
        prefix: The domain of the marks, for example "example.dev".
        api_host: KUBERNETES_SERVICE_HOST of containers; "" to leave it unset.
        api_port: KUBERNETES_SERVICE_PORT of containers; "" to leave it unset.
        most_pods: How many upper pods are kept in memory and mirrored. Each takes up to 256 KiB, usually 4.
        most_objects: How many upper objects of each other kind are kept in memory and mirrored.
        is_adopted: Returns whether the lower object of an upper one (kind, namespace, name) was there before it, and
            has kept its name, which is the upper one's; see `adoption`.
    """

    owner_uid: str
    namespace: str
    prefix: str
    owner: Json | None = None
    api_host: str = ""
    api_port: str = ""
    most_pods: int = 1000
    most_objects: int = 1000
    is_adopted: Callable[[str, str, str], bool] = _none

    def mark(self, name: str) -> str:
        """Return the key of a mark."""
        return f"{self.prefix}/{name}"

    def is_reserved(self, key: str) -> bool:
        """Return whether users may not set a label or annotation of this key on a lower object."""
        # The API server accepts the domain of an annotation in any case.
        domain = key.partition("/")[0].lower() if "/" in key else ""
        return any(domain == known or domain.endswith(f".{known}") for known in (self.prefix.lower(), GROUP))

    def lower_name(self, kind: str, namespace: str, name: str) -> str:
        """Return the name of the lower object of an upper one."""
        if self.is_adopted(kind, namespace, name):
            return name
        return names.lower_name(self.owner_uid, kind, namespace, name)

    def lower_key(self, kind: str, key: str) -> str:
        """Return the key, `namespace/name`, of the lower object of an upper one."""
        namespace, _, name = key.partition("/")
        return object_key(self.namespace, self.lower_name(kind, namespace, name))

    def is_place(self, key: str) -> bool:
        """Return whether an object of this key is where the lower objects are."""
        return key.startswith(f"{self.namespace}/")

    def labels(self, namespace: str) -> dict[str, str]:
        """Return the labels that every lower object has whose upper object is in a namespace."""
        return {self.mark("namespace"): names.label_value(namespace), self.mark("owner"): self.owner_uid}
