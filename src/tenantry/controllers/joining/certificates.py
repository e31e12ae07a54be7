"""Until when the certificates of a machine are valid inside the control plane that it serves: pure.

    approved request ─► its time and its lifetime ─► status.certificates of the NodeHandover ─► a sleep that ends before

The requests stay for an hour after their approval, so that an operator that ends in between loses nothing. The end is
counted from the request, which is a moment before the signature. A kubelet renews a certificate when 70 to 90 % of its
lifetime are over, and tries every half minute then.

Source: k8s.io/client-go, util/certificate, `nextRotationDeadline`; k8s.io/kubernetes, pkg/controller/certificates.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable

from tenantry.api.errors import InputError
from tenantry.api.nodehandover import HandoverStage, KubeletCertificates, NodeHandover
from tenantry.api.signing import CLIENT, SERVING, SigningRequest
from tenantry.engine.clock import rfc3339
from tenantry.hosting.plane import SIGNED_HOURS
from tenantry.world.leases import instant

LIFE = dt.timedelta(hours=SIGNED_HOURS)

MARGIN = LIFE / 10
"""How long before the end of a certificate every kubelet wants another one."""


def ends(before: KubeletCertificates, requests: Iterable[SigningRequest]) -> KubeletCertificates:
    """Return until when the certificates of a machine are valid.

    Args:
        before: What is known already.
        requests: The requests that concern it.
    """
    latest = {CLIENT: before.client, SERVING: before.serving}
    for asked in requests:
        end = _end(asked)
        known = _instant(latest.get(asked.spec.signer_name, ""))
        if end is not None and (known is None or end > known):
            latest[asked.spec.signer_name] = rfc3339(end)
    return KubeletCertificates(client=latest[CLIENT], serving=latest[SERVING])


def _end(asked: SigningRequest) -> dt.datetime | None:
    """Return when the certificate of a request ends; None if it has none."""
    since = _instant(asked.metadata.creation_timestamp)
    if since is None or not any(each.type == "Approved" for each in asked.status.conditions):
        return None
    own = dt.timedelta(seconds=asked.spec.expiration_seconds)
    return since + (min(own, LIFE) if own else LIFE)


def first_end(found: Iterable[NodeHandover], now: dt.datetime) -> dt.datetime | None:
    """Return when the first certificate of nodes that serve a control plane ends; None for none.

    Args:
        found: Their NodeHandovers. A machine that is not Ready, because it is off, renews nothing: it does not count.
        now: The time: a certificate that has ended is not waited for, because no kubelet can renew it.
    """
    texts = (
        text
        for each in found
        if not each.metadata.deletion_timestamp and each.status.stage is HandoverStage.JOINED
        for text in (each.status.certificates.client, each.status.certificates.serving)
    )
    return min((end for text in texts if (end := _instant(text)) is not None and end > now), default=None)


def _instant(text: str | None) -> dt.datetime | None:
    try:
        return instant(text or "")
    except InputError:
        return None
