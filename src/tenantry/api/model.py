"""What every model is built from: the base struct, metadata, conditions, and the name of an API resource."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

Json = dict[str, Any]
"""An object as decoded JSON, or a part of one, whose kind the code at hand does not know.

A kind that the code knows has a model instead. `tools/conventions.py` lists the folders that may use it, and why.
"""


class Model(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The base of every model: frozen, keyword-only, camel case on the wire, defaults left out."""


class Resource(msgspec.Struct, frozen=True):
    """The REST resource of a kind (Kubernetes: "API concepts", resource URIs).

    Args:
        group: "" for the core group.
        version: For example "v1".
        plural: The lower-case plural of the path.
        kind: As in objects.
        namespaced: False for cluster-scoped kinds.
        owned: The top-level fields of an object, besides its metadata, that Tenantry sets.
        selected: A label, if only the objects that have it are meant: they are read and cached by themselves.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    owned: tuple[str, ...] = ("spec",)
    selected: str = ""

    @property
    def api_version(self) -> str:
        """Return `group/version`, or the version alone for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def full_name(self) -> str:
        """Return `plural.group`, as kubectl and RBAC messages name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


READ = ("get", "list", "watch")
KEEP = (*READ, "create", "patch", "delete")
EDIT = (*READ, "create", "update", "patch", "delete")


class KindAccess(msgspec.Struct, frozen=True, kw_only=True):
    """The rights on one of Tenantry's kinds that the installation grants (Kubernetes: "Using RBAC Authorization").

    Administrators may do everything, and the roles of requests add what users may ask for.

    Args:
        operator: The operator's verbs in all namespaces; () for a kind that it does not read.
        updates: The subresources that the operator updates.
        owners: The verbs of owners in their namespaces.
    """

    operator: tuple[str, ...] = ()
    updates: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()


class OwnerReference(Model, frozen=True, kw_only=True):
    """The owner with which the garbage collector deletes an object (Kubernetes: "Owners and dependents")."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(Model, frozen=True, kw_only=True):
    """The part of ObjectMeta that Tenantry reads or writes."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()


class KubernetesObject(Model, frozen=True, kw_only=True):
    """An object of the kind `resource`; apiVersion and kind are added on the wire."""

    resource: ClassVar[Resource]

    metadata: ObjectMeta

    @property
    def key(self) -> str:
        """Return `namespace/name`, or the name of a cluster-scoped object."""
        return object_key(self.metadata.namespace, self.metadata.name)

    @property
    def version(self) -> int:
        """Return the resourceVersion as the number that it is (KEP-5504); 0 for an object that was never stored."""
        return int(self.metadata.resource_version or 0)


class ConditionStatus(StrEnum):
    """Whether a condition is met, is not met, or cannot be determined."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(Model, frozen=True, kw_only=True):
    """One observation of an object's state (Kubernetes: "API conventions", typical status properties)."""

    type: Annotated[str, Meta(max_length=316)]
    status: ConditionStatus
    reason: Annotated[str, Meta(max_length=1024)]
    message: Annotated[str, Meta(max_length=32768)]
    last_transition_time: Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
    observed_generation: int = 0


def object_key(namespace: str, name: str) -> str:
    """Return the key under which caches and queues know an object."""
    return f"{namespace}/{name}" if namespace else name
