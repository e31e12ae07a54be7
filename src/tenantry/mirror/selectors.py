"""Selectors of pods in the spec of a lower pod select only pods of the right upper namespaces: pure.

All upper namespaces share one lower namespace, in which several owners may have pods. So each selector of pods gets an
expression for the label of the owner and one for the label of the namespace.

    upper  namespaces: [shop]   labelSelector: app=db
    lower                       labelSelector: app=db, <prefix>/owner In [uid], <prefix>/namespace In [shop]

`matchLabelKeys` become expressions here, because the upper API server may have added the same expressions already, and
the lower one rejects a key that is in both places.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tenantry.api.model import Json
from tenantry.mirror.names import label_value
from tenantry.mirror.podfields import PREFERRED, REQUIRED
from tenantry.mirror.profile import Profile
from tenantry.mirror.shapes import NotTranslated


def confine(spec: Json, labels: Mapping[str, str], namespace: str, profile: Profile) -> None:
    """Change the selectors of pods in a spec.

    Args:
        spec: As `podfields.SPEC` builds it; it is changed.
        labels: The upper labels of the pod.
        namespace: The upper namespace of the pod.
        profile: The configuration.

    Raises:
        NotTranslated: A term selects namespaces by their labels, which the lower side does not know.
    """
    for index, constraint in enumerate(spec.get("topologySpreadConstraints", ())):
        _match_labels(constraint, labels)
        _restrict(constraint, [namespace], profile, f"spec.topologySpreadConstraints[{index}]")
    for term, path in _terms(spec.get("affinity", {})):
        _match_labels(term, labels)
        _restrict(term, _namespaces(term, namespace, path), profile, path)


def _terms(affinity: Json) -> Iterator[tuple[Json, str]]:
    for field in ("podAffinity", "podAntiAffinity"):
        terms = affinity.get(field, {})
        path = f"spec.affinity.{field}"
        for index, term in enumerate(terms.get(REQUIRED, ())):
            yield term, f"{path}.{REQUIRED}[{index}]"
        for index, weighted in enumerate(terms.get(PREFERRED, ())):
            if "podAffinityTerm" in weighted:
                yield weighted["podAffinityTerm"], f"{path}.{PREFERRED}[{index}].podAffinityTerm"


def _namespaces(term: Json, own: str, path: str) -> list[str]:
    """Remove the namespaces from a term and return them; an empty list for all namespaces of the owner."""
    named = term.pop("namespaces", [])
    selector = term.pop("namespaceSelector", None)
    if selector is None:
        return named or [own]
    if any(selector.values()):
        raise NotTranslated(f"{path}.namespaceSelector must be empty: list the namespaces in {path}.namespaces")
    return []


def _match_labels(term: Json, labels: Mapping[str, str]) -> None:
    # A set: a pod may have tens of thousands of keys.
    there = {_identified(each) for each in term.get("labelSelector", {}).get("matchExpressions", ())}
    for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
        for key in term.pop(field, ()):
            if key not in labels:  # Kubernetes ignores it, too.
                continue
            expression = {"key": key, "operator": operator, "values": [labels[key]]}
            if _identified(expression) not in there:
                there.add(_identified(expression))
                _add(term, expression)


def _identified(expression: Json) -> tuple[str, str, tuple[str, ...]]:
    return expression.get("key", ""), expression.get("operator", ""), tuple(expression.get("values", ()))


def _restrict(term: Json, namespaces: Sequence[str], profile: Profile, path: str) -> None:
    if not all(namespaces):
        raise NotTranslated(f"{path}.namespaces must not contain an empty name: remove it")
    _add(term, {"key": profile.mark("owner"), "operator": "In", "values": [profile.owner_uid]})
    if namespaces:
        values = sorted({label_value(name) for name in namespaces})
        _add(term, {"key": profile.mark("namespace"), "operator": "In", "values": values})


def _add(term: Json, expression: Json) -> None:
    # A term without a selector selects no pods, and stays so.
    if "labelSelector" in term:
        term["labelSelector"].setdefault("matchExpressions", []).append(expression)
