"""Translate a Pod to the lower side: pure.

    upper Pod ─► podlimits   fields that cannot travel to another cluster, if the profile has limits
              ─► podfields   allow-list of fields, as a new object
              ─► references  names of ConfigMaps, Secrets and claims become lower names
              ─► selectors   pods of the own namespace only
              ─► nodenames   names of upper nodes become names of lower ones
              ─► downward    the pod's own name, namespace and uid stay the upper ones
              ─► servicelinks  variables name the upper Services
              ─► lower Pod, and the tokens that its Secret must hold

The translation does not rely on the validation of the upper API server: values of wrong types are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from tenantry.api.model import Json
from tenantry.mirror import marking, nodenames, podlimits, references, selectors
from tenantry.mirror.names import LABEL_LENGTH, TOKEN
from tenantry.mirror.nodenames import LowerNodes
from tenantry.mirror.podfields import ADDED, SPEC
from tenantry.mirror.profile import Profile
from tenantry.mirror.references import PodReference
from tenantry.mirror.shapes import NotTranslated, items, part

STATIC_POD = "kubernetes.io/config.mirror"
"""The annotation of the API object of a static pod (Kubernetes: "Well-known labels, annotations and taints")."""

GIVEN_GATES = "given-gates"
"""The mark that lists the scheduling gates which came from the upper pod; see `marking`."""

_DEFAULT_SECONDS = 3600
_INJECTED_SECONDS = 3607
"""The lifetime that Kubernetes puts into pods without one of their own (WarnOnlyBoundTokenExpirationSeconds)."""

_LEAST_SECONDS = 600
_MOST_SECONDS = 24 * 3600
MOST_LINKS = 1000
"""How many variables of Services all containers of a pod may get together, some 70 KiB: users choose both numbers."""

_CONTAINERS = ("initContainers", "containers", "ephemeralContainers")
_ENV_FIELDS = ("spec.nodeName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs")
_VOLUME_FIELDS = ("metadata.labels", "metadata.annotations")
_ENTRY = re.compile(r"metadata\.(labels|annotations)\['[^']+'\]")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """A token of the upper side that a lower pod reads from its Secret.

    Args:
        key: The key of the Secret.
        audience: The audience to request; "" for the API server's own.
        seconds: The lifetime to request: 10 minutes to 24 hours.
        path: The path of the file in its volume.
    """

    key: str
    audience: str
    seconds: int
    path: str


class Down(msgspec.Struct, frozen=True, kw_only=True):
    """The lower Pod of an upper one, or why there is none.

    Args:
        object: The lower Pod; {} if it is refused.
        refusal: A sentence that names the field and what to do; "" if it is not refused.
        tokens: The content of the Secret `lower_name("Token", …)`, which the pod needs to start; () for no Secret.
        needs: The upper ConfigMaps and Secrets whose copies the pod needs to start.
        ephemeral: Its ephemeral containers, which are added to the lower Pod once it is there.
        ephemeral_refusal: Why they are not; "" if they are not refused.
    """

    object: Json = {}
    refusal: str = ""
    tokens: tuple[Token, ...] = ()
    needs: frozenset[PodReference] = frozenset()
    ephemeral: tuple[Json, ...] = ()
    ephemeral_refusal: str = ""


def down(
    pod: Json,
    profile: Profile,
    nodes: LowerNodes = nodenames.no_nodes,
    links: Mapping[str, str] = MappingProxyType({}),
) -> Down:
    """Return the lower Pod of an upper one.

    Args:
        pod: The upper Pod, as its API server has it or of any other content; it is not changed.
        profile: The configuration.
        nodes: The lower nodes, by the upper names that the pod may select them by.
        links: The variables of the Services of its namespace, which its containers have unless it turns them off, or
            they are more than `MOST_LINKS` together.
    """
    try:
        metadata = _metadata(pod)
        identity = _identity(metadata, pod, profile)
        if profile.limits is not None:
            pod = podlimits.limited(pod, profile.limits)
        lower_metadata = marking.metadata("Pod", pod, profile, {GIVEN_GATES: gates(part(pod, "spec"))})
        spec = SPEC(part(pod, "spec"), "spec")
        references.check(spec)
        namespace, name = metadata["namespace"], metadata["name"]
        needs = references.needed(pod, namespace, spec)
        selectors.confine(spec, marking.users(metadata.get("labels"), profile), namespace, profile)
        nodenames.translate(spec, nodes, profile)
        _rename(spec, metadata, profile)
        _keep_environment(spec, identity, profile)
        many = len(links) * sum(len(spec.get(field, ())) for field in _CONTAINERS)
        if spec.get("enableServiceLinks") is not False and many <= MOST_LINKS:
            _add_environment(spec, links)
        tokens = tuple(_replace_projections(spec, profile.lower_name(TOKEN, namespace, name), profile))
    except NotTranslated as refused:
        return Down(refusal=str(refused))
    ephemeral, ephemeral_refusal = _added(pod, metadata, identity, profile)
    spec["automountServiceAccountToken"] = False
    # They would have the names of lower Services.
    spec["enableServiceLinks"] = False
    # Otherwise the API server adds the pull secrets of the lower ServiceAccount, which are not the upper side's.
    # Kubelet ignores an entry without a name (k8s.io/kubernetes/pkg/kubelet/kubelet_pods.go, getPullSecretsForPod).
    if not spec.get("imagePullSecrets"):
        spec["imagePullSecrets"] = [{"name": ""}]
    # Their conditions are on the upper side only, so that the lower pod would never be ready; `podstatus` has them.
    spec.pop("readinessGates", None)
    host = name[:LABEL_LENGTH].rstrip("-.")
    # Without a hostname kubelet would use the lower name. A name with dots cannot be a hostname.
    if not spec.get("hostname") and _LABEL.fullmatch(host):
        spec["hostname"] = host
    return Down(
        object={"apiVersion": "v1", "kind": "Pod", "metadata": lower_metadata, "spec": spec},
        tokens=tokens,
        needs=needs,
        ephemeral=ephemeral,
        ephemeral_refusal=ephemeral_refusal,
    )


def _added(pod: Json, metadata: Json, identity: Mapping[str, str], profile: Profile) -> tuple[tuple[Json, ...], str]:
    """Return the ephemeral containers, and why they are refused."""
    try:
        added = ADDED(part(pod, "spec"), "spec")
        if not added:
            return (), ""
        references.check(SPEC(part(pod, "spec"), "spec"), added)
        _rename(added, metadata, profile)
        _keep_environment(added, identity, profile)
    except NotTranslated as refused:
        return (), str(refused)
    return tuple(added.get("ephemeralContainers", ())), ""


# Metadata


def _metadata(pod: Json) -> Json:
    metadata = marking.METADATA(part(pod, "metadata"), "metadata")
    for field in ("name", "namespace", "uid"):
        if not metadata.get(field):
            raise NotTranslated(f"metadata.{field} must not be empty: create the pod through the API server")
    if STATIC_POD in metadata.get("annotations", ()):
        raise NotTranslated(
            f"metadata.annotations may not contain '{STATIC_POD}': static pods run only on their own node"
        )
    return metadata


def gates(spec: Json) -> list[str]:
    """Return the names of the scheduling gates of an upper or lower pod."""
    return [name_of(gate) for gate in items(spec, "schedulingGates") if name_of(gate)]


def name_of(item: Json) -> str:
    """Return the name of a container or gate; "" if it has none."""
    name = item.get("name")
    return name if isinstance(name, str) else ""


# Names and projected files


def _rename(spec: Json, metadata: Json, profile: Profile) -> None:
    namespace = metadata["namespace"]
    for volume in spec.get("volumes", ()):
        if volume.pop("ephemeral", None) is not None:
            # The upper controller makes the claim under this name (Kubernetes: "Ephemeral volumes", naming).
            volume["persistentVolumeClaim"] = {"claimName": f"{metadata['name']}-{volume.get('name', '')}"}
    for place in references.places(spec):
        if not place.name:
            raise NotTranslated(f"{place.path} must name a {place.kind}")
        place.holder[place.key] = profile.lower_name(place.kind, namespace, place.name)


def _replace_projections(spec: Json, secret: str, profile: Profile) -> Iterator[Token]:
    """Replace tokens and downward API fields in volumes; yield the tokens."""
    for place, volume in enumerate(spec.get("volumes", ())):
        path = f"spec.volumes[{place}]"
        _keep_files(volume.get("downwardAPI", {}), f"{path}.downwardAPI", profile)
        sources = volume.get("projected", {}).get("sources", [])
        for index, source in enumerate(sources):
            inside = f"{path}.projected.sources[{index}]"
            _keep_files(source.get("downwardAPI", {}), f"{inside}.downwardAPI", profile)
            if "serviceAccountToken" in source:
                key = f"{volume.get('name', '')}.{index}"
                token = _token(source["serviceAccountToken"], key, inside, profile)
                sources[index] = {"secret": {"name": secret, "items": [{"key": token.key, "path": token.path}]}}
                yield token


def _token(source: Json, key: str, path: str, profile: Profile) -> Token:
    if not source.get("path"):
        raise NotTranslated(f"{path}.serviceAccountToken.path must not be empty")
    seconds = source.get("expirationSeconds", _DEFAULT_SECONDS)
    if seconds == _INJECTED_SECONDS:
        # No user has chosen it. Each renewal needs the upper API server, which may sleep meanwhile.
        seconds = _MOST_SECONDS
    most = _MOST_SECONDS if profile.limits is None else profile.limits.token_seconds
    return Token(
        key=key,
        audience=source.get("audience", ""),
        seconds=min(max(seconds, _LEAST_SECONDS), most),
        path=source["path"],
    )


def _keep_files(source: Json, path: str, profile: Profile) -> None:
    """Have the files of a downward API volume show the upper name, namespace and uid, which the marks hold."""
    marked = {f"metadata.{mark}": profile.mark(mark) for mark in ("name", "namespace", "uid")}
    for index, file in enumerate(source.get("items", ())):
        reference = file.get("fieldRef", {})
        field = reference.get("fieldPath", "")
        if field in marked:
            reference["fieldPath"] = f"metadata.annotations['{marked[field]}']"
        elif "fieldRef" in file and field not in _VOLUME_FIELDS and not _ENTRY.fullmatch(field):
            raise NotTranslated(f"{path}.items[{index}].fieldRef.fieldPath must be a field that volumes support")


# Environment


def _identity(metadata: Json, pod: Json, profile: Profile) -> dict[str, str]:
    """Return the fields of the downward API that have other values in the lower pod."""
    spec = part(pod, "spec")
    account: Any = spec.get("serviceAccountName") or spec.get("serviceAccount") or "default"
    if not isinstance(account, str):
        raise NotTranslated("spec.serviceAccountName must be a string")
    fields = {f"metadata.{field}": metadata[field] for field in ("name", "namespace", "uid")}
    node = {"spec.nodeName": profile.node} if profile.node else {}
    return {**fields, **node, "spec.serviceAccountName": account}


def _keep_environment(spec: Json, identity: Mapping[str, str], profile: Profile) -> None:
    """Have the variables of all containers show the upper pod, and name the upper API server."""
    for field in _CONTAINERS:
        for place, container in enumerate(spec.get(field, ())):
            given = container.get("env", [])
            path = f"spec.{field}[{place}].env"
            variables = [_variable(each, identity, f"{path}[{index}]") for index, each in enumerate(given)]
            if variables:
                container["env"] = variables
    api = {"KUBERNETES_SERVICE_HOST": profile.api_host, "KUBERNETES_SERVICE_PORT": profile.api_port}
    _add_environment(spec, {key: value for key, value in api.items() if value})


def _add_environment(spec: Json, variables: Mapping[str, str]) -> None:
    """Give all containers variables, unless they have others of the same names."""
    for field in _CONTAINERS:
        for container in spec.get(field, ()):
            given = container.get("env", [])
            own = {each.get("name") for each in given}
            added = [{"name": key, "value": value} for key, value in variables.items() if key not in own]
            # First, because a variable can only refer to those before it.
            if added:
                container["env"] = [*added, *given]


def _variable(variable: Json, identity: Mapping[str, str], path: str) -> Json:
    if "fieldRef" not in variable.get("valueFrom", ()):
        return variable
    field = variable["valueFrom"]["fieldRef"].get("fieldPath", "")
    if field in identity:
        # Unlike the downward API, kubelet expands "$(NAME)" in a value; "$$" stands for "$".
        literal = {key: value for key, value in variable.items() if key != "valueFrom"}
        return {**literal, "value": identity[field].replace("$", "$$")}
    if field not in _ENV_FIELDS and not _ENTRY.fullmatch(field):
        raise NotTranslated(f"{path}.valueFrom.fieldRef.fieldPath must be a field that variables support")
    return variable
