"""Asks the lower side whether it would accept a pod, without making one."""

from __future__ import annotations

from msgspec.structs import replace

from tenantry.api.errors import AlreadyExists
from tenantry.api.model import Json
from tenantry.engine import request
from tenantry.mirror import pods
from tenantry.mirror.decision import BOUND_BY_USER
from tenantry.mirror.podnodes import PodNodes
from tenantry.mirror.profile import Profile
from tenantry.mirror.refusals import REFUSALS, upper_words
from tenantry.mirror.shapes import part
from tenantry.mirror.side import LowerSide
from tenantry.mirror.things import PODS


class PodTrial:
    """Tries pods out on the lower side.

    Args:
        profile: The configuration.
        lower: The lower side.
        upper_nodes: The nodes of the upper side.
    """

    def __init__(self, profile: Profile, lower: LowerSide, upper_nodes: PodNodes) -> None:
        self._profile = profile
        self._lower = lower
        self._nodes = upper_nodes

    async def refusal(self, upper: Json) -> str:
        """Return why an upper pod would have no lower one; "" if it would.

        Args:
            upper: The pod, which need not be stored.

        Raises:
            ApiError: The lower side does not answer.
        """
        if part(upper, "spec").get("nodeName"):
            return BOUND_BY_USER
        made = pods.down(upper, self._profile, self._nodes.lower)
        if made.refusal:
            return made.refusal
        meta = part(upper, "metadata")
        try:
            await self._lower.writer.send(replace(request.create_json(PODS, made.object), is_dry_run=True))
        except AlreadyExists:
            return ""  # nothing but its name is in the way, which is the upper side's to refuse
        except REFUSALS as error:
            return str(upper_words(error, self._profile, PODS.kind, meta["namespace"], meta["name"]))
        return ""
