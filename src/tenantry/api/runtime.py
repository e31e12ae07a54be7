"""In which runtime pods run: on their node's kernel, or in a sandbox before it (E14)."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import UNSET, Meta, UnsetType

from tenantry.api.model import KubernetesObject, Model, Resource


class RuntimeChoice(StrEnum):
    """How pods are isolated from the kernel of their node."""

    SHARED = "Shared"
    SANDBOXED = "Sandboxed"


class RuntimeIsolation(Model, frozen=True, kw_only=True):
    """How far the pods of a Subnamespace are from the kernel of their node."""

    runtime: (
        Annotated[
            RuntimeChoice,
            Meta(
                description="Sandboxed: every pod in the child and its descendants runs in the cluster's sandbox."
                " Shared: as in the parent; may not be set if the parent is Sandboxed."
            ),
        ]
        | UnsetType
    ) = UNSET


class RuntimeClass(KubernetesObject, frozen=True, kw_only=True):
    """A runtime that nodes have, by the name of its handler (Kubernetes: "Runtime Class")."""

    resource: ClassVar[Resource] = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False)

    handler: str = ""
