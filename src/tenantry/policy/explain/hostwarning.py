"""The warning inside a virtual control plane about pods that the host refuses: as it is told, and as it is read. Pure.

controllers/virtualcontrolplane ─► told ─► Warning header ─► read ─► `tenantry explain denied`
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec.structs import replace

from tenantry.api.tenancyrules import Section
from tenantry.policy.explain.refusal import FORBIDDEN, Cause, Obstacle, of_refusal

THIS_POD, ITS_PODS = "this pod", "its pods"
_SAID = re.compile(rf"the host refuses ({THIS_POD}|{ITS_PODS}): (.*)")
# CODE AGENT "TEXT" (RFC 7234, section 5.5)
_HEADER = re.compile(r'\d{3} \S+ "((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")


def told(what: str, refusal: str) -> str:
    """Return the warning, which is one line as headers are.

    Args:
        what: THIS_POD or ITS_PODS.
        refusal: The message of the host.
    """
    return f"the host refuses {what}: {' '.join(refusal.split())}"


def named(causes: Iterable[Cause], rules: Section) -> Section:
    """Return rules with those that the host names: of these, a refusal has all that the check needs.

    Rules with values, such as the images that are allowed, are not known from a refusal.

    Args:
        causes: What the host refuses.
        rules: The rules that are known.
    """
    told = {each.rule: each.source for each in causes if each.rule}
    return replace(rules, refused={**rules.refused, **told})


def read(header: str, about: str) -> Cause | None:
    """Return the cause that a Warning header names; None if it is another warning.

    Args:
        header: The value of the header.
        about: The part of the manifest that the request created; "" for all of it.
    """
    text = _HEADER.match(header)
    said = _SAID.fullmatch(_ESCAPED.sub(r"\1", text[1])) if text is not None else None
    if said is None:
        return None
    found = of_refusal(FORBIDDEN, said[2], about or ("" if said[1] == THIS_POD else "each of its pods"))
    # Kubernetes inside accepts the object.
    return replace(found, by=Obstacle.HOST) if found.by is Obstacle.KUBERNETES else found
