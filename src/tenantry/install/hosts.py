"""The policy that no host has two tenants. Pure.

Its parameters are all HostRegisters, each by itself: a host is refused if it stands in one as another's, or lies below
a wildcard of another's, or is a wildcard above a host of another's. Source: Kubernetes, "Validating Admission Policy".
"""

from __future__ import annotations

from typing import Any

from tenantry.api import marks
from tenantry.api.hostregister import HostRegister
from tenantry.install.policy import IN_TENANTS, binding, rule, says, validating
from tenantry.policy.hostnames import (
    EXPERIMENTAL,
    GATEWAY,
    HOSTS_OF_GATEWAY,
    HOSTS_OF_INGRESS,
    HOSTS_OF_ROUTE,
    IS_NEW,
    NETWORKING,
)

Json = dict[str, Any]

HOSTS = "tenantry-hosts"

MOST_HOSTS, MOST_WILDCARDS = 500, 16
"""Of one object: each wildcard is compared with all hosts that there are, and nobody is to keep the API server busy."""

_KINDS = (
    (NETWORKING, ["ingresses"]),
    (GATEWAY, ["httproutes", "grpcroutes", "tlsroutes", "gateways", "listenersets"]),
    (EXPERIMENTAL, ["xlistenersets"]),
)


def everything() -> list[Json]:
    """Return the policy and its binding."""
    return [_policy(), binding(HOSTS, paramRef={"selector": {}, "parameterNotFoundAction": "Allow"})]


def _policy() -> Json:
    def of_others(among: str, key: str) -> str:
        return f"variables.{among}[{key}].?tenantUid.orValue('') != variables.mine"

    def has_other(among: str) -> str:
        return f"h in variables.{among} && {of_others(among, 'h')}"

    def overlaps(among: str, lies: str) -> str:
        return f"variables.{among}.exists(k, {lies} && {of_others(among, 'k')})"

    below = "h.endsWith(k.substring(1))"
    above = "k.endsWith(s)"
    # A wildcard of the Gateway API stands for any number of labels.
    of_wildcard = f"{overlaps('hosts', above)} || {overlaps('wildcards', f'({below} || {above})')}"
    taken = (
        "variables.many ? [] : variables.wanted.filter(h, h.startsWith('*.')"
        f" ? {has_other('wildcards')} || [h.substring(1)].exists(s, {of_wildcard})"
        f" : {has_other('hosts')} || {overlaps('wildcards', below)})"
    )
    told = (
        "'the host \\'' + variables.taken[0] + '\\' is taken: another tenant, or the cluster itself, has it, or one"
        " that overlaps it; choose another one'"
    )
    return validating(
        HOSTS,
        [rule(group, resources, "CREATE", "UPDATE") for group, resources in _KINDS],
        [
            says(
                "!variables.many",
                f"it must not have more than {MOST_HOSTS} hosts, nor more than {MOST_WILDCARDS} that begin with *.",
            ),
            says("size(variables.taken) == 0", told, told=True),
        ],
        conditions=[{"name": "spec-is-new", "expression": IS_NEW}],
        where=IN_TENANTS,
        paramKind={"apiVersion": HostRegister.resource.api_version, "kind": HostRegister.resource.kind},
        variables=[
            {
                "name": "wanted",
                "expression": f"({HOSTS_OF_INGRESS} + {HOSTS_OF_ROUTE} + {HOSTS_OF_GATEWAY}).map(h, h.lowerAscii())",
            },
            {"name": "mine", "expression": f"namespaceObject.metadata.labels['{marks.TENANT_UID}']"},
            {"name": "hosts", "expression": "params.?spec.hosts.orValue({})"},
            {"name": "wildcards", "expression": "params.?spec.wildcards.orValue({})"},
            {
                "name": "many",
                "expression": f"size(variables.wanted) > {MOST_HOSTS}"
                f" || size(variables.wanted.filter(h, h.startsWith('*.'))) > {MOST_WILDCARDS}",
            },
            {"name": "taken", "expression": taken},
        ],
    )
