"""A manifest changed so that the rules accept it: refused fields are removed, or set to the required value. Pure.

What only the author can decide (another image, another host) is left as it is.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

from tenantry.api.model import Json
from tenantry.api.tenancyrules import Section
from tenantry.policy.check import Violation
from tenantry.policy.explain.parts import Part
from tenantry.policy.mend import at


def mended(manifest: Json, found: Sequence[tuple[Part, Violation]], rules: Section) -> Json:
    """Return a manifest that fewer rules refuse; an equal one if no rule has a fix.

    Args:
        manifest: As its author wrote it.
        found: The findings in its parts.
        rules: The rules that are enforced.
    """
    out = copy.deepcopy(manifest)
    for each, finding in found:
        value = at(out, each.path)
        if value is not None:
            finding.mend(value, rules)
    return out
