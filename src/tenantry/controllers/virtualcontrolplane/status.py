"""The status of a VirtualControlPlane: pure."""

from __future__ import annotations

from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.clusterguards import Guards
from tenantry.api.errors import ApiError
from tenantry.api.virtualcontrolplane import PlaneNodes, VirtualControlPlane, VirtualControlPlaneStatus
from tenantry.controllers.conclusion import ready, trouble
from tenantry.controllers.virtualcontrolplane import guarding, upgrade
from tenantry.engine.conditions import Wanted, merge
from tenantry.engine.plan import Blocked

_READY = "the API server is ready, and pods are mirrored"
_READY_WITH_NODES = "the API server is ready, and its own scheduler places its pods on the nodes that join it"
_SUSPENDED = Wanted(
    reasons.READY,
    True,
    reasons.TENANT_SUSPENDED,
    "its process runs, and its pods, too, but its users are refused with a 503 until the suspension of the tenant ends",
)

STARTING = Blocked(
    reason=reasons.PROGRESSING, message="the control plane starts: its API server is not usable yet", passing=True
)

AWAY = Blocked(
    reason=reasons.API_ERROR,
    message="the API server of the control plane does not answer; its pods run on, and the operator tries again",
    passing=True,
)


def unkept(error: ApiError) -> Blocked:
    """Return what to report while the API server of the host refuses to bring an object of the control plane back.

    Args:
        error: The refusal.
    """
    return Blocked(
        reason=reasons.API_ERROR,
        message=f"its ServiceAccount, Role, RoleBinding or Secret on the host cannot be restored: {error}",
        passing=True,
    )


def unbound(refusal: str) -> Blocked | None:
    """Return what to report while the API server inside refuses the write of the users' binding.

    Args:
        refusal: Its answer; "" if it does not refuse.
    """
    if not refusal:
        return None
    return Blocked(
        reason=reasons.API_ERROR,
        message=(
            "the ClusterRoleBinding of its users inside cannot be written, by which a suspension takes their rights;"
            f" policies or webhooks inside may refuse it: {refusal}"
        ),
        passing=True,
    )


def disconnected(failure: str, refusal: str, *, has_arrived: bool, answers: bool) -> Blocked | None:
    """Return what to report about the connection of the operator to a control plane; None if it is usable.

    Args:
        failure: Why the connection cannot be made; "" if it can.
        refusal: As for `unbound`, if the users have no rights.
        has_arrived: Whether it has been usable since it was made.
        answers: Whether its API server answers.
    """
    if failure:
        return Blocked(reason=reasons.NOT_PLACED, message=f"the operator cannot connect to it: {failure}")
    if not has_arrived:
        return STARTING
    return unbound(refusal) if answers else AWAY


def unreachable(why: str) -> Blocked | None:
    """Return what to report while no client can connect to a control plane that runs.

    Args:
        why: Why, and what to do; "" if clients can connect.
    """
    if not why:
        return None
    return Blocked(reason=reasons.UNREACHABLE, message=f"its clients cannot connect: {why}", passing=True)


def failing_snapshots(message: str) -> Wanted:
    """Return the condition about the last snapshot.

    Args:
        message: Why it failed; "" if it did not.
    """
    return Wanted(reasons.SNAPSHOTS_FAILING, bool(message), reasons.SNAPSHOT_FAILED, message, only_true=True)


def compute(
    found: VirtualControlPlane,
    problem: Blocked | None,
    *,
    short: Blocked | None = None,
    unlimited: str = "",
    endpoint: str,
    now: str,
    is_suspended: bool = False,
    guards: Guards | None = None,
    waits: str = "",
) -> VirtualControlPlaneStatus:
    """Return the status to write.

    Args:
        found: Its generation and its conditions so far.
        problem: What stands in the way; None if the control plane is usable.
        short: What keeps a control plane that runs from the resources that its spec requests.
        unlimited: Why the limits of its process are not enforced; "" if they are, or if it does not run.
        endpoint: The URL of its API server; "" if it does not run.
        now: RFC 3339.
        is_suspended: Whether its tenant is suspended, so that users get a 503. The process runs on, so that it is
            Ready, and its Tenant, too.
        guards: Those that its process was started with; None if none is known to run.
        waits: Why it stays awake although it is to sleep; "" if it is not to, or does.
    """
    generation = found.metadata.generation
    usual = _READY_WITH_NODES if found.spec.nodes is PlaneNodes.OWN else _READY
    verdict = (
        _SUSPENDED
        if is_suspended and problem is None
        else ready(problem, f"{usual}; it does not sleep yet: {waits}" if waits else usual)
    )
    wanted = [verdict, *trouble(problem or short), *upgrade.condition(found, short), *guarding.condition(found, guards)]
    if unlimited:
        message = f"nothing keeps its process within spec.resources: {unlimited}"
        wanted.append(Wanted(reasons.UNLIMITED, True, reasons.NOT_ENFORCED, message, only_true=True))
    if failing := found.status.last_snapshot.message:
        wanted.append(failing_snapshots(failing))
    before = found.status.conditions
    # The controller of the contents writes it.
    contents = [each for each in before if each.type == reasons.ADD_ONS_READY]
    told = (*merge(before, wanted, generation=generation, now=now), *contents)
    return replace(
        found.status,
        observed_generation=generation,
        endpoint=endpoint,
        conditions=tuple(sorted(told, key=lambda each: each.type)),
    )
