"""Keeps the certificates of the webhook and its MutatingWebhookConfiguration: the glue of the leader.

    Secret tenantry-webhook ─► certificates ─► MutatingWebhookConfiguration tenantry-mutations, caBundle included
                                           └─► every replica serves them; see `server`

A change of either object by another client wakes the controller, which restores what differs. The installed ClusterRole
with the rights for this owns both: when it is deleted, by `helm uninstall` or by an upgrade to mutating policies, the
garbage collector deletes them, and the controller of a replica that still runs writes neither again.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import secrets
from collections.abc import Sequence

import msgspec
from cryptography import x509

from tenantry.api.kubernetes import RBAC_GROUP
from tenantry.api.marks import SYSTEM_NAMESPACE
from tenantry.api.model import Json, Resource
from tenantry.controllers.webhook import keys
from tenantry.controllers.webhook.keys import KeyPair, WebhookKeys
from tenantry.controllers.webhook.mutations import (
    CONFIGURATION,
    KEYS_OBJECT,
    ROLE,
    ServedMutation,
    WebhookPlace,
    configuration,
    is_as_written,
)
from tenantry.engine import request
from tenantry.engine.cluster import Cluster, Watch
from tenantry.hosting.selfsigned import self_signed

CONFIGURATIONS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    namespaced=False,
)
ROLES = Resource(RBAC_GROUP, "v1", "clusterroles", "ClusterRole", namespaced=False, selected=ROLE)
"""The one ClusterRole, cached apart from all others."""

KEY = "webhook"
"""The one key."""

_MOST_SECONDS = 86_400.0
_json = msgspec.json.Decoder(Json)


class StoredJson(msgspec.Struct, frozen=True, gc=False):
    """An object of which all fields count: its key, its resourceVersion and its JSON."""

    key: str
    version: int
    uid: str
    body: bytes

    def value(self) -> Json:
        """Return the object."""
        return _json.decode(self.body)


def stored(raw: msgspec.Raw) -> StoredJson:
    """Decode an object for a cache."""
    meta = _json.decode(raw)["metadata"]
    namespace: str = meta.get("namespace", "")
    key = f"{namespace}/{meta['name']}" if namespace else meta["name"]
    return StoredJson(key, int(meta["resourceVersion"]), meta["uid"], bytes(raw))


def of_secret() -> Watch:
    """Return the watch of the Secret."""
    return Watch(
        resource=keys.SECRETS,
        decode=stored,
        keys=lambda _: [KEY],
        selectors={"fieldSelector": f"metadata.name={KEYS_OBJECT},metadata.namespace={SYSTEM_NAMESPACE}"},
    )


def owned(value: Json, role: StoredJson) -> Json:
    """Return an object with the ClusterRole as its only owner."""
    owner: Json = {"apiVersion": ROLES.api_version, "kind": ROLES.kind, "name": role.key, "uid": role.uid}
    return {**value, "metadata": {**value["metadata"], "ownerReferences": [owner]}}


def is_owned(live: Json, role: StoredJson) -> bool:
    """Return whether the ClusterRole is the only owner of an object, so that the object ends with the role."""
    return [each.get("uid") for each in live["metadata"].get("ownerReferences") or ()] == [role.uid]


def found_secret(cluster: Cluster) -> Json | None:
    """Return the Secret as the cache has it."""
    found: StoredJson | None = cluster.cache(keys.SECRETS).get(f"{SYSTEM_NAMESPACE}/{KEYS_OBJECT}")
    return found.value() if found is not None else None


def found_keys(cluster: Cluster) -> WebhookKeys | None:
    """Return the certificates as the cache has them."""
    return keys.read(found_secret(cluster))


class WebhookController:
    """Reconciles the Secret and the configuration; the key is always `KEY`.

    Args:
        served: The mutations.
        place: Where the webhook is.
    """

    name = "webhook"
    kind = ServedMutation

    def __init__(self, served: Sequence[ServedMutation], place: WebhookPlace) -> None:
        self._served = served
        self._place = place

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller: its two objects, and their owner."""
        return [
            of_secret(),
            Watch(
                resource=CONFIGURATIONS,
                decode=stored,
                keys=lambda _: [KEY],
                selectors={"fieldSelector": f"metadata.name={CONFIGURATION}"},
            ),
            Watch(
                resource=ROLES,
                decode=stored,
                keys=lambda _: [KEY],
                selectors={"fieldSelector": f"metadata.name={ROLE}"},
            ),
        ]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - one key
        """Write what is missing or due; return in how many seconds to look again.

        Raises:
            ApiError: The API server failed; the queue tries again.
        """
        now = cluster.clock.now()
        role: StoredJson | None = cluster.cache(ROLES).get(ROLE)
        if role is None:
            return None  # the rights have ended, and with them the webhook
        secret = found_secret(cluster)
        known = keys.read(secret)
        if known is None:
            known = WebhookKeys(token=secrets.token_hex(16), serving=self._pair(now))
            await self._keep(cluster, known, role)
        elif keys.is_due(known, now):
            known = msgspec.structs.replace(known, following=self._pair(now))
            await self._keep(cluster, known, role)
        elif secret is not None and not is_owned(secret, role):
            await self._keep(cluster, known, role)
        wanted = owned(configuration(self._served, self._place, f"/{known.token}", known.authorities), role)
        found: StoredJson | None = cluster.cache(CONFIGURATIONS).get(CONFIGURATION)
        live = found.value() if found is not None else None
        if live is None or not (is_as_written(live, wanted) and is_owned(live, role)):
            if live is None:
                # RBAC grants a creation of one name only to an apply.
                await cluster.writer.own(request.apply(CONFIGURATIONS, wanted))
            else:
                # An apply would leave the entries that other clients added to lists and maps.
                replaced = owned({**live, "webhooks": wanted["webhooks"]}, role)
                await cluster.writer.own(request.replace_json(CONFIGURATIONS, replaced))
            # The certificate that follows must have been trusted for a while.
            return keys.OVERLAP.total_seconds()
        if known.following is not None:
            left = _trusted_at(known.following) - now
            if left > dt.timedelta():
                return left.total_seconds()
            await self._keep(cluster, keys.promoted(known), role)
            return None
        return min(max((keys.renewal(known.serving) - now).total_seconds(), 1.0), _MOST_SECONDS)

    def _pair(self, now: dt.datetime) -> KeyPair:
        name = self._place.name
        try:
            own: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(name))
        except ValueError:
            own = x509.DNSName(name)
        return KeyPair(*self_signed("tenantry-operator", [own], now=now, life=keys.LIFE))

    @staticmethod
    async def _keep(cluster: Cluster, known: WebhookKeys, role: StoredJson) -> None:
        await cluster.writer.own(request.apply(keys.SECRETS, owned(keys.written(known), role)))


def _trusted_at(pair: KeyPair) -> dt.datetime:
    """Return when the API server has had time to take in a new certificate, which begins before it was made."""
    found = x509.load_pem_x509_certificate(pair.certificate)
    return found.not_valid_after_utc - keys.LIFE + keys.OVERLAP
