"""Fields of a Pod that cannot travel to a lower side which is another cluster: pure.

    upper Pod ─► unfit    a field without which the pod would be another one, and which the lower side cannot have
                          (and `unfit_cel`, for a policy: a pod that fails at once would be replaced without end)
              ─► limited  the pod without fields that only have a meaning on the upper side ─► `pods.down`

A field that changes what the containers find is refused, never dropped. Fields that choose a node are dropped: the pod
is bound already, and the lower side chooses among its own nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import cast

import msgspec

from tenantry.api.model import Json
from tenantry.api.wording import shortened
from tenantry.mirror.shapes import NotTranslated, items, part

_CONTAINERS = ("initContainers", "containers", "ephemeralContainers")
_TOKEN = "serviceAccountToken"  # noqa: S105 - the field of a projection
_ROOT_CA = "kube-root-ca.crt"
_LISTED = 20

_ON_A_NODE = "the pod runs on a node of another cluster"
_SHARED = f"may not be true: {_ON_A_NODE}"
_CLAIMED = "may not be set: the devices are in this cluster"
_PUBLISHED = f"may not be set: {_ON_A_NODE}; use a Service"
_KINDS = "may not be set: volumes that go to another cluster are of the kinds "
_SOURCES = "may not be set: sources that go to another cluster are "
_NO_AUDIENCE = "may not be empty: tokens for the API of this cluster do not leave it; use a Secret"
_NOT_ALLOWED = "may not be one whose tokens stay in this cluster; use a Secret"
_MANY_TOKENS = "may not have so many sources serviceAccountToken: the most that go to another cluster are "
_OF_THE_OTHER = f"may not be {_ROOT_CA}: it is that of the other cluster there"


class PodLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Which fields of pods travel.

    Args:
        volumes: The kinds of volumes that travel.
        projections: The kinds of sources of projected volumes that travel.
        host: Fields of the spec that may not be true: they share a namespace of the node with the pod.
        dropped: Fields of the spec that are left out.
        injected: How the names of volumes begin that admission adds for the token of the ServiceAccount; they are
            left out, with their mounts.
        audiences: Those whose tokens travel, if a volume requests one explicitly. A token without an audience is for
            the upper API server, and never travels.
        allowed_by: Where an administrator allows audiences, for messages.
        most_tokens: How many tokens of a pod travel.
        token_seconds: The longest life of each, in seconds.
    """

    volumes: tuple[str, ...] = ("configMap", "downwardAPI", "emptyDir", "projected", "secret")
    projections: tuple[str, ...] = ("configMap", "downwardAPI", "secret")
    host: tuple[str, ...] = ("hostIPC", "hostNetwork", "hostPID", "hostUsers")
    dropped: tuple[str, ...] = (
        *("affinity", "nodeName", "nodeSelector", "preemptionPolicy", "priority", "priorityClassName"),
        *("runtimeClassName", "schedulerName", "schedulingGates", "serviceAccount", "serviceAccountName"),
        *("tolerations", "topologySpreadConstraints"),
    )
    injected: str = "kube-api-access-"
    audiences: tuple[str, ...] = ()
    allowed_by: str = ""
    most_tokens: int = 4
    token_seconds: int = 600


def unfit(spec: Json, limits: PodLimits) -> str:
    """Return why a pod cannot travel, with the path of the field; "" if it can.

    Args:
        spec: The spec of the upper Pod, of any content.
        limits: Which fields travel.
    """
    return next(_reasons(spec, limits), "")


def limited(pod: Json, limits: PodLimits) -> Json:
    """Return an upper Pod without the fields that do not travel; it shares parts with its input.

    Args:
        pod: The upper Pod, of any content.
        limits: Which fields travel.

    Raises:
        NotTranslated: It cannot travel.
    """
    refusal = unfit(part(pod, "spec"), limits)
    if refusal:
        raise NotTranslated(refusal)
    return reduced(pod, limits)


def reduced(pod: Json, limits: PodLimits) -> Json:
    """Return what `limited` returns of an upper Pod that is there already, also if it could not travel any more."""
    spec = part(pod, "spec")
    kept = {field: value for field, value in spec.items() if field not in limits.dropped}
    # Each has a name: that is how it is known.
    injected = {_name(each) for each in items(spec, "volumes") if _is_injected(each, limits)}
    if injected:
        kept["volumes"] = _without(spec["volumes"], injected)
        for field in _CONTAINERS:
            if isinstance(kept.get(field), list):
                kept[field] = [_unmounted(each, injected) for each in kept[field]]
    return {**pod, "spec": kept}


def has_injected(spec: Json, limits: PodLimits) -> bool:
    """Return whether a pod has a volume with the token of its ServiceAccount, which `limited` leaves out."""
    return any(_is_injected(each, limits) for each in items(spec, "volumes"))


def _reasons(spec: Json, limits: PodLimits) -> Iterator[str]:
    for field in limits.host:
        if spec.get(field) is True:
            yield f"spec.{field} {_SHARED}"
    if spec.get("resourceClaims"):
        yield f"spec.resourceClaims {_CLAIMED}"
    for field in _CONTAINERS:
        for index, container in enumerate(items(spec, field)):
            for place, port in enumerate(items(container, "ports")):
                if port.get("hostPort"):
                    path = f"spec.{field}[{index}].ports[{place}].hostPort"
                    yield f"{path} {_PUBLISHED}"
    volumes = [each for each in enumerate(items(spec, "volumes")) if not _is_injected(each[1], limits)]
    for index, volume in volumes:
        yield from _of_volume(volume, f"spec.volumes[{index}]", limits)
    sources = (each for _, volume in volumes for each in items(part(volume, "projected"), "sources"))
    if sum(_TOKEN in each for each in sources) > limits.most_tokens:
        yield f"spec.volumes {_MANY_TOKENS}{limits.most_tokens}"


def _of_volume(volume: Json, path: str, limits: PodLimits) -> Iterator[str]:
    known = shortened(limits.volumes, most=_LISTED)
    for source in sorted(volume):
        if source != "name" and source not in limits.volumes and volume[source] is not None:
            yield f"{path}.{source} {_KINDS}{known}"
    if part(volume, "configMap").get("name") == _ROOT_CA:
        yield f"{path}.configMap.name {_OF_THE_OTHER}"
    for index, projection in enumerate(items(part(volume, "projected"), "sources")):
        inside = f"{path}.projected.sources[{index}]"
        for source in sorted(projection):
            if source == _TOKEN:
                yield from _of_token(part(projection, source).get("audience"), f"{inside}.{source}.audience", limits)
            elif source not in limits.projections and projection[source] is not None:
                projected = shortened(limits.projections, most=_LISTED)
                yield f"{inside}.{source} {_SOURCES}{projected}"
        if part(projection, "configMap").get("name") == _ROOT_CA:
            yield f"{inside}.configMap.name {_OF_THE_OTHER}"


def _of_token(audience: object, path: str, limits: PodLimits) -> Iterator[str]:
    if not audience:
        yield f"{path} {_NO_AUDIENCE}"
    elif audience not in limits.audiences:
        yield f"{path} {_not_allowed(limits)}"


def _not_allowed(limits: PodLimits) -> str:
    allowed = f", or have an administrator add it to {limits.allowed_by}" if limits.allowed_by else ""
    return _NOT_ALLOWED + allowed


def _is_injected(volume: Json, limits: PodLimits) -> bool:
    """Return whether admission has added a volume.

    Not by its name alone, which users choose: what a volume of theirs has would be missing in the pod. Source:
    kubernetes/plugin/pkg/admission/serviceaccount/admission.go, TokenVolumeSource.
    """
    sources = items(part(volume, "projected"), "sources")
    tokens = [part(each, _TOKEN) for each in sources if _TOKEN in each]
    return (
        _name(volume).startswith(limits.injected)
        and len(tokens) == 1
        and not tokens[0].get("audience")
        and all(_is_known(each) for each in sources)
    )


def _is_known(source: Json) -> bool:
    if set(source) == {"configMap"}:
        return part(source, "configMap").get("name") == _ROOT_CA
    return set(source) in ({_TOKEN}, {"downwardAPI"})


def _name(value: object) -> str:
    name = cast("Json", value).get("name") if isinstance(value, dict) else None
    return name if isinstance(name, str) else ""


def _without(volumes: object, names: Collection[str]) -> object:
    """Return volumes or mounts without those of some names; what has a wrong type stays for `pods.down` to refuse."""
    if not isinstance(volumes, list):
        return volumes
    found = cast("list[object]", volumes)
    return [each for each in found if _name(each) not in names]


def _unmounted(container: object, names: Collection[str]) -> object:
    if not isinstance(container, dict) or "volumeMounts" not in container:
        return cast("object", container)
    found = cast("Json", container)
    return {**found, "volumeMounts": _without(found["volumeMounts"], names)}


# -- the same for policies ------------------------------------------------------------------------


def unfit_cel(limits: PodLimits, audiences: str) -> str:
    """Return CEL: a list of reasons why `object`, a Pod, cannot travel, empty if it can; as `unfit`, in its order.

    Args:
        limits: Which fields travel; not its audiences, which differ from pod to pod.
        audiences: CEL: a list of the audiences whose tokens travel.
    """
    shared = [_when(f"object.spec.?{field}.orValue(false)", f"spec.{field} {_SHARED}") for field in limits.host]
    claimed = _when("size(object.spec.?resourceClaims.orValue([])) > 0", f"spec.resourceClaims {_CLAIMED}")
    ports = [_ports_cel(field) for field in _CONTAINERS]
    sources = _sources_cel()
    counted = f"{_injected_cel(sources, limits)} ? 0 : size({_tokens_cel(sources)})"
    count = f"{_list_cel('object.spec.volumes')}.map(v, {counted}).sum()"
    many = _when(f"{count} > {limits.most_tokens}", f"spec.volumes {_MANY_TOKENS}{limits.most_tokens}")
    return " + ".join((*shared, claimed, *ports, _volumes_cel(limits, sources, audiences), many))


def _when(condition: str, reason: str) -> str:
    return f"({condition} ? ['{reason}'] : [])"


def _list_cel(path: str) -> str:
    """Return CEL: a list; a policy that changes an object sees null for a required one without a value."""
    return f"(has({path}) && dyn({path}) != null ? {path} : [])"


def _ports_cel(field: str) -> str:
    is_published = "p.?hostPort.orValue(0) != 0"
    ports = _list_cel("c.ports")
    place = f"string({ports}.map(p, {is_published}).indexOf(true))"
    return (
        f"{_list_cel(f'object.spec.{field}')}.transformList(i, c, {ports}.exists(p, {is_published}),"
        f" 'spec.{field}[' + string(i) + '].ports[' + {place} + '].hostPort {_PUBLISHED}')"
    )


def _listed_cel(words: Collection[str]) -> str:
    return f"[{', '.join(repr(each) for each in words)}]"


def _sources_cel() -> str:
    """Return CEL: the sources of the volume `v`."""
    return f"(has(v.projected) ? {_list_cel('v.projected.sources')} : [])"


def _tokens_cel(sources: str) -> str:
    return f"{sources}.filter(s, has(s.{_TOKEN}))"


def _volumes_cel(limits: PodLimits, sources: str, audiences: str) -> str:
    other = f"k != 'name' && !(k in {_listed_cel(limits.volumes)})"
    is_other, is_root = f"dyn(v).exists(k, {other})", f"v.?configMap.name.orValue('') == '{_ROOT_CA}'"
    not_projected = f"!(k in {_listed_cel((*limits.projections, _TOKEN))})"
    audience = f"s.?{_TOKEN}.audience.orValue('')"
    of_token = f"(has(s.{_TOKEN}) && !({audience} != '' && {audience} in {audiences}))"
    of_root = f"s.?configMap.name.orValue('') == '{_ROOT_CA}'"
    is_bad = f"(dyn(s).exists(k, {not_projected}) || {of_token} || {of_root})"
    kinds, projected = (shortened(each, most=_LISTED) for each in (limits.volumes, limits.projections))
    # The first of them: the others are fields of no source that the API server admits beside it.
    source = (
        f"[{sources}.filter(s, {is_bad})[0]].map(s, dyn(s).exists(k, {not_projected})"
        f" ? dyn(s).filter(k, {not_projected})[0] + ' {_SOURCES}{projected}'"
        f" : {of_token} ? '{_TOKEN}.audience ' + ({audience} == '' ? '{_NO_AUDIENCE}' : '{_not_allowed(limits)}')"
        f" : 'configMap.name {_OF_THE_OTHER}')[0]"
    )
    words = (
        f"{is_other} ? dyn(v).filter(k, {other})[0] + ' {_KINDS}{kinds}'"
        f" : {is_root} ? 'configMap.name {_OF_THE_OTHER}'"
        f" : 'projected.sources[' + string({sources}.map(s, {is_bad}).indexOf(true)) + '].' + {source}"
    )
    is_unfit = f"({is_other} || {is_root} || {sources}.exists(s, {is_bad}))"
    return (
        f"{_list_cel('object.spec.volumes')}.transformList(i, v, {is_unfit}"
        f" && !({_injected_cel(sources, limits)}), 'spec.volumes[' + string(i) + '].' + ({words}))"
    )


def _injected_cel(sources: str, limits: PodLimits) -> str:
    """Return CEL: whether admission has added the volume `v`; as `_is_injected`."""
    known = (
        f"size(dyn(s)) == 1 && (has(s.{_TOKEN}) ? s.{_TOKEN}.?audience.orValue('') == ''"
        f" : has(s.configMap) ? s.configMap.?name.orValue('') == '{_ROOT_CA}' : has(s.downwardAPI))"
    )
    return f"v.name.startsWith('{limits.injected}') && size({_tokens_cel(sources)}) == 1 && {sources}.all(s, {known})"
