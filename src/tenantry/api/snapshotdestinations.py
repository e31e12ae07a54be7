"""Where the snapshots of virtual control planes are kept: administrators list the places, control planes name one.

A place leads the operator to an address or a folder, so that owners never write one.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import UNSET, Meta, UnsetType

from tenantry.api.crd import Rule, list_map
from tenantry.api.model import Model
from tenantry.api.names import DNS_LABEL

MOST_DESTINATIONS = 16

_SEGMENT = "[A-Za-z0-9_-][A-Za-z0-9._-]*"


class DestinationFolder(Model, frozen=True, kw_only=True):
    """A folder of the machine of the operator."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule("!self.path.split('/').exists(p, p == '.' || p == '..')", "must have no . and no ..", field="path"),
    )

    path: Annotated[
        str,
        Meta(
            min_length=2,
            max_length=1024,
            pattern=r"^/[^\x00-\x1f]*[^/\x00-\x1f]$",
            description="The absolute path of a folder that exists, for example one of a mounted file server. The"
            " operator makes one folder in it for each control plane.",
        ),
    ]


class DestinationSecret(Model, frozen=True, kw_only=True):
    """A Secret in the namespace of the operator."""

    name: Annotated[str, Meta(min_length=1, max_length=253, description="Its name.")]


class DestinationBucket(Model, frozen=True, kw_only=True):
    """A bucket of an S3-compatible store."""

    endpoint: Annotated[
        str,
        Meta(
            max_length=253,
            pattern=r"^https://([a-z0-9]([-a-z0-9.]*[a-z0-9])?|\[[0-9a-f:]+\])(:[1-9][0-9]{0,4})?$",
            description="The URL of the store without a path, as in https://s3.eu-central-1.amazonaws.com. TLS is"
            " required, and the certificate is verified.",
        ),
    ]
    bucket: Annotated[
        str,
        Meta(
            min_length=3,
            max_length=63,
            pattern=r"^[a-z0-9][a-z0-9.-]*[a-z0-9]$",
            description="The bucket, which must exist. Requests name it in the path.",
        ),
    ]
    prefix: Annotated[
        str,
        Meta(
            max_length=512,
            pattern=rf"^({_SEGMENT}(/{_SEGMENT})*)?$",
            description="The beginning of all keys, without a slash at its ends. The uid of the control plane follows.",
        ),
    ] = ""
    region: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=64,
            pattern=r"^[A-Za-z0-9_-]+$",
            description="The region of the bucket, which signatures name.",
        ),
    ] = "us-east-1"
    secret_ref: Annotated[
        DestinationSecret,
        Meta(
            description="The Secret in the operator's namespace with the keys `accessKey` and `secretKey`, and `ca`"
            " with an authority in PEM if the certificate of the store is not of a public one."
        ),
    ]


class DestinationClaim(Model, frozen=True, kw_only=True):
    """A PersistentVolumeClaim."""

    name: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=253,
            description="Its name, in the namespace of the Pods of control planes.",
        ),
    ]


class SnapshotDestination(Model, frozen=True, kw_only=True):
    """A place for snapshots."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "[has(self.folder), has(self.s3), has(self.claim)].filter(f, f).size() == 1",
            "must have exactly one of folder, s3 and claim",
        ),
    )

    name: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=63,
            pattern=DNS_LABEL,
            description="Its name, for spec.snapshots.destination of VirtualControlPlanes.",
        ),
    ]
    folder: Annotated[DestinationFolder, Meta(description="A folder of the machine of the operator.")] | UnsetType = (
        UNSET
    )
    s3: Annotated[DestinationBucket, Meta(description="A bucket of an S3-compatible store.")] | UnsetType = UNSET
    claim: (
        Annotated[
            DestinationClaim,
            Meta(
                description="A volume of the cluster, for control planes in Pods; those of a local cluster refuse it."
            ),
        ]
        | UnsetType
    ) = UNSET


class ControlPlaneDefaults(Model, frozen=True, kw_only=True):
    """What virtual control planes may use."""

    snapshot_destinations: Annotated[
        tuple[SnapshotDestination, ...],
        Meta(
            max_length=MOST_DESTINATIONS,
            description="Places for snapshots besides the folder of the operator. Owners of all tenants may choose one"
            " by its name; each control plane reaches its own snapshots only.",
            extra_json_schema=list_map("name"),
        ),
    ] = ()
