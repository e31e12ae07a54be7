"""Names of upper nodes in the spec of a pod become names of lower ones: pure.

Two sides have different nodes, and users choose values freely. So each value of a name is replaced: a known upper name
by the lower one, every other text by a name that no node has. A lower name that a user guesses selects nothing.

    upper  nodeSelector: kubernetes.io/hostname=node-4f1d…   lower  kubernetes.io/hostname=rack-7
    upper  matchFields: metadata.name In [rack-7]            lower  metadata.name In [rack-7-5c1b0e0f4d0a92be]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec

from tenantry.api.model import Json
from tenantry.mirror.podfields import PREFERRED, REQUIRED
from tenantry.mirror.profile import Profile

HOSTNAME = "kubernetes.io/hostname"
"""The label of a node with its hostname, which is its name on most platforms."""

_NAME = "metadata.name"


class LowerNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node of the lower side.

    Args:
        name: Its name.
        uid: Its uid.
        hostname: Its label `kubernetes.io/hostname`; "" if it has none.
        allocatable: What it has for pods, by resource.
    """

    name: str
    uid: str
    hostname: str
    allocatable: Mapping[str, str] = {}


LowerNodes = Callable[[str], LowerNode | None]
"""Returns the lower node of an upper name; None for a name that the mirror has not given."""


def no_nodes(_: str) -> LowerNode | None:
    """Return None: no node is known."""
    return None


def translate(spec: Json, nodes: LowerNodes, profile: Profile) -> None:
    """Replace the names of nodes in the selectors of a spec.

    Args:
        spec: As `podfields.SPEC` builds it; it is changed.
        nodes: The lower nodes.
        profile: The configuration.
    """

    def named(upper: str) -> str:
        found = nodes(upper)
        return found.name if found is not None else profile.lower_name("Node", "", upper)

    def hostname(upper: str) -> str:
        found = nodes(upper)
        return (found.hostname if found is not None else "") or profile.lower_name("Node", "", upper)

    selector = spec.get("nodeSelector", {})
    if HOSTNAME in selector:
        selector[HOSTNAME] = hostname(selector[HOSTNAME])
    for term in _terms(spec.get("affinity", {}).get("nodeAffinity", {})):
        for field, key, replace in (("matchExpressions", HOSTNAME, hostname), ("matchFields", _NAME, named)):
            for expression in term.get(field, ()):
                if expression.get("key") == key and "values" in expression:
                    expression["values"] = [replace(each) for each in expression["values"]]


def _terms(affinity: Json) -> Iterator[Json]:
    yield from affinity.get(REQUIRED, {}).get("nodeSelectorTerms", ())
    for weighted in affinity.get(PREFERRED, ()):
        if "preference" in weighted:
            yield weighted["preference"]
