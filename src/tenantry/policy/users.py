"""Users that several policies tell apart: CEL, and the same in Python. Pure."""

from __future__ import annotations

from tenantry.api.contribution import PREFIX
from tenantry.policy.request import Request

CONTROLLERS = "system:serviceaccount:kube-system:"
"""The start of the names of Kubernetes' controllers, each of which has a ServiceAccount."""

DAEMON_SETS = f"{CONTROLLERS}daemon-set-controller"

CONTROL_PLANE = (
    f"(request.userInfo.username.startsWith('{CONTROLLERS}') || request.userInfo.username.startsWith('system:kube-'))"
)
"""CEL: the request comes from one of Kubernetes' own controllers or its scheduler."""


def is_control_plane(user: str) -> bool:
    """Return whether a user is one of Kubernetes' own controllers or its scheduler."""
    return user.startswith((CONTROLLERS, "system:kube-"))


_NODES, _POD = "system:nodes", "pods"
_CONTRIBUTED = f"system:node:{PREFIX}"

NOT_MIRRORED = (
    f"!('{_NODES}' in request.userInfo.groups && request.resource.resource == '{_POD}'"
    f" && !request.userInfo.username.startsWith('{_CONTRIBUTED}'))"
)
"""CEL: the request is not a kubelet's, as its mirror of a static pod, which runs already.

The owner of a contributed node writes all that its kubelet may write: it is not spared.
"""


def is_mirrored(request: Request) -> bool:
    """Return whether the request is a kubelet's, as its mirror of a static pod."""
    return _NODES in request.groups and request.resource == _POD and not request.user.startswith(_CONTRIBUTED)
