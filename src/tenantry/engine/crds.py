"""What the engine needs to know about the custom kinds that a cluster serves."""

from __future__ import annotations

import msgspec

from tenantry.api.model import ConditionStatus


class CrdState(msgspec.Struct, frozen=True, gc=False):
    """A CustomResourceDefinition.

    Args:
        key: `plural.group`.
        version: The resourceVersion.
        versions: The versions that it serves.
        established: The API server answers for it.
        namespaced: Its objects are in namespaces.
    """

    key: str
    version: int
    versions: tuple[str, ...]
    established: bool
    namespaced: bool = True


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    resource_version: str


class _Condition(msgspec.Struct, frozen=True):
    type: str
    status: ConditionStatus


class _Status(msgspec.Struct, frozen=True):
    conditions: tuple[_Condition, ...] | None = None


class _Version(msgspec.Struct, frozen=True):
    name: str
    served: bool


class _Spec(msgspec.Struct, frozen=True):
    versions: tuple[_Version, ...]
    scope: str = "Namespaced"


class _Crd(msgspec.Struct, frozen=True):
    metadata: _Metadata
    spec: _Spec
    status: _Status = _Status()


_crd = msgspec.json.Decoder(_Crd)


def observe_crd(data: bytes | msgspec.Raw) -> CrdState:
    """Return what the cache keeps of a CRD."""
    crd = _crd.decode(data)
    return CrdState(
        key=crd.metadata.name,
        version=int(crd.metadata.resource_version),
        versions=tuple(version.name for version in crd.spec.versions if version.served),
        established=any(
            condition.type == "Established" and condition.status is ConditionStatus.TRUE
            for condition in crd.status.conditions or ()
        ),
        namespaced=crd.spec.scope == "Namespaced",
    )
