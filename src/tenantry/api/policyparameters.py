"""Parameters of the API server's policies: text in the annotations of LimitRanges that limit nothing.

The API server answers no request to which a policy applies before it has read every object of the kind of the policy's
parameters. So that kind must be built in, because custom kinds are found only up to 30 s after the API server starts,
and tenants must not be able to write it, because one tenant's objects would delay the requests of all others. Owners
can read LimitRanges and never write them.

    metadata:
      name: tenantry-rules
      namespace: acme
      labels:
        tenantry.dev/rules: enforce
      annotations:
        parameters.tenantry.dev/refused: "..."     one text for each name; the readers of a name define its format
    spec:
      limits: null
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from tenantry.api.marks import MANAGED_BY, MANAGER
from tenantry.api.model import KubernetesObject, Model, ObjectMeta, Resource
from tenantry.api.tenancyrules import OWN_MARK

PREFIX = "parameters.tenantry.dev/"
"""Before the name of a text in an annotation's key."""

MOST_BYTES = 240 * 1024
"""The maximum size of all texts and their keys; other annotations have the rest of the 256 KiB of an object.

Source: k8s.io/apimachinery, pkg/api/validation, `TotalAnnotationSizeLimitB`.
"""


class NoLimits(Model, frozen=True, kw_only=True):
    """The spec of a LimitRange that limits nothing, as the API server stores it."""

    limits: None


NO_LIMITS = NoLimits(limits=None)


class PolicyParameters(KubernetesObject, frozen=True, kw_only=True):
    """A LimitRange in which policies read parameters; only the operator and administrators write it."""

    # A cache of these has no LimitRange that limits containers, and the cache of those has none of these.
    resource: ClassVar[Resource] = Resource("", "v1", "limitranges", "LimitRange", selected=OWN_MARK)

    spec: NoLimits


def parameters(name: str, namespace: str, purpose: str, texts: Mapping[str, str]) -> PolicyParameters:
    """Return an object with parameters.

    Args:
        name: The name by which a binding finds it.
        namespace: Tenantry's own, or a tenant's.
        purpose: The value of its label `tenancyrules.OWN_MARK`.
        texts: Name to text; see `size` for the limit.
    """
    # Without the label of the tenant: an operator of a version without such objects deletes LimitRanges that have it.
    meta = ObjectMeta(
        name=name,
        namespace=namespace,
        labels={MANAGED_BY: MANAGER, OWN_MARK: purpose},
        annotations={f"{PREFIX}{key}": text for key, text in texts.items()},
    )
    return PolicyParameters(metadata=meta, spec=NO_LIMITS)


def texts_of(annotations: Mapping[str, str] | None) -> dict[str, str]:
    """Return the texts among the annotations of an object, by name."""
    given = annotations or {}
    return {key.removeprefix(PREFIX): text for key, text in given.items() if key.startswith(PREFIX)}


def size(texts: Mapping[str, str]) -> int:
    """Return how many of `MOST_BYTES` texts take."""
    return sum(len(PREFIX) + len(name.encode()) + len(text.encode()) for name, text in texts.items())
