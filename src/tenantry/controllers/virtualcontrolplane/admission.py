"""Objects inside whose lower object is made first: the host refuses them in its own words, at their creation.

kubectl apply ─► API server inside ─► Admission ─► ObjectMirror.make_first ─► host: ClusterIP, ports, or a refusal
◄── the Service with what the host has chosen ◄──┘
"""

from __future__ import annotations

from collections.abc import Iterable

from tenantry.api.errors import AlreadyExists, Conflict, Unreachable
from tenantry.controllers.virtualcontrolplane import advice
from tenantry.controllers.virtualcontrolplane.advice import Advice
from tenantry.hosting.admission import AdmissionAdvice, AdmissionAnswer, AdmissionRefusal, AdmissionRequest
from tenantry.hosting.plane import AdmissionRule
from tenantry.mirror.kinds.table import KINDS
from tenantry.mirror.objectmirror import ObjectMirror
from tenantry.mirror.shapes import NotTranslated, part

RULES = (
    *(AdmissionRule(group=each.resource.group, resource=each.resource.plural) for each in KINDS if each.chosen),
    *advice.RULES,
)
"""The requests that an API server inside asks about."""


class Admission:
    """The answers to one control plane.

    Args:
        mirrors: The mirrors of its objects.
        advisor: Answers about pods.
    """

    def __init__(self, mirrors: Iterable[ObjectMirror], advisor: Advice) -> None:
        self._mirrors = {(each.resource.group, each.resource.plural): each for each in mirrors if each.is_first}
        self._advice = advisor

    async def answer(self, asked: AdmissionRequest) -> AdmissionAnswer | AdmissionAdvice:
        """Have the lower object made, and return the object to store; or return advice.

        Raises:
            ApiError: The host refuses, or does not answer.
        """
        mirror = self._mirrors.get((asked.group, asked.resource))
        if mirror is None:
            return await self._advice.answer(asked)
        # Clients may come before: the step ends the wait in time.
        if not await mirror.settled():
            raise Unreachable("the host's objects are not known yet: try again in a few seconds")
        try:
            made = await mirror.make_first(asked.object, asked.old, is_dry_run=asked.is_dry_run)
            return AdmissionAnswer(object=made)
        except NotTranslated as error:
            refusal = AdmissionRefusal(code=422, reason="Invalid", message=f"{_named(asked)}: {error}")
            return AdmissionAnswer(refusal=refusal)
        except (AlreadyExists, Conflict):
            message = (
                f"{_named(asked)} is being written by another request, or its predecessor is being deleted: try again"
            )
            return AdmissionAnswer(
                refusal=AdmissionRefusal(code=409, reason="Conflict", message=message, retry_after_seconds=1)
            )


def _named(asked: AdmissionRequest) -> str:
    return f"{asked.resource} '{part(asked.object, 'metadata').get('name', '')}'"
