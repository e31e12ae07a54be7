"""The pods that an audit runs, and the objects around them. Pure.

the probe's namespace                         the audited namespace
open      answers every pod                   peer     answers, behind a Service
closed    answers its own namespace only      prober   makes the attempts
witness   makes the same attempts             eater    exceeds its memory limit
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import msgspec

from tenantry.api.model import Json
from tenantry.audit.attempts import RESTRICTED_CONTAINER, RESTRICTED_POD
from tenantry.audit.context import AuditContext, AuditNode
from tenantry.engine.preview import merged

PORT = 8080
SECONDS = 300
"""How long a pod lives at most, even if the audit is killed."""

ROLE = "app.kubernetes.io/component"
MARK = {"app.kubernetes.io/name": "tenantry-audit"}
LIMIT_MIB = 64
EXCESS_MIB = 3 * LIMIT_MIB
METADATA = "169.254.169.254:80"
MAX_NODES = 4
"""How many nodes run a closed pod, and how many kubelets are tried beside the own node's."""
MAX_ADDRESSES = 8
"""How many addresses of each of these nodes are tried."""
GATEWAY = "gateway"
"""The host of a target that is the default gateway of the pod; see go/probe/attempts.go."""
MAX_TERMS = 32
"""How many nodes a pod's affinity names."""
SECRETS = "/api/v1/secrets?limit=1"
VOLUME = "/volume"
CLUSTER_DOMAIN = "cluster.local"


class ProbeImage(msgspec.Struct, frozen=True, kw_only=True):
    """The image of the probe: its reference, and whether the nodes have it already."""

    reference: str
    is_there: bool = False


class ServerAddress(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses of a server: its pod's address and node, its Service's address and name."""

    name: str
    pod: str
    node: str
    service: str
    dns: str


class ProbeAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of a pod: its id, the kind of request, its target, and the word that must answer."""

    id: str
    kind: str
    target: str
    told: str
    word: str = ""


def namespace(context: AuditContext) -> Json:
    """Return the probe's own namespace."""
    return {"metadata": {"name": context.name, "labels": MARK}}


def closing() -> Json:
    """Return the NetworkPolicy that closes the pod `closed` to other namespaces."""
    same_namespace: Json = {"podSelector": {}}
    spec: Json = {
        "podSelector": {"matchLabels": {ROLE: "closed"}},
        "policyTypes": ["Ingress"],
        "ingress": [{"from": [same_namespace]}],
    }
    return {"metadata": {"name": "closed", "labels": MARK}, "spec": spec}


def service(name: str, role: str) -> Json:
    """Return the Service of a pod."""
    return {
        "metadata": {"name": name, "labels": MARK},
        "spec": {"selector": {**MARK, ROLE: role}, "ports": [{"port": PORT}]},
    }


def pod(name: str, role: str, image: ProbeImage, arguments: Iterable[str], *, bare: bool = False) -> Json:
    """Return a pod of the probe.

    Args:
        name: The pod's name.
        role: Its role, as in the module's docstring.
        image: The image of the probe.
        arguments: The arguments of the probe.
        bare: It has no securityContext; otherwise it passes the Restricted Pod Security Standard.
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
    # On different nodes if possible: a connection between two nodes may be blocked although one within a node is not.
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
        container["securityContext"] = RESTRICTED_CONTAINER
        spec["securityContext"] = RESTRICTED_POD
        spec["automountServiceAccountToken"] = False
    return {"metadata": {"name": name, "labels": {**MARK, ROLE: role}}, "spec": spec}


def claim(name: str, class_name: str = "") -> Json:
    """Return a claim of a small volume; of the default StorageClass if class_name is ""."""
    spec: Json = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "16Mi"}}}
    if class_name:
        spec["storageClassName"] = class_name
    return {"metadata": {"name": name, "labels": MARK}, "spec": spec}


def with_claim(value: Json, name: str) -> Json:
    """Return a pod that mounts the volume of a claim."""
    container = {**value["spec"]["containers"][0], "volumeMounts": [{"name": "volume", "mountPath": VOLUME}]}
    volume = {"name": "volume", "persistentVolumeClaim": {"claimName": name}}
    return merged(value, {"spec": {"containers": [container], "volumes": [volume]}})


def on_nodes(value: Json, nodes: Iterable[AuditNode]) -> Json:
    """Return a pod that is scheduled to one of some nodes: other nodes may be simulated."""
    terms = [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node.name]}]}
        for node in tuple(nodes)[:MAX_TERMS]
    ]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    return merged(value, {"spec": {"affinity": affinity}})


def serving(word: str) -> tuple[str, ...]:
    """Return the arguments of a pod that answers with a word."""
    return "serve", word, str(PORT)


def trying(attempts: Iterable[ProbeAttempt], controls: tuple[str, ...]) -> tuple[str, ...]:
    """Return the arguments of a pod that makes attempts.

    Args:
        attempts: The attempts.
        controls: Prefixes of the ids of those that must work: the probe repeats them until they do.
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
    ]
    return "try", json.dumps(wanted)


def attempts(context: AuditContext, servers: Iterable[ServerAddress], word: str) -> list[ProbeAttempt]:
    """Return every attempt of the prober and the witness.

    Args:
        context: The namespace and its surroundings.
        servers: The pods that answer: open, peer, and one closed for each node.
        word: Their answer.
    """
    found: dict[str, ProbeAttempt] = {}
    for each in servers:
        owner, several = _OWNERS[each.name], each.name == "closed"
        for one in (
            ProbeAttempt(
                id=f"{each.name}-address" + (f"-{each.node}" if several else ""),
                kind="hello",
                target=f"{_host(each.pod)}:{PORT}",
                word=word,
                told=f"connect to a pod {owner} (on {each.node})",
            ),
            ProbeAttempt(
                id=f"{each.name}-service",
                kind="hello",
                target=f"{_host(each.service)}:{PORT}",
                word=word,
                told=f"connect to the Service of a pod {owner}",
            ),
            ProbeAttempt(id=f"{each.name}-name", kind="name", target=f"{each.dns}.", told=f"resolve {each.dns!r}"),
            *([_reverse(each)] if several else []),
        ):
            found.setdefault(one.id, one)
    return [*found.values(), *_nodes(context), *_api()]


_OWNERS = {
    "peer": "of the tenant",
    "open": "of another namespace",
    "closed": "that a NetworkPolicy closes to other namespaces",
}


def _reverse(server: ServerAddress) -> ProbeAttempt:
    told = "resolve the name that belongs to the address of another namespace's Service"
    return ProbeAttempt(id="closed-reverse", kind="reverse", target=server.service, told=told)


def _nodes(context: AuditContext) -> list[ProbeAttempt]:
    # The kubelet expands $(HOST_IP): the pod's node is unknown until it is scheduled.
    port = context.real_nodes[0].kubelet_port if context.real_nodes else 10250
    found = [
        ProbeAttempt(
            id="node-own", kind="tcp", target=f"$(HOST_IP):{port}", told="connect to the kubelet of its own node"
        ),
        # The probe looks its default route up: it leads to the node, whichever range the node's pods have.
        ProbeAttempt(
            id="gateway",
            kind="tcp",
            target=f"{GATEWAY}:{port}",
            told="connect to the kubelet of its own node at the gateway of the pod",
        ),
        ProbeAttempt(id="metadata", kind="tcp", target=METADATA, told=f"connect to the metadata address {METADATA}"),
    ]
    for number, node in enumerate(context.real_nodes[:MAX_NODES]):
        for place, address in enumerate(node.addresses[:MAX_ADDRESSES]):
            target = f"{_host(address)}:{node.kubelet_port}"
            told = f"connect to the kubelet of the node {node.name!r} at {address}"
            found.append(ProbeAttempt(id=f"node-{number}-{place}", kind="tcp", target=target, told=told))
    return found


def _api() -> list[ProbeAttempt]:
    what = "ask the API server for the Secrets of all namespaces"
    return [
        ProbeAttempt(id="api", kind="api", target=SECRETS, told=f"{what} without a token"),
        ProbeAttempt(id="api-token", kind="api-token", target=SECRETS, told=f"{what} with the token of the pod"),
    ]


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address
