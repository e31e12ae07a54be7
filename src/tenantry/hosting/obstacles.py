"""What stands in the way of another version of Kubernetes in a cluster with nodes: pure.

    nodes, metrics, webhooks, budgets of a control plane ─► UpgradeFacts ─► obstacles, each with a name to ignore it by

Sources: Kubernetes, "Version Skew Policy"; "Deprecated API Migration Guide" (apiserver_requested_deprecated_apis).
"""

from __future__ import annotations

import enum
import re
from collections.abc import Collection, Iterator

import msgspec

from tenantry.api.wording import shortened
from tenantry.hosting import versions

_KUBELET = re.compile(r"v?\d{1,3}\.\d{1,4}\.\d{1,4}")

MOST_SKEW = 3
"""How many minor versions a kubelet may be older than its API server."""


class ObstacleName(enum.StrEnum):
    """What an obstacle is called."""

    VERSION = "Version"
    """Nothing goes past this one."""

    SKEW = "Skew"
    NODES_NOT_READY = "NodesNotReady"
    DEPRECATED_APIS = "DeprecatedApis"
    WEBHOOKS = "Webhooks"
    DISRUPTION_BUDGETS = "DisruptionBudgets"


IGNORABLE = tuple(each for each in ObstacleName if each is not ObstacleName.VERSION)


class NodeFact(msgspec.Struct, frozen=True, kw_only=True):
    """A node inside.

    Args:
        name: Its name.
        kubelet: The version of its kubelet, as in "v1.35.4"; "" if it reports none.
        is_ready: Whether it is Ready.
    """

    name: str
    kubelet: str = ""
    is_ready: bool = True


class DeprecatedUse(msgspec.Struct, frozen=True, kw_only=True):
    """A deprecated API that clients have used since the process began.

    Args:
        api: As in "flowcontrol.apiserver.k8s.io/v1beta3 flowschemas".
        removed: The minor version without it, as in "1.36"; "" if none is known.
    """

    api: str
    removed: str


class UpgradeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a control plane reports.

    Args:
        nodes: Its nodes.
        deprecated: Deprecated APIs that are in use.
        webhooks: Webhooks with `failurePolicy: Fail` that no pod answers: their names, and why.
        budgets: PodDisruptionBudgets that allow no eviction, as NAMESPACE/NAME.
    """

    nodes: tuple[NodeFact, ...] = ()
    deprecated: tuple[DeprecatedUse, ...] = ()
    webhooks: tuple[str, ...] = ()
    budgets: tuple[str, ...] = ()


class UpgradeObstacle(msgspec.Struct, frozen=True, kw_only=True):
    """What stands in the way.

    Args:
        name: Its name.
        message: What it is, and what to do.
    """

    name: ObstacleName
    message: str


def find(facts: UpgradeFacts, wanted: str, ignored: Collection[str] = ()) -> tuple[UpgradeObstacle, ...]:
    """Return what stands in the way of a version, in the order of `ObstacleName`.

    Args:
        facts: Of the control plane.
        wanted: The patch release.
        ignored: Names of obstacles that are left out.
    """
    return tuple(each for each in _all(facts, wanted) if each.name not in ignored)


def told(found: Collection[UpgradeObstacle]) -> str:
    """Return obstacles in words."""
    return "; ".join(f"{each.name}: {each.message}" for each in found)


def _all(facts: UpgradeFacts, wanted: str) -> Iterator[UpgradeObstacle]:
    skewed = [f"{each.name} ({each.kubelet})" for each in facts.nodes if each.kubelet and _is_skewed(each, wanted)]
    if skewed:
        yield UpgradeObstacle(
            name=ObstacleName.SKEW,
            message=f"kubelets may be at most {MOST_SKEW} minor versions before the API server, and not after it: let"
            f" these nodes leave and join again: {shortened(skewed)}",
        )
    away = [each.name for each in facts.nodes if not each.is_ready]
    if away:
        yield UpgradeObstacle(
            name=ObstacleName.NODES_NOT_READY,
            message="these nodes are not Ready, so that the effect of the upgrade on them is unknown:"
            f" {shortened(away)}",
        )
    removed = [f"{each.api} (without it: {each.removed})" for each in facts.deprecated if _is_gone(each, wanted)]
    if removed:
        yield UpgradeObstacle(
            name=ObstacleName.DEPRECATED_APIS,
            message=f"clients use what Kubernetes {versions.minor(wanted)} does not serve: {shortened(removed)}",
        )
    if facts.webhooks:
        yield UpgradeObstacle(
            name=ObstacleName.WEBHOOKS,
            message="no pod answers these webhooks, which refuse every request with failurePolicy Fail:"
            f" {shortened(facts.webhooks)}",
        )
    if facts.budgets:
        yield UpgradeObstacle(
            name=ObstacleName.DISRUPTION_BUDGETS,
            message=f"these PodDisruptionBudgets allow no eviction, so that no node can be replaced:"
            f" {shortened(facts.budgets)}",
        )


def _is_skewed(found: NodeFact, wanted: str) -> bool:
    known = _KUBELET.match(found.kubelet)
    if known is None:
        return False  # what simulates a node has versions of its own
    step = versions.minors_between(known[0], wanted)
    return step < 0 or step > MOST_SKEW


def _is_gone(found: DeprecatedUse, wanted: str) -> bool:
    return bool(found.removed) and not versions.is_before(wanted, found.removed)
