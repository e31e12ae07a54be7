"""Ingresses, Gateways and routes: the host names that they ask for, in CEL and in Python.

Sources: Kubernetes, "Ingress"; Gateway API v1.5, HTTPRoute, GRPCRoute, TLSRoute, Gateway and ListenerSet.
"""

from __future__ import annotations

from tenantry.policy.check import CheckScope, RuleTarget, listed, matches, quoted
from tenantry.policy.request import Json, Request, is_new, part, parts, texts
from tenantry.policy.targets.objects import whole
from tenantry.policy.users import CONTROL_PLANE, is_control_plane

ALIASES = (
    "haproxy-ingress.github.io/server-alias",
    "konghq.com/host-aliases",
    "nginx.ingress.kubernetes.io/server-alias",
)
"""Annotations by which an Ingress gets more hosts, separated by commas. Sources: the controllers' manuals."""

OLD_CLASS = "kubernetes.io/ingress.class"
"""The annotation that still names the class. Source: Kubernetes, "Ingress" (deprecated annotation)."""

NETWORKING = "networking.k8s.io"
GATEWAY = "gateway.networking.k8s.io"
EXPERIMENTAL = "gateway.networking.x-k8s.io"

_SPLIT = ".join(',').split(',').map(h, h.trim()).filter(h, h != '')"
_ANNOTATIONS = "(has(object.metadata.annotations) ? object.metadata.annotations : {})"
HOSTS_OF_INGRESS = (
    "((has(object.spec.rules) ? object.spec.rules : []).map(r, has(r.host) ? r.host : '')"
    " + (has(object.spec.tls) ? object.spec.tls : []).map(t, has(t.hosts) ? t.hosts.join(',') : '')"
    f" + {listed(ALIASES)}.map(a, a in {_ANNOTATIONS} ? {_ANNOTATIONS}[a] : '')){_SPLIT}"
)
HOSTS_OF_ROUTE = "(has(object.spec.hostnames) ? object.spec.hostnames : [])"
HOSTS_OF_GATEWAY = (
    "(has(object.spec.listeners) ? object.spec.listeners : []).map(l, has(l.hostname) ? l.hostname : '')"
    ".filter(h, h != '')"
)


def hosts_of(value: Json) -> list[str]:
    """Return the hosts of an Ingress, a route or a Gateway, as they are written."""
    spec, annotations = part(value, "spec"), part(value, "metadata", "annotations")
    found: list[str] = [each.get("host") or "" for each in parts(spec, "rules")]
    found += [host for each in parts(spec, "tls") for host in texts(each, "hosts")]
    found += [annotations.get(alias, "") for alias in ALIASES]
    found = [each.strip() for text in found for each in text.split(",")]
    found += texts(spec, "hostnames")
    found += [each.get("hostname") or "" for each in parts(spec, "listeners")]
    return [each for each in found if each]


def offered_by(value: Json) -> list[str]:
    """Return the hosts of a Gateway's listeners that routes of other namespaces may have, as they are written.

    Source: Gateway API, AllowedRoutes (the default is `Same`).
    """
    listeners = parts(value, "spec", "listeners")
    found = [each for each in listeners if part(each, "allowedRoutes", "namespaces").get("from", "Same") != "Same"]
    return [each["hostname"] for each in found if each.get("hostname")]


_SPEC_IS_NEW = "request.operation == 'CREATE' || object.?spec != oldObject.?spec"
_ANNOTATIONS_ARE_NEW = "object.?metadata.annotations.orValue({}) != oldObject.?metadata.annotations.orValue({})"
IS_NEW = f"{_SPEC_IS_NEW} || {_ANNOTATIONS_ARE_NEW}"

# Controllers of load balancers annotate objects of tenants; those that may update all of them are part of the cluster.
_OF_CLUSTER = (
    f"({CONTROL_PLANE} || authorizer.group(request.resource.group).resource(request.resource.resource)"
    ".namespace('kube-system').check('update').allowed())"
)
IS_WRITTEN = f"{_SPEC_IS_NEW} || ({_ANNOTATIONS_ARE_NEW}) && !{_OF_CLUSTER}"
"""CEL: the request creates an object, changes its spec, or changes its annotations as a user of the namespace."""


def is_written(request: Request) -> bool:
    """Return the same in Python, which knows only Kubernetes' own controllers."""
    return is_new(request, "spec") or (is_new(request, "metadata.annotations") and not is_control_plane(request.user))


def _target(name: str, group: str, *resources: str, **variables: str) -> RuleTarget:
    return RuleTarget(
        name=name,
        group=group,
        resources=resources,
        conditions={"is-written": IS_WRITTEN},
        variables=variables,
        concerns=is_written,
    )


_LISTENING = {
    "hosts": HOSTS_OF_GATEWAY,
    "classes": "has(object.spec.gatewayClassName) ? [object.spec.gatewayClassName] : []",
}
INGRESSES = _target(
    "ingresses",
    NETWORKING,
    "ingresses",
    hosts=HOSTS_OF_INGRESS,
    named="(has(object.spec.ingressClassName) ? [object.spec.ingressClassName] : [])"
    f" + ('{OLD_CLASS}' in {_ANNOTATIONS} ? [{_ANNOTATIONS}['{OLD_CLASS}']] : [])",
    classes="size(variables.named) > 0 ? variables.named : ['']",
)
ROUTES = _target("routes", GATEWAY, "httproutes", "grpcroutes", "tlsroutes", hosts=HOSTS_OF_ROUTE)
STREAM_ROUTES = _target("streamroutes", GATEWAY, "tcproutes", "udproutes")
"""Routes without hosts, which have annotations for ExternalDNS."""

GATEWAYS = _target("gateways", GATEWAY, "gateways", "listenersets", **_LISTENING)
LISTENER_SETS = _target("xlistenersets", EXPERIMENTAL, "xlistenersets", **_LISTENING)

DNS_KEYS = (
    "(?i)dns[.]alpha[.]kubernetes[.]io/(external|internal)"
    "|external-dns[.](alpha[.])?kubernetes[.]io/(hostname|internal-hostname|target)"
)
"""Annotations by which DNS controllers create records for a Pod.

Sources: kOps, "dns-controller"; ExternalDNS, "Sources" (pod).
"""

_HAS_DNS_KEY = f"{_ANNOTATIONS}.exists(k, k.matches({quoted(f'^(?:{DNS_KEYS})$')}))"


def _names_hosts(request: Request) -> bool:
    keys = part(request.object, "metadata", "annotations")
    return is_written(request) and any(matches(DNS_KEYS, key) for key in keys)


POD_RECORDS = RuleTarget(
    name="podrecords",
    group="",
    resources=("pods",),
    # Apart from the policy on pods, because annotations of a running pod may change under any rules on its spec.
    conditions={"names-hosts": _HAS_DNS_KEY, "is-written": IS_WRITTEN},
    variables={},
    concerns=_names_hosts,
    is_rarely_reported=True,
)


def classes_of_ingress(ingress: Json) -> list[str]:
    """Return the IngressClasses that an Ingress names, in its spec and by the old annotation; "" if none."""
    old: str | None = part(ingress, "metadata", "annotations").get(OLD_CLASS)
    named: str | None = part(ingress, "spec").get("ingressClassName")
    return [each for each in (named, old) if each is not None] or [""]


_BACKEND = {"service": {"name": "s", "port": {"number": 80}}}
_PATHS = {"paths": [{"path": "/", "pathType": "Prefix", "backend": _BACKEND}]}
INGRESS = whole(
    INGRESSES,
    "ingress",
    {
        "metadata": {"name": "i"},
        "spec": {"ingressClassName": "private", "rules": [{"host": "a.x.example", "http": _PATHS}]},
    },
)
ROUTE = whole(ROUTES, "route", {"metadata": {"name": "r"}, "spec": {"hostnames": ["a.x.example"]}})
STREAM_ROUTE = whole(STREAM_ROUTES, "route", {"metadata": {"name": "r"}, "spec": {}})
POD_RECORD = whole(
    POD_RECORDS, "pod", {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "busybox"}]}}
)


def _gateway(target: RuleTarget) -> CheckScope:
    listener = {"name": "l", "port": 80, "protocol": "HTTP", "hostname": "a.x.example"}
    return whole(
        target, "gateway", {"metadata": {"name": "g"}, "spec": {"gatewayClassName": "private", "listeners": [listener]}}
    )


GATEWAY_SCOPES = (_gateway(GATEWAYS), _gateway(LISTENER_SETS))
