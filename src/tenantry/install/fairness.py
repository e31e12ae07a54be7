"""Fairness at the API server: the level that all tenants share, and who is served elsewhere (H06). Pure.

    the masters, nodes, Kubernetes' controllers, the operator ─► their own levels, as without Tenantry
    whom TenancyDefaults trust                               ─► workload-low, as without Tenantry
    at most four tenants that have a level of their own      ─► that
    everybody else who is authenticated                      ─► tenantry-tenants, in turns by user

Source: Kubernetes, "API Priority and Fairness".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenantry.install.rights import LABELS

Json = dict[str, Any]

API_VERSION = "flowcontrol.apiserver.k8s.io/v1"
TENANTS = "tenantry-tenants"
COMPONENTS = "tenantry-components"

SHARES = 1
"""Of the API server's seats, beside 245 that Kubernetes' own levels have: 3 of the usual 600.

Whoever has a seat is at work, so seats are how many processors tenants can keep busy at the same time. Fair queues
share seats out, but take none away from a request that has one: with more seats than there are processors to spare,
whoever comes next waits for a processor behind those who flood, and no queue helps [measured: docs/benchmarks.md].
"""

QUEUES = 512
HAND_SIZE = 6
"""A user's requests wait in the shortest of so many queues, drawn by its name.

That all six are among those of sixteen who flood has a chance of 1 in 44 thousand; with Kubernetes' usual 128 queues it
would be 1 in 45. A queue costs a few hundred bytes.
"""

QUEUE_LENGTH = 50
"""Of one queue: a user may have 300 requests waiting, and is told to come again (429) after that.

Waiting costs nearly nothing. A shorter queue would cost more: refusals are quick, and whoever floods comes back.
"""

COMPONENTS_PRECEDENCE = 790
TRUSTED_PRECEDENCE = 8600
RESERVED_PRECEDENCE = 8700
TENANTS_PRECEDENCE = 8800
"""After what is Kubernetes' own or an administrator's, ahead of service-accounts (9000) and global-default (9900)."""

_COMPONENTS = ("system:kube-proxy", "system:kube-dns")
_LOCAL_COMPONENTS = ("tenantry:kwok",)
"""What plays the nodes of a local cluster."""


def everything(subject: Json) -> list[Json]:
    """Return what every cluster gets.

    Args:
        subject: The operator, as RBAC names it; a User is that of a local cluster.
    """
    users = (*_COMPONENTS, *(_LOCAL_COMPONENTS if subject["kind"] == "User" else ()))
    return [
        level(TENANTS, SHARES),
        flow_schema(
            TENANTS, level_name=TENANTS, precedence=TENANTS_PRECEDENCE, subjects=[group("system:authenticated")]
        ),
        # They have users of their own where they are not pods of kube-system.
        flow_schema(
            COMPONENTS,
            level_name="system",
            precedence=COMPONENTS_PRECEDENCE,
            subjects=[{"kind": "User", "user": {"name": name}} for name in users],
        ),
    ]


def level(name: str, shares: int) -> Json:
    """Return a level whose seats are its own: it lends none, and borrows none when others have some to spare.

    Args:
        name: Of the level.
        shares: Of the API server's seats, in proportion to the shares of all levels.
    """
    queuing = {"queues": QUEUES, "handSize": HAND_SIZE, "queueLengthLimit": QUEUE_LENGTH}
    return {
        "apiVersion": API_VERSION,
        "kind": "PriorityLevelConfiguration",
        "metadata": {"name": name, "labels": dict(LABELS)},
        "spec": {
            "type": "Limited",
            "limited": {
                "nominalConcurrencyShares": shares,
                "lendablePercent": 0,
                "borrowingLimitPercent": 0,
                "limitResponse": {"type": "Queue", "queuing": queuing},
            },
        },
    }


def flow_schema(name: str, *, level_name: str, precedence: int, subjects: Sequence[Json]) -> Json:
    """Return what sends every request of some people to a level, in turns by user.

    Args:
        name: Of the FlowSchema.
        level_name: Where to.
        precedence: The lower, the earlier it is asked.
        subjects: Whose requests, at least one; see `group`.
    """
    every = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"], "clusterScope": True, "namespaces": ["*"]}
    anywhere = {"nonResourceURLs": ["*"], "verbs": ["*"]}
    return {
        "apiVersion": API_VERSION,
        "kind": "FlowSchema",
        "metadata": {"name": name, "labels": dict(LABELS)},
        "spec": {
            "priorityLevelConfiguration": {"name": level_name},
            "matchingPrecedence": precedence,
            "distinguisherMethod": {"type": "ByUser"},
            "rules": [{"subjects": list(subjects), "resourceRules": [every], "nonResourceRules": [anywhere]}],
        },
    }


def group(name: str) -> Json:
    """Return a group as a FlowSchema names it."""
    return {"kind": "Group", "group": {"name": name}}
