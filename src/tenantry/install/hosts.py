"""The policy that refuses a host that another network zone has. Pure.

Its parameters are the objects of the register, each evaluated by itself: a host is refused if another zone has it,
a wildcard above it, or a host below it if it is a wildcard. Source: Kubernetes, "Validating Admission Policy".
"""

from __future__ import annotations

from tenantry.api import marks
from tenantry.api.hostregister import FIELD, HOSTS_MARK, LINE, SEPARATOR, WILDCARDS
from tenantry.api.model import Json
from tenantry.api.policyparameters import PREFIX as KEY
from tenantry.api.tenancyrules import OWN_MARK
from tenantry.install.policy import IN_TENANTS, PARAM_KIND, binding, rule, says, validating
from tenantry.policy.targets.hosts import (
    EXPERIMENTAL,
    GATEWAY,
    HOSTS_OF_GATEWAY,
    HOSTS_OF_INGRESS,
    HOSTS_OF_ROUTE,
    IS_NEW,
    NETWORKING,
)
from tenantry.policy.text import has_parameter, parameter

HOSTS = "tenantry-hosts"

MOST_HOSTS, MOST_WILDCARDS = 500, 16
"""Limits of one object: each wildcard is compared with all registered hosts, which costs the API server time."""

_LINE, _FIELD = (f"'{each}'".replace("\n", "\\n") for each in (LINE, FIELD))
_ENDS = f"h.substring(1) + {_FIELD}"
_OVERLAP = "(k.endsWith(h.substring(1)) || h.endsWith(k))"

_WILDCARDS = (
    f"{parameter(WILDCARDS)}.split({_LINE}).filter(l, l != '').map(l, l.split({_FIELD}))"
    ".transformMapEntry(i, f, {f[0]: f[1]})"
)
_HOSTS = "params.?metadata.annotations.orValue({})"  # more than the register, but without a copy of it

_KINDS = (
    (NETWORKING, ["ingresses"]),
    (GATEWAY, ["httproutes", "grpcroutes", "tlsroutes", "gateways", "listenersets"]),
    (EXPERIMENTAL, ["xlistenersets"]),
)


def everything() -> list[Json]:
    """Return the policy and its binding."""
    register: Json = {
        "namespace": marks.SYSTEM_NAMESPACE,
        "selector": {"matchLabels": {OWN_MARK: HOSTS_MARK}},
        "parameterNotFoundAction": "Allow",  # no tenant has a host
    }
    return [_policy(), binding(HOSTS, paramRef=register)]


def _policy() -> Json:
    def overlaps(lies: str) -> str:
        return f"variables.held.exists(k, {lies} && !variables.held[k].startsWith(variables.mine))"

    # The register stores a wildcard without its *; it matches any number of labels, as in the Gateway API. Hosts are
    # lines, grouped by their length: only a wildcard is compared with all of them.
    of_wildcards = f"h.startsWith('*.') ? {overlaps(_OVERLAP)} : {overlaps('h.endsWith(k)')}"
    above = (
        f"variables.held.exists(k, k.startsWith('{KEY}') && variables.held[k].contains({_ENDS})"
        f" && variables.held[k].split({_LINE})"
        f".exists(l, l.contains({_ENDS}) && !l.contains({_FIELD} + variables.mine)))"
    )
    same = (
        f"['{KEY}' + string(size(h))].exists(k, k in variables.held"
        f" && variables.held[k].contains({_LINE} + h + {_FIELD})"
        f" && !variables.held[k].contains({_LINE} + h + {_FIELD} + variables.mine))"
    )
    taken = (
        f"variables.many ? [] : variables.wild ? variables.wanted.filter(h, {of_wildcards})"
        f" : variables.wanted.filter(h, h.startsWith('*.') ? {above} : {same})"
    )
    told = (
        "'the host \\'' + variables.taken[0] + '\\' is taken: another tenant or Subtenant, or the cluster itself, has"
        " it, or one that overlaps it; choose another one'"
    )
    return validating(
        HOSTS,
        [rule(group, resources) for group, resources in _KINDS],
        [
            says(
                "!variables.many",
                f"it must not have more than {MOST_HOSTS} hosts, nor more than {MOST_WILDCARDS} that begin with *.",
            ),
            says("size(variables.taken) == 0", told, told=True),
        ],
        conditions={"spec-is-new": IS_NEW},
        where=IN_TENANTS,
        params=PARAM_KIND,
        variables={
            "wanted": f"({HOSTS_OF_INGRESS} + {HOSTS_OF_ROUTE} + {HOSTS_OF_GATEWAY}).map(h, h.lowerAscii())",
            "mine": (
                f"namespaceObject.metadata.labels[?'{marks.ZONE}']"
                f".orValue(namespaceObject.metadata.labels['{marks.TENANT_UID}']) + '{SEPARATOR}'"
            ),
            "wild": has_parameter(WILDCARDS),
            "held": f"variables.wild ? dyn({_WILDCARDS}) : dyn({_HOSTS})",
            "many": (
                f"size(variables.wanted) > {MOST_HOSTS}"
                f" || size(variables.wanted.filter(h, h.startsWith('*.'))) > {MOST_WILDCARDS}"
            ),
            "taken": taken,
        },
    )
