"""The nodes that a mirror of pods needs: one for each lower node (`UpperNodes`), or a single one that exists already.

lower node rack-7 ─► UpperNodes ─► upper node node-1f2e…    the mirror makes it, and binds pods to it
any lower node    ─► OneNode    ─► upper node east          pods are bound to it before they are mirrored
"""

from __future__ import annotations

from typing import Protocol

from tenantry.api.model import Json
from tenantry.engine.cluster import Watch
from tenantry.mirror.nodenames import LowerNode


class PodNodes(Protocol):
    """The nodes of an upper side, as far as the mirror of its pods needs them."""

    def watch(self) -> Watch | None:
        """Return the watch of the upper nodes; None if none is needed."""
        ...

    def name(self, lower: str) -> str:
        """Return the upper name of a lower node; "" if there is no such node."""
        ...

    def lower(self, upper: str) -> LowerNode | None:
        """Return the lower node of an upper name; None if pods may not select it by that name."""
        ...

    async def bring(self, lower: str) -> str:
        """Make sure that the upper node of a lower one exists; return its name.

        Raises:
            ApiError: One side refuses.
        """
        ...

    def shown(self, lower: Json) -> Json:
        """Return a lower pod with the addresses of upper nodes in place of those of lower ones."""
        ...


class OneNode:
    """A node that another program keeps, and that stands for the whole lower side.

    Args:
        node: Its name.
    """

    def __init__(self, node: str) -> None:
        self._node = node

    def watch(self) -> Watch | None:
        """Return None: the name is all that is needed."""
        return None

    def name(self, lower: str) -> str:  # noqa: ARG002 - see `PodNodes`
        """Return the name of the node."""
        return self._node

    def lower(self, upper: str) -> LowerNode | None:  # noqa: ARG002 - see `PodNodes`
        """Return None: the lower side chooses among its own nodes."""
        return None

    async def bring(self, lower: str) -> str:  # noqa: ARG002 - see `PodNodes`
        """Return the name of the node."""
        return self._node

    def shown(self, lower: Json) -> Json:
        """Return the lower pod as it is: `Profile.hidden` names the addresses that do not go up."""
        return lower
