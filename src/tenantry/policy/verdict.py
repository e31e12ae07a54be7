"""What the rules of a namespace have against a request, in Python: what the API server would answer."""

from __future__ import annotations

from tenantry.api.tenancyrules import Section
from tenantry.policy import storage
from tenantry.policy.compile import SUBJECTS
from tenantry.policy.request import Finding, Judged, Request


def findings(request: Request, rules: Section) -> list[Finding]:
    """Return everything that one section of a namespace's rules has against a request.

    The API server tells the first of each policy when it refuses, and all of them as warnings.
    """
    judged = Judged(request, rules)
    return [*(finding for subject in SUBJECTS for finding in subject.findings(judged)), *storage.kept(judged)]
