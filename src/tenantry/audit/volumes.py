"""Asks the API server whether Kubernetes would bind volumes that exist to new claims of the audited namespace.

A claim that the API server admits may bind any volume of its class: the class may be unknown, or have no provisioner.
Only an update of the PersistentVolume by Kubernetes' volume binder decides. So the person who audits sends that update
as the binder, as a dry run.

Source: Kubernetes, "Persistent Volumes" (binding).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tenantry.api.errors import ApiError, Forbidden, NotFound
from tenantry.api.model import Json
from tenantry.audit import kinds
from tenantry.audit.attempts import DRY_RUN
from tenantry.audit.verdict import refused_by
from tenantry.kube import wire
from tenantry.kube.client import Client
from tenantry.policy.request import part

BINDER = "system:serviceaccount:kube-system:persistent-volume-binder"
TRIED = 3
"""How many volumes are tried, those without a claim first."""


async def bound(client: Client, namespace: str, name: str, volumes: Sequence[Json]) -> dict[str, str] | None:
    """Return by volume what refuses to bind it to a new claim; "" if nothing does.

    Args:
        client: The client of the person who audits, who may impersonate the binder.
        namespace: The audited namespace.
        name: The name of the claim, which does not exist.
        volumes: The cluster's volumes.

    Returns:
        None if the person may not impersonate the binder.
    """
    # Kubernetes binds no volume that is being deleted (k8s.io/component-helpers, storage/volume).
    there = [each for each in volumes if "deletionTimestamp" not in part(each, "metadata")]
    foreign = [each for each in there if part(each, "spec", "claimRef").get("namespace") != namespace]
    foreign.sort(key=lambda each: (bool(part(each, "spec", "claimRef")), part(each, "metadata")["name"]))
    found: dict[str, str] = {}
    as_binder = msgspec.structs.replace(client.connection, impersonate=BINDER, impersonate_groups=())
    async with Client(as_binder, field_manager=client.field_manager, max_connections=1) as binder:
        for each in foreign[:TRIED]:
            volume = str(part(each, "metadata")["name"])
            claim = {"apiVersion": "v1", "kind": kinds.CLAIMS.kind, "namespace": namespace, "name": name, "uid": name}
            body = {**each, "apiVersion": "v1", "kind": kinds.VOLUMES.kind, "spec": {**each["spec"], "claimRef": claim}}
            url = wire.path(kinds.VOLUMES, "", volume)
            try:
                await binder.request("PUT", url, query=DRY_RUN, body=wire.encode_json(body))
            except NotFound:
                continue
            except Forbidden as error:
                found[volume] = refused_by(str(error))
            except ApiError:
                continue  # it has changed since it was read
            else:
                found[volume] = ""
    return None if "RBAC" in found.values() else found
