"""HTTPRoutes, GRPCRoutes, TLSRoutes and TCPRoutes of the Gateway API. Pure.

Gateways are those of the lower side, by namespace and name there: a Gateway decides from which namespaces it takes
routes. Hosts stay as they are: the lower side decides who may use which host. Names of Services become lower names.

    upper  parentRefs: [{name: public, namespace: gateways}]   backendRefs: [{name: web, port: 80}]
    lower  parentRefs: [{name: public, namespace: gateways}]   backendRefs: [{name: web-<16 hex>, port: 80}]

A TCPRoute has no hosts: its Gateway decides by `allowedRoutes` who may take the connections of a listener.

Source: Gateway API, "HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute"; sigs.k8s.io/gateway-api/apis/{v1,v1alpha2}.
"""

from __future__ import annotations

from collections.abc import Iterator

from tenantry.api.model import Json, Resource
from tenantry.mirror.kinds.kind import MirroredKind, Origin
from tenantry.mirror.shapes import NotTranslated, denied, fields, integer, items, listed, part, text

GROUP = "gateway.networking.k8s.io"
HTTP = Resource(GROUP, "v1", "httproutes", "HTTPRoute")
GRPC = Resource(GROUP, "v1", "grpcroutes", "GRPCRoute")
TLS = Resource(GROUP, "v1", "tlsroutes", "TLSRoute")
TCP = Resource(GROUP, "v1alpha2", "tcproutes", "TCPRoute")

MOST_PARENTS = 32
"""As many as the Gateway API allows."""

_parent_fields = {
    "group": text,
    "kind": text,
    "namespace": text,
    "name": text,
    "sectionName": text,
    "port": integer,
}
_backend_fields = {
    "group": text,
    "kind": text,
    "namespace": text,
    "name": text,
    "port": integer,
}
_values = listed(fields({"name": text, "value": text}))
_header_changes = fields({"set": _values, "add": _values, "remove": listed(text)})
_path = fields({"type": text, "replaceFullPath": text, "replacePrefixMatch": text})
_filters = listed(
    fields(
        {
            "type": text,
            "requestHeaderModifier": _header_changes,
            "responseHeaderModifier": _header_changes,
            "requestMirror": fields(
                {
                    "backendRef": fields(_backend_fields),
                    "percent": integer,
                    "fraction": fields({"numerator": integer, "denominator": integer}),
                }
            ),
            "requestRedirect": fields(
                {"scheme": text, "hostname": text, "path": _path, "port": integer, "statusCode": integer}
            ),
            "urlRewrite": fields({"hostname": text, "path": _path}),
            # An object of any kind of the lower side, by its name.
            "extensionRef": denied("use another filter"),
        }
    )
)
_backends = listed(fields({**_backend_fields, "weight": integer, "filters": _filters}))
_matched = listed(fields({"type": text, "name": text, "value": text}))
_http_match = fields(
    {
        "path": fields({"type": text, "value": text}),
        "headers": _matched,
        "queryParams": _matched,
        "method": text,
    }
)
_grpc_match = fields({"method": fields({"type": text, "service": text, "method": text}), "headers": _matched})
_timeouts = fields({"request": text, "backendRequest": text})
_common = {"parentRefs": listed(fields(_parent_fields), most=MOST_PARENTS), "hostnames": listed(text)}
_rule = {"name": text, "filters": _filters, "backendRefs": _backends}
_HTTP_SPEC = fields(
    {**_common, "rules": listed(fields({**_rule, "matches": listed(_http_match), "timeouts": _timeouts}))}
)
_GRPC_SPEC = fields({**_common, "rules": listed(fields({**_rule, "matches": listed(_grpc_match)}))})
# They forward connections: there is nothing to match or to filter.
_stream_rules = listed(fields({"name": text, "backendRefs": listed(fields({**_backend_fields, "weight": integer}))}))
_TLS_SPEC = fields({**_common, "rules": _stream_rules})
_TCP_SPEC = fields({"parentRefs": _common["parentRefs"], "rules": _stream_rules})
# The generation that a condition was made for is that of the lower object.
_conditions = listed(
    fields({"type": text, "status": text, "reason": text, "message": text, "lastTransitionTime": text})
)
_STATUS = fields(
    {
        "parents": listed(
            fields({"parentRef": fields(_parent_fields), "controllerName": text, "conditions": _conditions})
        )
    }
)


def translate(spec: Json, origin: Origin) -> None:
    """Have a route lead from lower Gateways to lower Services.

    Args:
        spec: As the allow-list builds it; it is changed.
        origin: Where it comes from.

    Raises:
        NotTranslated: It names a parent that is no Gateway of the lower side, or a backend that is no own Service.
    """
    for index, parent in enumerate(items(spec, "parentRefs")):
        path = f"spec.parentRefs[{index}]"
        if parent.get("group", GROUP) != GROUP or parent.get("kind", "Gateway") != "Gateway":
            raise NotTranslated(f"{path} must name a Gateway")
        if not parent.get("namespace"):
            raise NotTranslated(f"{path}.namespace must be that of a Gateway of the host")
    for path, backend in _backends_of(spec):
        if backend.get("group") or backend.get("kind", "Service") != "Service":
            raise NotTranslated(f"{path} must name a Service")
        if backend.pop("namespace", origin.namespace) != origin.namespace:
            raise NotTranslated(f"{path}.namespace must be that of the route, or left out")
        if backend.get("name"):
            backend["name"] = origin.profile.lower_name("Service", origin.namespace, backend["name"])


def _backends_of(spec: Json) -> Iterator[tuple[str, Json]]:
    """Yield each Service that a route names, and its JSON path."""
    for number, rule in enumerate(items(spec, "rules")):
        path = f"spec.rules[{number}]"
        for index, each in enumerate(items(rule, "backendRefs")):
            yield f"{path}.backendRefs[{index}]", each
            yield from _mirrors(each, f"{path}.backendRefs[{index}]")
        yield from _mirrors(rule, path)


def _mirrors(holder: Json, path: str) -> Iterator[tuple[str, Json]]:
    for index, each in enumerate(items(holder, "filters")):
        if "backendRef" in part(each, "requestMirror"):
            yield f"{path}.filters[{index}].requestMirror.backendRef", each["requestMirror"]["backendRef"]


def status(lower: Json) -> Json:
    """Return the status of an upper route: which Gateways have accepted it."""
    return {"parents": [], **_STATUS(part(lower, "status"), "status")}


HTTP_KIND = MirroredKind(resource=HTTP, spec=_HTTP_SPEC, translate=translate, status=status, is_optional=True)
GRPC_KIND = MirroredKind(resource=GRPC, spec=_GRPC_SPEC, translate=translate, status=status, is_optional=True)
TLS_KIND = MirroredKind(resource=TLS, spec=_TLS_SPEC, translate=translate, status=status, is_optional=True)
TCP_KIND = MirroredKind(resource=TCP, spec=_TCP_SPEC, translate=translate, status=status, is_optional=True)
