"""The control planes that are connected, for controllers that work on both sides of one."""

from __future__ import annotations

import msgspec

from tenantry.controllers.joining.podcounts import PodCounts
from tenantry.engine.cluster import Cluster
from tenantry.engine.reader import Reader
from tenantry.engine.writer import Writer
from tenantry.mirror.profile import Profile


class PlaneSides(msgspec.Struct, frozen=True, kw_only=True):
    """Both sides of a control plane.

    Args:
        profile: The configuration of its mirror.
        upper: Its API server, as an administrator inside.
        lower: Writes to its namespace on the host, as its mirror.
        reader: Reads there, as its mirror.
        is_mirrored: Whether a mirror follows what happens inside; not while its objects move to the host.
    """

    profile: Profile
    upper: Cluster
    lower: Writer
    reader: Reader
    is_mirrored: bool = True


class PlaneConnections:
    """The sides of the control planes that users can work with now, by key of the VirtualControlPlane.

    The links write them. `pods` counts the pods on nodes of those with nodes of their own.
    """

    def __init__(self) -> None:
        self.pods = PodCounts()
        self._sides: dict[str, PlaneSides] = {}

    def put(self, key: str, sides: PlaneSides | None) -> None:
        """Record the sides of a control plane; None when it is not connected any more."""
        if sides is None:
            self._sides.pop(key, None)
        else:
            self._sides[key] = sides

    def get(self, key: str) -> PlaneSides | None:
        """Return the sides of a control plane; None if it is not connected."""
        return self._sides.get(key)
