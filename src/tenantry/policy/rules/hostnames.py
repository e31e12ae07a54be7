"""Which hosts Ingresses, Gateways and routes may have, by the rules of their namespace.

That no host has two tenants is more than the rules of one namespace can decide; see `install/hosts.py`.
"""

from __future__ import annotations

import re

from tenantry.api.marks import TENANT
from tenantry.api.tenancyrules import Section
from tenantry.policy.check import CheckScope, Mend, Problem, RuleCheck, listed, quoted
from tenantry.policy.forms import allow, match, refuse
from tenantry.policy.mend import into
from tenantry.policy.request import Item, Json, Review, part, parts
from tenantry.policy.targets.hosts import GATEWAY_SCOPES, INGRESS, OLD_CLASS, ROUTE, classes_of_ingress, hosts_of
from tenantry.policy.targets.objects import strings

DOMAIN = "hostnames.domain"
CATCH_ALL = "hostnames.catchAll"
ALLOWED_HOSTS = "hostnames.allowed"
INGRESS_CLASSES = "hostnames.ingressClasses"

_TERMINATED = ("HTTP", "HTTPS", "TLS")
"""The protocols of listeners that tell hosts apart."""

PLAIN_HOST = r"^(?:[*][.])?[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?$"
_TOP_LEVEL = r"^[*][.][^.]+$"


# -- every host -----------------------------------------------------------------------------------


def _is_wide(host: str, _: Review) -> bool:
    return not re.fullmatch(PLAIN_HOST, host) or bool(re.fullmatch(_TOP_LEVEL, host))


def _of_each_host(scope: CheckScope, field: Json) -> tuple[RuleCheck, ...]:
    """Return the checks of each host of an object.

    Args:
        scope: The object.
        field: A fragment of one that has the host "*.com".
    """
    hosts = strings(scope, "variables.hosts", lambda review: hosts_of(review.request.object))
    what = "has the host"
    wide = refuse(
        CATCH_ALL,
        hosts,
        bad=f"!c.matches({quoted(PLAIN_HOST)}) || c.matches({quoted(_TOP_LEVEL)})",
        is_bad=_is_wide,
        what=what,
        value="c",
        fix="must be a host in lower case, or *. before a domain that is not top-level",
        example=field,
    )
    return (
        wide,
        match(ALLOWED_HOSTS, hosts, what=what, example=field, given=["a[.]x[.]example"]),
        _in_domain(hosts, field),
    )


def _in_domain(hosts: CheckScope, example: Json) -> RuleCheck:
    """Return the check that hosts are in the tenant's own part of a domain."""
    chosen = f"variables.chosen[{quoted(DOMAIN)}]"
    own = f"namespaceObject.metadata.labels['{TENANT}'] + '.' + {chosen}.value"

    def judge(host: str, review: Review) -> Problem | None:
        bound = review.rules.chosen[DOMAIN]
        own = f"{review.request.namespace_labels.get(TENANT, '')}.{bound.value}"
        if host == own or host.endswith(f".{own}"):
            return None
        return f"has the host '{host}'", bound.source, f"must be {own} or below it"

    return RuleCheck(
        rule=DOMAIN,
        form="chosen",
        scope=hosts,
        bad=f"c != {own} && !c.endsWith('.' + {own})",
        what="'has the host \\'' + c + '\\''",
        source=f"{chosen}.source",
        fix=f"'must be ' + {own} + ' or below it'",
        judge=judge,
        usual=True,
        example=example,
        given="example",
    )


# -- classes --------------------------------------------------------------------------------------


def _names_class(field: str, rule: str) -> Mend:
    def mend(value: Item, rules: Section) -> None:
        values = rules.allowed[rule].values
        if values:
            part(value, "metadata", "annotations").pop(OLD_CLASS, None)
            into(value, "spec")[field] = values[0]

    return mend


def _classes(scope: CheckScope, kind: str, rule: str, field: str) -> RuleCheck:
    def of(review: Review) -> list[str]:
        if kind == "IngressClass":
            return classes_of_ingress(review.request.object)
        return [review.spec[field]] if field in review.spec else []

    return allow(
        rule,
        strings(scope, "variables.classes", of),
        find=lambda name, allowed, _: None if name in allowed else name,
        what=f"has the {kind}",
        mend=_names_class(field, rule),
        example={"spec": {field: "public"}},
        given=["private"],
    )


# -- without a host -------------------------------------------------------------------------------


def _has_rule_without_host(ingress: Json, _: Review) -> bool:
    spec = part(ingress, "spec")
    return "defaultBackend" in spec or any(not each.get("host") for each in parts(spec, "rules"))


def _leads_elsewhere(route: Json, review: Review) -> bool:
    here = review.request.namespace
    return not hosts_of(route) and any(
        each.get("kind", "Gateway") != "Service" and (each.get("namespace") or here) != here
        for each in parts(route, "spec", "parentRefs")
    )


def _listens_to_all(gateway: Json, _: Review) -> bool:
    listeners = parts(gateway, "spec", "listeners")
    return any(each.get("protocol") in _TERMINATED and not each.get("hostname") for each in listeners)


def _of_gateway(scope: CheckScope) -> tuple[RuleCheck, ...]:
    """Return the checks of what has listeners: Gateways, and sets of listeners for the Gateways of others."""
    listener = {"name": "l", "port": 80, "protocol": "HTTP"}
    return (
        refuse(
            CATCH_ALL,
            scope,
            bad="has(object.spec.listeners) && object.spec.listeners.exists(l,"
            f" has(l.protocol) && l.protocol in {listed(_TERMINATED)} && (!has(l.hostname) || l.hostname == ''))",
            is_bad=_listens_to_all,
            what="has a listener without a host, which matches every host",
            fix="give each listener a hostname",
            example={"spec": {"listeners": [listener]}},
        ),
        *_of_each_host(scope, {"spec": {"listeners": [{**listener, "hostname": "*.com"}]}}),
        _classes(scope, "GatewayClass", "hostnames.gatewayClasses", "gatewayClassName"),
    )


CHECKS = (
    refuse(
        CATCH_ALL,
        INGRESS,
        bad="has(object.spec.defaultBackend)"
        " || has(object.spec.rules) && object.spec.rules.exists(r, !has(r.host) || r.host == '')",
        is_bad=_has_rule_without_host,
        what="has no host, and so matches every host",
        fix="give each rule a host, and leave out defaultBackend",
        example={"spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}},
    ),
    *_of_each_host(INGRESS, {"spec": {"rules": [{"host": "*.com"}]}}),
    _classes(INGRESS, "IngressClass", INGRESS_CLASSES, "ingressClassName"),
    refuse(
        CATCH_ALL,
        ROUTE,
        # At a Gateway of its own namespace a route gets the hosts of the listeners, which are checked.
        bad="size(variables.hosts) == 0 && has(object.spec.parentRefs) && object.spec.parentRefs.exists(p,"
        " (!has(p.kind) || p.kind != 'Service') && has(p.namespace) && !(p.namespace in ['', request.namespace]))",
        is_bad=_leads_elsewhere,
        what="has no host, and so matches every host of a Gateway in another namespace",
        fix="give it hostnames",
        example={"spec": {"hostnames": [], "parentRefs": [{"name": "g", "namespace": "other"}]}},
    ),
    *_of_each_host(ROUTE, {"spec": {"hostnames": ["*.com"]}}),
    *(check for scope in GATEWAY_SCOPES for check in _of_gateway(scope)),
)
