"""Serves the webhook in each replica, with the certificate of the Secret: the glue.

A response needs the namespace of an object and the parameters of its policy. They are read from the cache of the API
server for each review that needs them, so that a replica that does not lead keeps no caches of its own.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import ssl
from collections.abc import Sequence
from http import HTTPStatus

import msgspec

from tenantry.api.errors import ApiError, InputError, NotFound
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import Json
from tenantry.api.policyparameters import PolicyParameters
from tenantry.controllers.webhook.controller import found_keys, of_secret
from tenantry.controllers.webhook.mutations import AskedMutation, ServedMutation, asked, reviewed
from tenantry.engine.cluster import Cluster, ClusterId, Watch
from tenantry.engine.metrics import Metrics
from tenantry.engine.runtime import Runtime
from tenantry.hosting.reviews import serve_reviews
from tenantry.hosting.tlslistener import renew
from tenantry.policy.cel.values import EvaluationError

REVIEWS = ClusterId("reviews")
"""The cluster with the caches of the webhook: one Secret."""


class ServedCertificate(msgspec.Struct, frozen=True):
    """What the reconciler is about."""


_json = msgspec.json.Decoder(Json)

log = logging.getLogger(__name__)


class WebhookServer:
    """Answers reviews; its one reconciler takes in the certificate.

    Args:
        cluster: The API server.
        address: `host:port` to listen on.
        served: The mutations.
        metrics: Reviews are counted into.
    """

    name = "webhook-certificate"
    kind = ServedCertificate

    def __init__(self, cluster: Cluster, address: str, served: Sequence[ServedMutation], metrics: Metrics) -> None:
        self._cluster = cluster
        self._address = address
        self._served = {each.name: each for each in served}
        self._metrics = metrics
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_3
        self._has_certificate = asyncio.Event()
        self._token = ""
        self._serving = b""

    async def run(self, runtime: Runtime) -> None:
        """Serve until cancelled.

        Args:
            runtime: An empty one, which it runs.

        Raises:
            InputError: The address cannot be listened on.
        """
        runtime.add(self._cluster, [self])
        async with asyncio.TaskGroup() as group:
            group.create_task(runtime.run())
            await self._has_certificate.wait()
            async with serve_reviews(self._address, self._context, self._is_known, self._answer):
                log.info("mutations are served as a webhook", extra={"address": self._address})
                await asyncio.Event().wait()

    # -- the certificate --------------------------------------------------------------------------

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller: the Secret."""
        return [of_secret()]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - one key
        """Take in the certificate that is to be served."""
        known = found_keys(cluster)
        if known is None:
            return None
        self._token = known.token
        if known.serving.certificate != self._serving:
            # New connections have it; those that are open stay.
            renew(
                self._context,
                known.serving.certificate,
                known.serving.key,
                "the certificate of Secret tenantry-webhook",
            )
            self._serving = known.serving.certificate
            self._has_certificate.set()
            log.info("the webhook has another certificate")
        return None

    # -- reviews ----------------------------------------------------------------------------------

    def _is_known(self, path: str) -> bool:
        _, _, rest = path.partition("/")
        token, _, name = rest.partition("/")
        is_right = hmac.compare_digest(token.encode(), self._token.encode())
        return bool(self._token) and is_right and name in self._served

    async def _answer(self, path: str, body: bytes) -> tuple[HTTPStatus, bytes]:
        served = self._served[path.rpartition("/")[2]]
        status, answer = await self._reviewed(served, body)
        self._metrics.reviews.labels(served.name, str(status.value)).inc()
        return status, answer

    async def _reviewed(self, served: ServedMutation, body: bytes) -> tuple[HTTPStatus, bytes]:
        try:
            question = asked(body)
            namespace = await self._namespace(question) if served.reads_namespace else None
            params = await self._parameters(served, question) if served.parameter else None
            return HTTPStatus.OK, reviewed(served, question, namespace, params)
        except InputError as error:
            return HTTPStatus.BAD_REQUEST, _refusal(served, error)
        except (ApiError, EvaluationError) as error:
            # The API server counts it, and goes on without the mutation.
            log.warning("a request is not mutated", extra={"policy": served.name, "error": str(error)})
            return HTTPStatus.INTERNAL_SERVER_ERROR, _refusal(served, error)

    async def _namespace(self, question: AskedMutation) -> Json | None:
        if not question.namespace:
            return None
        return _json.decode(await self._cluster.live.recent(Namespace.resource, "", question.namespace))

    async def _parameters(self, served: ServedMutation, question: AskedMutation) -> Json:
        namespace = served.parameter_namespace or question.namespace
        try:
            found = await self._cluster.live.recent(PolicyParameters.resource, namespace, served.parameter)
        except NotFound as error:
            raise EvaluationError(
                f"LimitRange {served.parameter!r} of namespace {namespace!r} is missing: the operator writes it"
            ) from error
        return _json.decode(found)


def _refusal(served: ServedMutation, error: Exception) -> bytes:
    return msgspec.json.encode({"error": f"mutation {served.name}: {error}"})
