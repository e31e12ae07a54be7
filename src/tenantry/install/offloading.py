"""The policies that place the pods of offloaded namespaces (L06). Pure.

The operator marks a namespace with its strategy and its peers, so that pods are placed also while it is down:

    Local            nothing
    LocalAndRemote   a toleration for each peer, unless the pod has a field that cannot travel
    Remote           the same, and the label that selects Nodes of peers; a pod that cannot travel is refused

A token may go to a peer if every peer of the namespace may have its audience: the pod is not placed yet.

A pod that reached a peer with such a field would fail, and a ReplicaSet replaces it without a pause. Pods that tolerate
other peers are refused with those that tolerate other nodes: see `slices`.

Source: Kubernetes, "Mutating Admission Policy", "Taints and Tolerations".
"""

from __future__ import annotations

from tenantry.api.marks import AUDIENCES, PEERS, POD_STRATEGY
from tenantry.api.model import Json
from tenantry.api.offloading import PodStrategy
from tenantry.api.peercluster import AUDIENCES_ALLOWED_IN, NODE_PREFIX, PEER, VIRTUAL
from tenantry.api.reasons import NOT_FEDERABLE
from tenantry.install.policy import NEW_PODS, binding, mutating, says, validating
from tenantry.mirror.podlimits import PodLimits, unfit_cel
from tenantry.policy.users import NOT_MIRRORED

PODS = "tenantry-peer-pods"

_REMOTE: Json = {
    "matchExpressions": [
        {"key": POD_STRATEGY, "operator": "In", "values": [PodStrategy.REMOTE, PodStrategy.LOCAL_AND_REMOTE]}
    ]
}
_IS_REMOTE = f"namespaceObject.metadata.labels['{POD_STRATEGY}'] == '{PodStrategy.REMOTE}'"
_AUDIENCES = f"string(namespaceObject.metadata.?annotations['{AUDIENCES}'].orValue('')).split(',')"
"""CEL: the audiences that all peers of the namespace may have; a pod goes to any of them."""

_TOLERATIONS = "(has(object.spec.tolerations) && dyn(object.spec.tolerations) != null ? object.spec.tolerations : [])"


def everything() -> list[Json]:
    """Return the policies and their bindings."""
    conditions = {"not-a-mirror": NOT_MIRRORED}
    unfit = {"unfit": unfit_cel(PodLimits(allowed_by=AUDIENCES_ALLOWED_IN), _AUDIENCES)}
    tolerated = (
        f"{_TOLERATIONS}.exists(t, t.?key.orValue('') == '{PEER}' && t.?value.orValue('') == name"
        " && t.?operator.orValue('Equal') == 'Equal' && t.?effect.orValue('NoSchedule') == 'NoSchedule')"
    )
    names = f"string(namespaceObject.metadata.?annotations['{PEERS}'].orValue('')).split(',')"
    lacking = f"{names}.filter(name, name != '' && !{tolerated})"
    toleration = f"{{'key': '{PEER}', 'operator': 'Equal', 'value': name, 'effect': 'NoSchedule'}}"
    tolerations = (
        "size(variables.unfit) > 0 || size(variables.lacking) == 0 ? []"
        f" : size({_TOLERATIONS}) == 0"
        f" ? [JSONPatch{{op: 'add', path: '/spec/tolerations', value: variables.lacking.map(name, {toleration})}}]"
        f" : variables.lacking.map(name, JSONPatch{{op: 'add', path: '/spec/tolerations/-', value: {toleration}}})"
    )
    key = VIRTUAL.replace("/", "~1")
    selector = (
        f"!({_IS_REMOTE}) ? [] : has(object.spec.nodeSelector) && dyn(object.spec.nodeSelector) != null"
        f" ? [JSONPatch{{op: 'add', path: '/spec/nodeSelector/{key}', value: 'true'}}]"
        f" : [JSONPatch{{op: 'add', path: '/spec/nodeSelector', value: {{'{VIRTUAL}': 'true'}}}}]"
    )
    placed = mutating(
        PODS,
        [NEW_PODS],
        [tolerations, selector],
        conditions=conditions,
        where=_REMOTE,
        variables={**unfit, "lacking": lacking},
        # A later policy may add a volume, for example.
        reinvoked="IfNeeded",
    )
    names = f"object.spec.?nodeName.orValue('').startsWith('{NODE_PREFIX}')"
    goes = f"{_IS_REMOTE} || {names} || object.spec.?tolerations.orValue([]).exists(t, t.?key.orValue('') == '{PEER}')"
    validations = [
        says(f"!({goes}) || size(variables.unfit) == 0", f"'{NOT_FEDERABLE}: ' + variables.unfit[0]", told=True),
        says(
            f"!({_IS_REMOTE}) || object.?spec.nodeSelector['{VIRTUAL}'].orValue('') == 'true'",
            f"spec.nodeSelector must have {VIRTUAL}: pods of this namespace run at peers only",
        ),
    ]
    checked = validating(PODS, [NEW_PODS], validations, conditions=conditions, where=_REMOTE, variables=unfit)
    return [placed, binding(PODS, "Mutating"), checked, binding(PODS)]
