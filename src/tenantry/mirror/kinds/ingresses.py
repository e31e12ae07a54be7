"""Ingresses. Pure.

Hosts stay as they are: the lower side decides who may use which host. Names of Services and of Secrets become lower
names.

Source: Kubernetes, "Ingress"; k8s.io/api/networking/v1.
"""

from __future__ import annotations

from collections.abc import Iterator

from tenantry.api.model import Json, Resource
from tenantry.mirror.kinds.kind import MirroredKind, Origin
from tenantry.mirror.kinds.services import load_balancer
from tenantry.mirror.shapes import denied, fields, integer, items, listed, part, text

RESOURCE = Resource("networking.k8s.io", "v1", "ingresses", "Ingress")

MOST_SECRETS = 100
"""How many entries an Ingress may have for certificates: each Secret is looked up, and copied."""

_backend = fields(
    {
        "service": fields({"name": text, "port": fields({"name": text, "number": integer})}),
        "resource": denied("name a Service"),
    }
)
_SPEC = fields(
    {
        "ingressClassName": text,
        "defaultBackend": _backend,
        "tls": listed(fields({"hosts": listed(text), "secretName": text}), most=MOST_SECRETS),
        "rules": listed(
            fields(
                {
                    "host": text,
                    "http": fields({"paths": listed(fields({"path": text, "pathType": text, "backend": _backend}))}),
                }
            )
        ),
    }
)


def translate(spec: Json, origin: Origin) -> None:
    """Have an Ingress lead to lower Services.

    Args:
        spec: As the allow-list builds it; it is changed.
        origin: Where it comes from.
    """
    for service in _services(spec):
        if service.get("name"):
            service["name"] = origin.profile.lower_name("Service", origin.namespace, service["name"])
    for entry in items(spec, "tls"):
        if entry.get("secretName"):
            entry["secretName"] = origin.profile.lower_name("Secret", origin.namespace, entry["secretName"])


def secrets(upper: Json) -> list[str]:
    """Return the names of the Secrets that an upper Ingress names."""
    names = [each.get("secretName") for each in items(part(upper, "spec"), "tls")[:MOST_SECRETS]]
    return sorted({name for name in names if isinstance(name, str) and name})


def _services(spec: Json) -> Iterator[Json]:
    yield part(part(spec, "defaultBackend"), "service")
    for rule in items(spec, "rules"):
        for path in items(part(rule, "http"), "paths"):
            yield part(part(path, "backend"), "service")


KIND = MirroredKind(resource=RESOURCE, spec=_SPEC, translate=translate, status=load_balancer)
