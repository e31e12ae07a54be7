"""The steps of a conversion, and the writes that record them: pure.

requested ─► Refused ◄─► Preparing ─► Moving ─► Converted
└──────────┴─► the spec is what it was: no journal
"""

from __future__ import annotations

from msgspec import UNSET
from msgspec.structs import replace

from tenantry.api.controlplanechoice import ControlPlaneChoice
from tenantry.api.conversion import BRINGER, CONVERTER, UNDONE_BY_SPEC, Conversion, ConversionStep
from tenantry.api.kubernetes import RBAC_GROUP, Namespace, RoleBinding, RoleRef, Subject
from tenantry.api.marks import CONTROL_PLANE, CONVERTING, MANAGED_BY, MANAGER, OWNER_ROLE
from tenantry.api.model import ObjectMeta
from tenantry.api.tenant import Tenant
from tenantry.api.virtualcontrolplane import MIRRORS_NAMESPACE
from tenantry.engine import request
from tenantry.engine.observed import Observed
from tenantry.engine.request import ApiRequest

_MOST_TEXT = 2000


def of(tenant: Tenant) -> Conversion | None:
    """Return the journal of a tenant; None if it has none."""
    found = tenant.status.conversion
    return found if isinstance(found, Conversion) else None


def is_leaving(tenant: Tenant) -> bool:
    """Return whether the journal is that of a return to the API server of the cluster."""
    found = of(tenant)
    return found is not None and found.to is ControlPlaneChoice.SHARED


def is_undone(tenant: Tenant) -> bool:
    """Return whether a conversion that was requested is to be undone: the spec is what it was."""
    found = of(tenant)
    return found is not None and found.to is not tenant.spec.isolation.control_plane and found.step in UNDONE_BY_SPEC


def at(tenant: Tenant, step: ConversionStep, message: str, now: str) -> Conversion:
    """Return the journal at a step.

    Args:
        tenant: The Tenant; its journal so far goes on, unless that is of an earlier conversion.
        step: The step.
        message: What happens now.
        now: RFC 3339.
    """
    to, found = tenant.spec.isolation.control_plane, of(tenant)
    if found is None or found.to is not to:
        found = Conversion(to=to, step=step, started_at=now)
    changed = replace(found, step=step, message=message[:_MOST_TEXT])
    if step is ConversionStep.MOVING and not found.closed_at:
        changed = replace(changed, closed_at=now)
    if step in UNDONE_BY_SPEC:
        # What was refused at the last moment opens the namespace again.
        changed = replace(changed, closed_at="")
    if step is ConversionStep.CONVERTED and not found.ended_at:
        changed = replace(changed, ended_at=now)
    return changed


def begun(tenant: Tenant, now: str) -> Conversion | None:
    """Return the journal of a return of which everything can move; from here on, it only goes on.

    Args:
        tenant: The Tenant.
        now: RFC 3339.
    """
    found = of(tenant)
    return replace(found, begun_at=found.begun_at or now) if found is not None else None


def written(tenant: Tenant, journal: Conversion | None) -> ApiRequest | None:
    """Return the request that writes a journal; None if it is as it should be.

    Args:
        tenant: The Tenant.
        journal: What it should be; None for none.
    """
    if journal == of(tenant):
        return None
    status = replace(tenant.status, conversion=journal if journal is not None else UNSET)
    return request.replace(replace(tenant, status=status), "status")


def is_closed(tenant: Tenant, namespace: Observed | Namespace | None) -> bool:
    """Return whether the namespace of a tenant has the labels of the step Moving."""
    found = (namespace.labels if isinstance(namespace, Observed) else namespace.metadata.labels) if namespace else {}
    return found.get(CONTROL_PLANE) == tenant.metadata.name and CONVERTING in found


def rights(tenant: Tenant) -> tuple[RoleBinding, ...]:
    """Return the RoleBindings by which the mirror of the namespace moves its objects.

    What leaves a control plane, the mirror creates with the rights that the owners have in a namespace of the host: the
    API server refuses each Role and RoleBinding that they could not create.
    """
    roles = {CONVERTER: CONVERTER, **({BRINGER: OWNER_ROLE} if is_leaving(tenant) else {})}
    name = tenant.metadata.name
    return tuple(
        RoleBinding(
            metadata=ObjectMeta(name=binding, namespace=name, labels={MANAGED_BY: MANAGER}),
            role_ref=RoleRef(kind="ClusterRole", name=role, api_group=RBAC_GROUP),
            subjects=(Subject(kind="ServiceAccount", name=name, namespace=MIRRORS_NAMESPACE),),
        )
        for binding, role in roles.items()
    )
