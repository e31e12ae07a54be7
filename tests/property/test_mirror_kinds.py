"""Whatever an object of a mirrored kind contains, its lower object has listed fields only, and comes to rest."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantry.engine.plan import merge_patch
from tenantry.mirror.kinds.kind import MirroredKind, Origin
from tenantry.mirror.kinds.table import KINDS
from tenantry.mirror.shapes import NotTranslated
from testkit.mirroring import PROFILE

Json = dict[str, Any]

FIELDS = (
    "podSelector namespaceSelector ingress egress from to ports policyTypes ipBlock cidr except selector minAvailable"
    " maxUnavailable matchLabels matchExpressions key operator values type clusterIP clusterIPs externalName port"
    " nodePort protocol targetPort defaultBackend service name number rules host http paths path backend tls secretName"
    " accessModes resources requests storageClassName volumeName dataSource dataSourceRef kind apiGroup namespace"
    " parentRefs backendRefs hostnames filters requestMirror backendRef extensionRef weight matches group source"
    " persistentVolumeClaimName volumeSnapshotContentName volumeSnapshotClassName junk"
)
SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.sampled_from(["In", "NodePort", "None"])
SPECS = st.dictionaries(
    st.sampled_from(FIELDS.split()),
    st.recursive(
        SCALARS,
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(FIELDS.split()), inner, max_size=3),
        max_leaves=10,
    ),
    max_size=5,
)


def lowered(kind: MirroredKind, spec: Json, lower: Json) -> Json | None:
    """Return the lower spec of an upper one; None if it is not translated."""
    try:
        found = kind.spec(spec, "spec")
        upper: Json = {"metadata": {"name": "a", "namespace": "shop"}, "spec": spec}
        kind.translate(
            found,
            Origin(
                profile=PROFILE, namespace="shop", upper=upper, lower=lower, status={}, namespaces=lambda _: ["shop"]
            ),
        )
    except NotTranslated:
        return None
    return found


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.resource.plural)
@given(spec=SPECS)
def test_a_second_translation_changes_nothing(kind: MirroredKind, spec: Json) -> None:
    """X01: no unlisted field passes, no input is an error of the program, and what was written is what is wanted."""
    first = lowered(kind, spec, {})
    if first is None:
        return
    assert "junk" not in first
    # The allow-list is a fixed point, also for what the translation has put in: drift is found by comparing both.
    assert kind.spec(first, "spec") == first
    again = lowered(kind, spec, first)
    assert again is not None
    assert merge_patch(first, again) == {}
