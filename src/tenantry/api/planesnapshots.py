"""Snapshots and upgrades of a VirtualControlPlane: the fields of its spec and status."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from tenantry.api.model import Model

MOST_SNAPSHOTS = 20
MOST_LISTED = MOST_SNAPSHOTS + 2
"""Of `status.snapshots`, with those of upgrades."""


class SnapshotSchedule(Model, frozen=True, kw_only=True):
    """When snapshots of a control plane are taken, how many are kept, and where."""

    schedule: Annotated[
        str,
        Meta(
            max_length=100,
            pattern=r"^([-0-9*,/]+( [-0-9*,/]+){4})?$",
            description='When snapshots are taken, as of cron, in UTC: "30 2 * * *" is 02:30 of each day. Without it,'
            " they are taken on request only.",
        ),
    ] = ""
    keep: Annotated[
        int,
        Meta(ge=1, le=MOST_SNAPSHOTS, description="How many snapshots are kept; the oldest is deleted for a new one."),
    ] = 5
    destination: Annotated[
        str,
        Meta(
            max_length=63,
            pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$",
            description="Where snapshots are kept: the name of one of spec.virtualControlPlanes.snapshotDestinations of"
            " TenancyDefaults. Without it, in a folder of the operator. From the next snapshot on, status.snapshots"
            " lists those there; others stay where they are, and are deleted with the control plane.",
        ),
    ] = ""


class PlaneSnapshots(SnapshotSchedule, frozen=True, kw_only=True):
    """Snapshots of a control plane, and requests for one and for a restore."""

    request: Annotated[
        str,
        Meta(
            max_length=64,
            description="Each new value, for example the time, takes one snapshot: see status.lastSnapshot.",
        ),
    ] = ""
    restore: Annotated[
        str,
        Meta(
            max_length=128,
            description="Each new value replaces all objects by those of a snapshot, once: its name, and after @"
            " anything, to repeat it. See status.lastRestore.",
        ),
    ] = ""


class PlaneSnapshot(Model, frozen=True, kw_only=True):
    """A snapshot of a control plane."""

    name: Annotated[str, Meta(description="Its name, for a restore.")] = ""
    time: Annotated[str, Meta(description="When it was taken.")] = ""
    revision: Annotated[int, Meta(description="The resourceVersion at which it has all objects.")] = 0
    size: Annotated[int, Meta(description="In bytes.")] = 0


class PlaneOutcome(Model, frozen=True, kw_only=True):
    """What became of a request for a snapshot or a restore."""

    requested: Annotated[str, Meta(description="The value of the field that was answered last.")] = ""
    time: Annotated[str, Meta(description="When it was done, or failed.")] = ""
    snapshot: Annotated[str, Meta(description="The name of the snapshot; empty if there is none.")] = ""
    message: Annotated[str, Meta(description="Why it failed; empty if it is done.")] = ""


MOST_IGNORED = 8
MOST_SOAK_SECONDS = 7 * 86400


class UpgradeSettings(Model, frozen=True, kw_only=True):
    """How a control plane comes to another version of Kubernetes."""

    soak_seconds: Annotated[
        int,
        Meta(
            ge=0,
            le=MOST_SOAK_SECONDS,
            description="Seconds for which the program of the next minor version behaves as the one before, once it is"
            " ready: until then, the version of before can be started again with all objects. 0 for no such time.",
        ),
    ] = 0
    ignore: Annotated[
        tuple[Annotated[str, Meta(max_length=63)], ...],
        Meta(
            max_length=MOST_IGNORED,
            description="Obstacles that do not hold back an upgrade, by the names that `tenantry cluster upgrade"
            " --plan` prints: DeprecatedApis, DisruptionBudgets, NodesNotReady, Skew, Webhooks.",
        ),
    ] = ()


class ClusterUpgrade(UpgradeSettings, frozen=True, kw_only=True):
    """How a cluster comes to another version of Kubernetes."""

    soak_seconds: Annotated[
        int,
        Meta(
            ge=0,
            le=MOST_SOAK_SECONDS,
            description="Seconds for which the program of the next minor version behaves as the one before, once it is"
            " ready: until then, `tenantry cluster upgrade --abort` starts the version of before again with all"
            " objects. 0 for no such time.",
        ),
    ] = 60


class PlaneUpgrade(Model, frozen=True, kw_only=True):
    """The last upgrade of a control plane to another version of Kubernetes."""

    before: Annotated[str, Meta(description="The version that it had.")] = ""
    after: Annotated[str, Meta(description="The version that it gets.")] = ""
    snapshot: Annotated[
        str,
        Meta(description="Has all objects from before the upgrade; spec.snapshots.keep does not count it."),
    ] = ""
    time: Annotated[str, Meta(description="When the snapshot was taken, or could not be.")] = ""
    started: Annotated[str, Meta(description="When the process of the new version was started first.")] = ""
    soaks: Annotated[
        bool,
        Meta(description="Whether the program of the new version behaves as the one before; status.version is that."),
    ] = False
    soaked: Annotated[
        str, Meta(description="When it was ready and began to soak; spec.upgrade.soakSeconds later, it is the new one.")
    ] = ""
    completed: Annotated[str, Meta(description="When the new version was ready; empty before.")] = ""
    message: Annotated[
        str, Meta(description="Why the upgrade did not begin; empty if it did. The version before runs on then.")
    ] = ""
    generation: Annotated[int, Meta(description="The metadata.generation at which it did not begin.")] = 0
