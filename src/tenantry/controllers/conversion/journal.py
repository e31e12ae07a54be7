"""The steps of a conversion, and the writes that record them: pure.

requested ─► Refused ◄─► Preparing ─► Moving ─► Converted
└──────────┴─► the spec is what it was: no journal
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import UNSET
from msgspec.structs import replace

from tenantry.api.controlplanechoice import ControlPlaneChoice
from tenantry.api.conversion import BRINGER, CHILD_BRINGER, CONVERTER, UNDONE_BY_SPEC, Conversion, ConversionStep
from tenantry.api.kubernetes import RBAC_GROUP, Namespace, RoleBinding, RoleRef, Subject
from tenantry.api.marks import CONTROL_PLANE, CONVERTING, MANAGED_BY, MANAGER, OWNER_ROLE
from tenantry.api.model import ObjectMeta
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.api.virtualcontrolplane import MIRRORS_NAMESPACE
from tenantry.controllers import controlplane
from tenantry.engine import request
from tenantry.engine.observed import Observed
from tenantry.engine.request import ApiRequest

_MOST_TEXT = 2000


def of(owner: Tenant | Subnamespace) -> Conversion | None:
    """Return the journal of a Tenant or Subnamespace; None if it has none."""
    found = owner.status.conversion
    return found if isinstance(found, Conversion) else None


def is_leaving(owner: Tenant | Subnamespace) -> bool:
    """Return whether the journal is that of a return to the API server of the cluster."""
    found = of(owner)
    return found is not None and found.to is ControlPlaneChoice.SHARED


def is_undone(owner: Tenant | Subnamespace) -> bool:
    """Return whether a conversion that was requested is to be undone: the spec is what it was."""
    found = of(owner)
    return found is not None and found.to is not owner.spec.isolation.control_plane and found.step in UNDONE_BY_SPEC


def at(owner: Tenant | Subnamespace, step: ConversionStep, message: str, now: str) -> Conversion:
    """Return the journal at a step.

    Args:
        owner: The Tenant or Subnamespace; its journal so far goes on, unless that is of an earlier conversion.
        step: The step.
        message: What happens now.
        now: RFC 3339.
    """
    to, found = owner.spec.isolation.control_plane, of(owner)
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


def begun(owner: Tenant | Subnamespace, now: str) -> Conversion | None:
    """Return the journal of a return of which everything can move; from here on, it only goes on.

    Args:
        owner: The Tenant or Subnamespace.
        now: RFC 3339.
    """
    found = of(owner)
    return replace(found, begun_at=found.begun_at or now) if found is not None else None


def written(owner: Tenant | Subnamespace, journal: Conversion | None) -> ApiRequest | None:
    """Return the request that writes a journal; None if it is as it should be.

    Args:
        owner: The Tenant or Subnamespace.
        journal: What it should be; None for none.
    """
    if journal == of(owner):
        return None
    status = replace(owner.status, conversion=journal if journal is not None else UNSET)
    return request.replace(replace(owner, status=status), "status")


def is_closed(owner: Tenant | Subnamespace, namespace: Observed | Namespace | None) -> bool:
    """Return whether the namespace of an owner has the labels of the step Moving."""
    found = (namespace.labels if isinstance(namespace, Observed) else namespace.metadata.labels) if namespace else {}
    return found.get(CONTROL_PLANE) == owner.metadata.name and CONVERTING in found


def rights(owner: Tenant | Subnamespace, places: Iterable[str] = ()) -> tuple[RoleBinding, ...]:
    """Return the RoleBindings by which the mirror of the namespace moves its objects.

    What leaves a control plane, the mirror creates with the rights that the owners have in a namespace of the host: the
    API server refuses each Role and RoleBinding that they could not create.

    Args:
        owner: The Tenant or Subnamespace.
        places: The child namespaces to which objects of other namespaces inside move.
    """
    name = controlplane.namespace_of(owner)
    roles = {(name, CONVERTER): CONVERTER}
    if is_leaving(owner):
        roles[name, BRINGER] = OWNER_ROLE
        roles |= {(each, CHILD_BRINGER): OWNER_ROLE for each in places}
    return tuple(
        RoleBinding(
            metadata=ObjectMeta(name=binding, namespace=namespace, labels={MANAGED_BY: MANAGER}),
            role_ref=RoleRef(kind="ClusterRole", name=role, api_group=RBAC_GROUP),
            subjects=(Subject(kind="ServiceAccount", name=name, namespace=MIRRORS_NAMESPACE),),
        )
        for (namespace, binding), role in roles.items()
    )
