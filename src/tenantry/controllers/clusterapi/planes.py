"""A TenantryControlPlane: its children, the Secrets that Cluster API reads, and its status: pure.

    spec.version ─► VirtualControlPlane NAME-capi ─► its endpoint    ─► spec.controlPlaneEndpoint
                                                  ─► its kubeconfig  ─► Secrets CLUSTER-kubeconfig and CLUSTER-ca

The Secret CLUSTER-ca has the certificate and a text instead of the key: Cluster API's kubeadm bootstrap provider
computes the hash for kubeadm's discovery from the certificate, and requires a key that it does not use. With the key
of a CA, its holder could sign certificates of administrators of the cluster for ever.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

import msgspec

from tenantry.api import reasons
from tenantry.api.clusterapi import (
    CLUSTER_NAME,
    KUBECONFIG_VALUE,
    SECRET_TYPE,
    ApiEndpoint,
    ControlPlaneInitialization,
    ControlPlaneVersion,
    TenantryControlPlane,
    TenantryControlPlaneStatus,
    authority_name,
    kubeconfig_name,
    plane_name,
)
from tenantry.api.errors import AlreadyExists, Conflict, InputError, NotFound
from tenantry.api.marks import MANAGED_BY, MANAGER
from tenantry.api.model import Json
from tenantry.api.virtualcontrolplane import PlaneNodes, PlaneSleep, VirtualControlPlane, VirtualControlPlaneSpec
from tenantry.controllers import controlplane
from tenantry.controllers.children import deleted, kept, meta_of
from tenantry.controllers.clusterapi.children import (
    HELD,
    NO_CLUSTER,
    is_child,
    is_paused,
    taken,
)
from tenantry.controllers.clusterapi.children import with_finalizer as finalized
from tenantry.controllers.clusterapi.children import without_finalizer as released
from tenantry.controllers.conclusion import ready, trouble
from tenantry.engine import request
from tenantry.engine.conditions import Wanted, merge
from tenantry.engine.plan import Blocked, DirectWrite, Plan
from tenantry.hosting import versions
from tenantry.world.inheritance import SECRETS

AVAILABLE = "Available"
"""The condition that Cluster API shows as ControlPlaneAvailable of the Cluster."""

WITHHELD = b"not here: Tenantry alone signs with this key\n"
"""The value of tls.key in the Secret CLUSTER-ca."""


class PlaneInputs(msgspec.Struct, frozen=True, kw_only=True):
    """What decides about one TenantryControlPlane.

    Args:
        found: The TenantryControlPlane.
        cluster: The Cluster of its label, as JSON; None for none.
        plane: The VirtualControlPlane of its name, also one of another owner; None for none.
        kubeconfig: That of its users; "" while there is none.
        authority: The certificate of the CA in it, as PEM; b"" while there is none.
        secrets: The two Secrets of the Cluster as they are, by name.
    """

    found: TenantryControlPlane
    cluster: Json | None = None
    plane: VirtualControlPlane | None = None
    kubeconfig: str = ""
    authority: bytes = b""
    secrets: Mapping[str, Json] = {}

    @property
    def own_plane(self) -> VirtualControlPlane | None:
        """Return its VirtualControlPlane; None for none, or one of another owner."""
        return self.plane if self.plane is not None and is_child(self.found, self.plane) else None


def cluster_of(found: TenantryControlPlane) -> str:
    """Return the name of the Cluster of an object; "" for none."""
    return found.metadata.labels.get(CLUSTER_NAME, "")


def plane(found: TenantryControlPlane, before: VirtualControlPlane | None = None) -> VirtualControlPlane:
    """Return its VirtualControlPlane.

    Args:
        found: The TenantryControlPlane.
        before: The VirtualControlPlane as it is: what Cluster API does not decide stays.
    """
    kept_spec = before.spec if before is not None else VirtualControlPlaneSpec()
    spec = msgspec.structs.replace(
        kept_spec,
        version=versions.minor(found.spec.version),
        resources=found.spec.resources,
        nodes=PlaneNodes.OWN,
        # Cluster API always has a watch of the Nodes inside.
        sleep=PlaneSleep(after_idle_seconds=0),
    )
    return VirtualControlPlane(metadata=meta_of(found, plane_name(found.metadata.name)), spec=spec)


def plan(inputs: PlaneInputs) -> Plan:
    """Return the next writes; an empty plan if everything is as it should be."""
    found = inputs.found
    if found.metadata.deletion_timestamp:
        own = inputs.own_plane
        return Plan(writes=tuple(deleted([own])) if own is not None else released(found))
    if not cluster_of(found) or is_paused(found, inputs.cluster):
        return Plan()
    blocked = problems(inputs)
    if blocked:
        return Plan(blocked=tuple(blocked))
    # Before the first child: without it, a deletion would not wait for the nodes to be back.
    return Plan(
        before=finalized(found),
        writes=(*kept(plane(found, inputs.own_plane), inputs.own_plane), *_endpoint(inputs), *_secrets(inputs)),
    )


def problems(inputs: PlaneInputs) -> list[Blocked]:
    """Return what a person must change before the control plane can be complete."""
    found = inputs.found
    try:
        versions.minor(found.spec.version)
    except InputError as error:
        return [Blocked(reason=reasons.INVALID_SPEC, message=f"spec.version: {error}")]
    wrong = [taken(inputs.plane)] if inputs.plane is not None and inputs.own_plane is None else []
    for name, seen in inputs.secrets.items():
        if not _is_ours(found, seen):
            message = f"Secret {name!r} exists already and does not belong to this control plane: delete or rename it"
            wrong.append(Blocked(reason=reasons.OBJECT_EXISTS, message=message))
    return wrong


def _is_ours(found: TenantryControlPlane, seen: Json) -> bool:
    owners: list[Json] = seen["metadata"].get("ownerReferences") or []
    return any(each.get("controller") and each.get("uid") == found.metadata.uid for each in owners)


def endpoint_of(of: VirtualControlPlane | None) -> ApiEndpoint:
    """Return where the API server of a control plane is reached; an empty one if that is not known yet."""
    parts = urlsplit(of.status.endpoint if of is not None else "")
    return ApiEndpoint(host=parts.hostname or "", port=parts.port or 443) if parts.hostname else ApiEndpoint()


def _endpoint(inputs: PlaneInputs) -> Iterable[DirectWrite]:
    wanted, found = endpoint_of(inputs.own_plane), inputs.found
    if wanted.host and wanted != found.spec.control_plane_endpoint:
        meta = found.metadata
        body: Json = {"spec": {"controlPlaneEndpoint": {"host": wanted.host, "port": wanted.port}}}
        yield DirectWrite(request=request.patch(found.resource, meta.namespace, meta.name, body))


def _secrets(inputs: PlaneInputs) -> Iterable[DirectWrite]:
    cluster = cluster_of(inputs.found)
    if not inputs.kubeconfig or not inputs.authority:
        return
    # Kubeconfigs are read as soon as they are there; the CA is needed at the same time.
    yield from _secret(inputs, authority_name(cluster), {"tls.crt": inputs.authority, "tls.key": WITHHELD})
    yield from _secret(inputs, kubeconfig_name(cluster), {KUBECONFIG_VALUE: inputs.kubeconfig.encode()})


def _secret(inputs: PlaneInputs, name: str, content: Mapping[str, bytes]) -> Iterable[DirectWrite]:
    found, seen = inputs.found, inputs.secrets.get(name)
    data = {key: base64.b64encode(value).decode() for key, value in content.items()}
    if seen is None:
        value: Json = {
            "metadata": {
                "name": name,
                "namespace": found.metadata.namespace,
                "labels": {CLUSTER_NAME: cluster_of(found), MANAGED_BY: MANAGER},
                "ownerReferences": [msgspec.to_builtins(each) for each in meta_of(found, name).owner_references],
            },
            "type": SECRET_TYPE,
            "data": data,
        }
        yield DirectWrite(request=request.create_json(SECRETS, value), ignores=(AlreadyExists,))
    elif seen.get("data") != data:
        body: Json = {"metadata": {"uid": seen["metadata"]["uid"]}, "data": data}
        patch = request.patch(SECRETS, found.metadata.namespace, name, body)
        yield DirectWrite(request=patch, ignores=(NotFound, Conflict))


def status(inputs: PlaneInputs, problem: Blocked | None, now: str) -> TenantryControlPlaneStatus:
    """Return the status.

    Args:
        inputs: The control plane with its children.
        problem: Why the last write failed; None if all were carried out.
        now: RFC 3339.
    """
    found, own = inputs.found, inputs.own_plane
    generation, before = found.metadata.generation, found.status
    obstacle = _obstacle(inputs, problem)
    works = obstacle is None
    running = own.status.version if own is not None else ""
    count = found.spec.replicas if isinstance(found.spec.replicas, int) else 0
    wanted = [
        ready(obstacle, "the API server serves its clients, and Cluster API has its kubeconfig"),
        *trouble(obstacle),
        _available(obstacle),
    ]
    return TenantryControlPlaneStatus(
        observed_generation=generation,
        initialization=ControlPlaneInitialization(
            control_plane_initialized=works or before.initialization.control_plane_initialized
        ),
        versions=(ControlPlaneVersion(version=f"v{running.removeprefix('v')}", replicas=1),) if running else (),
        external_managed_control_plane=True,
        replicas=count,
        ready_replicas=count if works else 0,
        available_replicas=count if works else 0,
        up_to_date_replicas=count if works else 0,
        conditions=merge(before.conditions, wanted, generation=generation, now=now),
    )


def _available(obstacle: Blocked | None) -> Wanted:
    if obstacle is None:
        return Wanted(AVAILABLE, True, reasons.ESTABLISHED, "the API server serves its clients")
    return Wanted(AVAILABLE, False, obstacle.reason, obstacle.message)


def _obstacle(inputs: PlaneInputs, problem: Blocked | None) -> Blocked | None:
    found = inputs.found
    if found.metadata.deletion_timestamp:
        return _ending(inputs)
    if not cluster_of(found):
        return NO_CLUSTER
    if is_paused(found, inputs.cluster):
        return HELD
    wrong = next(iter(problems(inputs)), None) or problem
    return wrong or controlplane.problem(plane_name(found.metadata.name), inputs.own_plane) or _unpublished(inputs)


def _unpublished(inputs: PlaneInputs) -> Blocked | None:
    """Return that Cluster API does not have yet what it needs; None if it has."""
    missing = [each for each in _names(inputs) if each not in inputs.secrets]
    if not missing and inputs.found.spec.control_plane_endpoint.host:
        return None
    told = "the endpoint and the Secrets for Cluster API are written"
    return Blocked(reason=reasons.PROGRESSING, message=told, passing=True)


def _ending(inputs: PlaneInputs) -> Blocked:
    own = inputs.own_plane
    told = f"VirtualControlPlane {own.key!r} ends with all objects inside" if own is not None else "nothing is left"
    return Blocked(reason=reasons.PROGRESSING, message=f"it ends: {told}", passing=True)


def _names(inputs: PlaneInputs) -> tuple[str, str]:
    cluster = cluster_of(inputs.found)
    return authority_name(cluster), kubeconfig_name(cluster)
