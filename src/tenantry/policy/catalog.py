"""All rules, and all kinds of objects that they decide on. Everything else about rules is derived from here. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from tenantry.api.tenancyrules import Section
from tenantry.policy.check import RuleCheck, RuleTarget, Violation
from tenantry.policy.request import Request, Review
from tenantry.policy.rules import (
    annotationkeys,
    containers,
    devices,
    hostnames,
    images,
    namespaces,
    objects,
    podsecurity,
    priorityclasses,
    runtimeclasses,
    scheduling,
    services,
    storageclasses,
    tokens,
)
from tenantry.policy.targets import claims, configuration, hosts, pods, sizes

CHECKS: tuple[RuleCheck, ...] = (
    *podsecurity.CHECKS,
    *images.CHECKS,
    *runtimeclasses.CHECKS,
    *priorityclasses.CHECKS,
    *scheduling.CHECKS,
    *containers.CHECKS,
    *services.CHECKS,
    *storageclasses.CHECKS,
    *hostnames.CHECKS,
    *annotationkeys.CHECKS,
    *devices.CHECKS,
    *namespaces.CHECKS,
    *objects.CHECKS,
    *tokens.CHECKS,
)
"""In the order in which messages name what is wrong."""

TARGETS: tuple[RuleTarget, ...] = (
    pods.PODS,
    pods.SANDBOX,
    services.SERVICES,
    services.ENDPOINTS,
    services.ENDPOINT_SLICES,
    claims.CLAIMS,
    hosts.INGRESSES,
    hosts.ROUTES,
    hosts.STREAM_ROUTES,
    hosts.GATEWAYS,
    hosts.LISTENER_SETS,
    hosts.POD_RECORDS,
    namespaces.SUBNAMESPACES,
    devices.RESOURCE_CLAIMS,
    configuration.CONFIGURATION,
    sizes.SIZES,
    tokens.TOKEN_REQUESTS,
)


def checks_of(target: RuleTarget) -> list[RuleCheck]:
    """Return the checks of one kind of object."""
    return [check for check in CHECKS if check.scope.target == target.name]


def decides(target: RuleTarget, section: Section) -> bool:
    """Return whether a section has a rule about a kind of object."""
    return any(check.is_in(section) for check in checks_of(target))


def violations(request: Request, rules: Section, targets: Iterable[RuleTarget] = TARGETS) -> list[Violation]:
    """Return everything in a request that one section of a namespace's rules refuses: the API server's answer.

    Args:
        request: The request.
        rules: The section.
        targets: The kinds of objects whose rules are asked.
    """
    review = Review(request, rules)
    matched = [target for target in targets if target.matches(request)]
    found = [finding for target in matched for check in checks_of(target) for finding in check.violations(review)]
    return [*found, *storageclasses.kept(review)]
