"""What one mirror is configured with, and the marks that its lower objects have: pure."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tenantry.api.marks import GROUP
from tenantry.api.model import Json, object_key
from tenantry.mirror import names
from tenantry.mirror.places import NamespacePairs
from tenantry.mirror.podlimits import PodLimits


def _none(_kind: str, _namespace: str, _name: str) -> bool:
    return False


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of the mirror of one upper side.

    Args:
        owner_uid: The uid that is part of all lower names, and the value of the label `<prefix>/owner`.
        owner: The owner reference of every lower object; None for none.
        namespace: The namespace of all lower objects; "" with `pairs`.
        prefix: The domain of the marks, for example "example.dev".
        api_host: KUBERNETES_SERVICE_HOST of containers; "" to leave it unset.
        api_port: KUBERNETES_SERVICE_PORT of containers; "" to leave it unset.
        most_pods: How many upper pods are kept in memory and mirrored. Each takes up to 256 KiB, usually 4.
        most_objects: How many upper objects of each other kind are kept in memory and mirrored.
        is_adopted: Returns whether the lower object of an upper one (kind, namespace, name) was there before it, and
            has kept its name, which is the upper one's; see `adoption`.
        pairs: The lower namespace of each upper one; what is in others is not mirrored. None if all of them share
            `namespace`.
        computed: Whether lower objects have names that users cannot choose; otherwise they have the upper names, apart
            from the Secrets with tokens.
        node: The upper node that pods are bound to before they are mirrored; "" if the mirror binds them.
        limits: Which fields of pods travel; None for all that `podfields` lists.
        condition: The name of the condition of a bound pod that records whether it has, or had, a lower pod; its type
            is `<prefix>/<condition>`. The status is all that a node may change of its pods.
        hidden: Fields of the status of lower pods that do not go up.
        is_apart: Whether the lower side is another cluster: its addresses have no meaning on the upper side. Each side
            has its own, and no way in from outside goes down.
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
    pairs: NamespacePairs | None = None
    computed: bool = True
    node: str = ""
    limits: PodLimits | None = None
    condition: str = "Mirrored"
    hidden: tuple[str, ...] = ()
    is_apart: bool = False

    def mark(self, name: str) -> str:
        """Return the key of a mark."""
        return f"{self.prefix}/{name}"

    def is_reserved(self, key: str) -> bool:
        """Return whether users may not set a label or annotation of this key on a lower object."""
        # The API server accepts the domain of an annotation in any case.
        domain = key.partition("/")[0].lower() if "/" in key else ""
        return any(domain == known or domain.endswith(f".{known}") for known in (self.prefix.lower(), GROUP))

    def lower_namespace(self, namespace: str) -> str:
        """Return the lower namespace of an upper one; "" if nothing of it is mirrored."""
        return self.namespace if self.pairs is None else self.pairs.lower(namespace)

    def lower_name(self, kind: str, namespace: str, name: str) -> str:
        """Return the name of the lower object of an upper one."""
        # What has no upper object has no name there: another object may have the pod's.
        is_given = not self.computed and kind != names.TOKEN
        if is_given or self.is_adopted(kind, namespace, name):
            return name
        return names.lower_name(self.owner_uid, kind, namespace, name)

    def lower_key(self, kind: str, key: str) -> str:
        """Return the key, `namespace/name`, of the lower object of an upper one; "" if it is not mirrored."""
        namespace, _, name = key.partition("/")
        below = self.lower_namespace(namespace)
        return object_key(below, self.lower_name(kind, namespace, name)) if below else ""

    def is_place(self, key: str) -> bool:
        """Return whether an object of this key is where the lower objects are."""
        if self.pairs is not None:
            return bool(self.pairs.upper(key.partition("/")[0]))
        return key.startswith(f"{self.namespace}/")

    def is_mirrored(self, key: str) -> bool:
        """Return whether the namespace of an upper object is mirrored."""
        return self.pairs is None or bool(self.pairs.lower(key.partition("/")[0]))

    def is_open(self, namespace: str) -> bool:
        """Return whether new objects of an upper namespace are mirrored."""
        return self.pairs is None or self.pairs.is_open(namespace)

    def labels(self, namespace: str) -> dict[str, str]:
        """Return the labels that every lower object has whose upper object is in a namespace."""
        return {self.mark("namespace"): names.label_value(namespace), self.mark("owner"): self.owner_uid}
