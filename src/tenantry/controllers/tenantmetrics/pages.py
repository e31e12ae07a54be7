"""The two pages of metrics: an open one, and one with the series of tenants.

    --metrics-address         HTTP    operator; tenants, too, if only this machine reaches it
    --secure-metrics-address  HTTPS   operator and tenants, for clients that may get /metrics; see `scrapers`

The certificate of the second signs itself: a scraper does not check it (`insecureSkipVerify`), as with projects made by
kubebuilder, and its token is not readable on the way.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from cryptography import x509

from tenantry.controllers.tenantmetrics.gather import gather, pending
from tenantry.controllers.tenantmetrics.scrapers import Scrapers, Send
from tenantry.controllers.tenantmetrics.series import TenantSeries
from tenantry.engine.clock import Clock
from tenantry.engine.cluster import Cluster
from tenantry.engine.metrics import Metrics
from tenantry.hosting.operatorpages import LIMITS, LIMITS_OF_THIS_MACHINE, serve, serve_to_clients
from tenantry.hosting.selfsigned import self_signed
from tenantry.hosting.tlslistener import server_context

_LIFE = dt.timedelta(days=3650)
"""A process is younger; its certificate ends with it."""

_NAME = "tenantry-operator.tenantry-system.svc"


class Pages:
    """Contents of the pages.

    Args:
        metrics: Of the operator.
        refresh: Called before each page.
        home: Returns the cluster whose caches have the tenants; None while this replica does not lead.
        most_tenants: How many tenants get series of their own.
    """

    def __init__(
        self, metrics: Metrics, refresh: Callable[[], object], home: Callable[[], Cluster | None], most_tenants: int
    ) -> None:
        self._metrics = metrics
        self._refresh = refresh
        self._home = home
        self._most = most_tenants

    def operator(self) -> bytes:
        """Return the series of the operator."""
        self._refresh()
        return self._metrics.text()

    def everything(self) -> bytes:
        """Return the series of the operator, and on the leader those of tenants."""
        self._refresh()
        home = self._home()
        if home is None or not home.is_synced:
            return self._metrics.text()
        return self._metrics.text(TenantSeries(lambda: (gather(home), pending(home)), self._most))


@asynccontextmanager
async def served(
    pages: Pages, is_ready: Callable[[], bool], *, address: str, secure_address: str, send: Send, clock: Clock
) -> AsyncGenerator[None]:
    """Serve both pages while the context is open.

    Args:
        pages: Their contents.
        is_ready: Returns whether /readyz reports that this replica is ready.
        address: `host:port` of the open page.
        secure_address: `host:port` of the other; "" for none.
        send: For reviews of clients; see `Scrapers`.
        clock: The time.

    Raises:
        InputError: An address does not parse, or its port is taken.
    """
    is_own = is_loopback(address)
    page, limits = (pages.everything, LIMITS_OF_THIS_MACHINE) if is_own else (pages.operator, LIMITS)
    async with serve(address, page, is_ready, limits):
        if not secure_address:
            yield
            return
        certificate, key = self_signed(_NAME, [x509.DNSName(_NAME)], now=clock.now(), life=_LIFE)
        context = server_context(certificate, key, "the certificate of --secure-metrics-address")
        verdict = Scrapers(send, clock).verdict
        limits = LIMITS_OF_THIS_MACHINE if is_loopback(secure_address) else LIMITS
        async with serve_to_clients(secure_address, context, pages.everything, verdict, limits):
            yield


def is_loopback(address: str) -> bool:
    """Return whether only this machine reaches an address `host:port`; a name counts as reachable by others."""
    try:
        return ipaddress.ip_address(address.rpartition(":")[0].strip("[]")).is_loopback
    except ValueError:
        return False
