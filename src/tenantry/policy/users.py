"""Users that several policies tell apart: CEL, and the same in Python. Pure."""

from __future__ import annotations

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


NOT_MIRRORED = "!('system:nodes' in request.userInfo.groups)"
"""CEL: the request is not a kubelet's, as its mirror of a static pod, which runs already."""


def is_mirrored(request: Request) -> bool:
    """Return whether the request is a kubelet's, as its mirror of a static pod."""
    return "system:nodes" in request.groups
