"""The pods that an audit runs, and what is around them. Pure.

namespace of nobody's                         namespace that is audited
open      answers everybody                   peer     answers, behind a Service
closed    answers its own namespace alone     prober   makes the attempts
witness   makes the same attempts             eater    takes more memory than it may
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import msgspec

from tenantry.audit.attempts import Json, merged
from tenantry.audit.place import Node, Place

PORT = 8080
SECONDS = 300
"""The longest that a pod lives, whatever becomes of who made it."""

ROLE = "app.kubernetes.io/component"
MARK = {"app.kubernetes.io/name": "tenantry-audit"}
LIMIT_MIB = 64
EATEN_MIB = 3 * LIMIT_MIB
METADATA = "169.254.169.254:80"
MOST_NODES = 4
"""On so many nodes others are tried, and so many kubelets beside the pod's own."""
MOST_PLACES = 32
"""So many nodes are named to the scheduler."""
SECRETS = "/api/v1/secrets?limit=1"
VOLUME = "/volume"
CLUSTER_DOMAIN = "cluster.local"


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """The image of the probe: its reference, and whether nodes have it already."""

    reference: str
    is_there: bool = False


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where a server is: its pod's address and node, its Service's address and name."""

    name: str
    pod: str
    node: str
    service: str
    dns: str


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of a pod: its id, what is done with which target, and which word must answer."""

    id: str
    kind: str
    target: str
    told: str
    word: str = ""


def namespace(place: Place) -> Json:
    """Return the namespace of nobody's."""
    return {"metadata": {"name": place.name, "labels": MARK}}


def closing() -> Json:
    """Return the NetworkPolicy that closes the pod `closed` to other namespaces."""
    everybody_here: Json = {"podSelector": {}}
    spec: Json = {
        "podSelector": {"matchLabels": {ROLE: "closed"}},
        "policyTypes": ["Ingress"],
        "ingress": [{"from": [everybody_here]}],
    }
    return {"metadata": {"name": "closed", "labels": MARK}, "spec": spec}


def service(name: str, role: str) -> Json:
    """Return the Service of a pod."""
    return {
        "metadata": {"name": name, "labels": MARK},
        "spec": {"selector": {**MARK, ROLE: role}, "ports": [{"port": PORT}]},
    }


def pod(name: str, role: str, image: Image, arguments: Iterable[str], *, bare: bool = False) -> Json:
    """Return a pod of the probe.

    Args:
        name: Its name.
        role: What it is for.
        image: What it runs.
        arguments: Of the probe.
        bare: Nothing is said of its security; else it passes the Restricted Pod Security Standard.
    """
    amounts = {"cpu": "20m", "memory": f"{LIMIT_MIB}Mi", "ephemeral-storage": "16Mi"}
    container: Json = {
        "name": "probe",
        "image": image.reference,
        "imagePullPolicy": "IfNotPresent" if image.is_there else "Always",
        "args": list(arguments),
        "env": [{"name": "HOST_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}],
        "resources": {"requests": amounts, "limits": {**amounts, "cpu": "500m"}},
    }
    # Apart from each other where there is room: what passes on one node may not pass between two.
    apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": MARK}}
    spec: Json = {
        "containers": [container],
        "restartPolicy": "Never",
        "activeDeadlineSeconds": SECONDS,
        "terminationGracePeriodSeconds": 0,
        "affinity": {
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": apart}]
            }
        },
    }
    if not bare:
        container["securityContext"] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        spec["securityContext"] = {
            "runAsNonRoot": True,
            "runAsUser": 65534,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        spec["automountServiceAccountToken"] = False
    return {"metadata": {"name": name, "labels": {**MARK, ROLE: role}}, "spec": spec}


def claim(name: str, class_name: str = "") -> Json:
    """Return a claim of a small volume, of the default StorageClass where none is named."""
    spec: Json = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "16Mi"}}}
    if class_name:
        spec["storageClassName"] = class_name
    return {"metadata": {"name": name, "labels": MARK}, "spec": spec}


def with_claim(value: Json, name: str) -> Json:
    """Return a pod that has the volume of a claim."""
    container = {**value["spec"]["containers"][0], "volumeMounts": [{"name": "volume", "mountPath": VOLUME}]}
    volume = {"name": "volume", "persistentVolumeClaim": {"claimName": name}}
    return merged(value, {"spec": {"containers": [container], "volumes": [volume]}})


def on_real(value: Json, nodes: Iterable[Node]) -> Json:
    """Return a pod that goes to nodes that run containers, where others only play."""
    terms = [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node.name]}]}
        for node in tuple(nodes)[:MOST_PLACES]
    ]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    return merged(value, {"spec": {"affinity": affinity}})


def serving(word: str) -> tuple[str, ...]:
    """Return the arguments of a pod that answers with a word."""
    return "serve", word, str(PORT)


def trying(attempts: Iterable[Attempt], controls: tuple[str, ...], hopeless: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the arguments of a pod that makes attempts.

    Args:
        attempts: All of them.
        controls: What the ids of those begin with that must work, and are tried until they do.
        hopeless: What those begin with that it does not make.
    """
    wanted = [
        {
            "id": each.id,
            "kind": each.kind,
            "target": each.target,
            "word": each.word,
            "control": each.id.startswith(controls),
        }
        for each in attempts
        if not (hopeless and each.id.startswith(hopeless))
    ]
    return "try", json.dumps(wanted)


def attempts(place: Place, servers: Iterable[Address], word: str) -> list[Attempt]:
    """Return everything that the pods of both sides try.

    Args:
        place: Where.
        servers: The pods that answer: open, peer, and one closed for each node.
        word: What they answer.
    """
    found: dict[str, Attempt] = {}
    for each in servers:
        whose, several = _WHOSE[each.name], each.name == "closed"
        for one in (
            Attempt(
                id=f"{each.name}-address" + (f"-{each.node}" if several else ""),
                kind="hello",
                target=f"{_host(each.pod)}:{PORT}",
                word=word,
                told=f"connect to a pod {whose} (on {each.node})",
            ),
            Attempt(
                id=f"{each.name}-service",
                kind="hello",
                target=f"{_host(each.service)}:{PORT}",
                word=word,
                told=f"connect to the Service of a pod {whose}",
            ),
            Attempt(id=f"{each.name}-name", kind="name", target=f"{each.dns}.", told=f"resolve {each.dns!r}"),
            *([_reverse(each)] if several else []),
        ):
            found.setdefault(one.id, one)
    return [*found.values(), *_nodes(place), *_api()]


_WHOSE = {
    "peer": "of the tenant",
    "open": "of another namespace",
    "closed": "that a NetworkPolicy closes to other namespaces",
}


def _reverse(server: Address) -> Attempt:
    told = "resolve the name that belongs to the address of another namespace's Service"
    return Attempt(id="closed-reverse", kind="reverse", target=server.service, told=told)


def _nodes(place: Place) -> list[Attempt]:
    # The kubelet expands this: which node that is nobody knows before the pod has one.
    port = place.real_nodes[0].kubelet_port if place.real_nodes else 10250
    found = [
        Attempt(id="node-own", kind="tcp", target=f"$(HOST_IP):{port}", told="connect to the kubelet of its own node"),
        Attempt(id="metadata", kind="tcp", target=METADATA, told=f"connect to the metadata address {METADATA}"),
    ]
    for number, node in enumerate(place.real_nodes[:MOST_NODES]):
        for address in node.addresses[:1]:
            target = f"{_host(address)}:{node.kubelet_port}"
            told = f"connect to the kubelet of the node {node.name!r}"
            found.append(Attempt(id=f"node-{number}", kind="tcp", target=target, told=told))
    return found


def _api() -> list[Attempt]:
    what = "ask the API server for the Secrets of all namespaces"
    return [
        Attempt(id="api", kind="api", target=SECRETS, told=f"{what} without a token"),
        Attempt(id="api-token", kind="api-token", target=SECRETS, told=f"{what} with the token of the pod"),
    ]


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address
