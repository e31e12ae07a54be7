"""The next step of a machine that joins the control plane that it serves, seen from inside: pure.

    Wiped    record of a token ─► token inside ─► status.join
    Joining  its request ─► the record is used ─► approved ─► the kubelet makes its Node ─► the token is deleted
    Joined   the Node is Ready, with the labels and taints of its pool; certificates are renewed

The record is written before what follows from it: after a crash, the next process continues, and no token is worth two
certificates. What starts the machine takes it from Wiped to Joining.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.clusterapi import provider_id
from tenantry.api.errors import Conflict, NotFound
from tenantry.api.marks import HANDOVER_RECORD, SYSTEM_NAMESPACE
from tenantry.api.model import Json
from tenantry.api.node import Node
from tenantry.api.nodehandover import (
    MOST_VERSION,
    PENDING,
    HandoverStage,
    JoinSecret,
    MachineKind,
    NodeHandover,
    NodeHandoverStatus,
    NodeJoin,
)
from tenantry.api.signing import SigningRequest
from tenantry.api.wording import shortened
from tenantry.controllers import signingrequests
from tenantry.controllers.joining import certificates, serveraddresses, signing, tokens
from tenantry.controllers.joining.tokens import JoinToken
from tenantry.engine import request
from tenantry.engine.plan import DirectWrite
from tenantry.hosting.noderuntime import NodeEndpoint

STAGES = frozenset({HandoverStage.WIPED, HandoverStage.JOINING, HandoverStage.JOINED})
"""Those in which a machine belongs to the control plane, or is about to."""


_GIVEN_SECONDS = 15.0
"""How soon to look again whether a token that Cluster API has made is inside."""


class JoinObstacle(msgspec.Struct, frozen=True):
    """What keeps a node out of its cluster.

    Args:
        reason: A constant of `tenantry.api.reasons`.
        message: What it is, and what to do.
    """

    reason: str
    message: str


class JoinMachineInputs(msgspec.Struct, frozen=True, kw_only=True):
    """What decides about one machine.

    Args:
        handover: Its NodeHandover, in one of `STAGES`.
        inside: The Node inside; None if there is none.
        token: The token of `status.join`; None if there is no readable record.
        fresh: A token that was never used, in case that one is needed.
        endpoint: Where nodes reach the control plane, if it `needs_token`; None if none can.
        requests: The requests for certificates that concern it.
        now: The time.
        services: The ranges of Services inside, with commas between them; "" if they are not known.
    """

    handover: NodeHandover
    inside: Node | None
    token: JoinToken | None
    fresh: JoinToken
    endpoint: NodeEndpoint | None
    requests: Sequence[SigningRequest] = ()
    now: dt.datetime
    services: str = ""


class MachineDecision(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done about one machine.

    Args:
        home: On the host, before what is written inside.
        inside: Inside.
        status: Of the NodeHandover, afterwards.
        obstacle: What keeps it out; None for nothing.
        events: What to report once: requests that are denied, and a token that nothing has used.
        again_seconds: When to look again; None for never.
    """

    home: tuple[DirectWrite, ...] = ()
    inside: tuple[DirectWrite, ...] = ()
    status: NodeHandoverStatus
    obstacle: JoinObstacle | None = None
    events: tuple[JoinObstacle, ...] = ()
    again_seconds: float | None = None


def decide(inputs: JoinMachineInputs) -> MachineDecision:
    """Return what is to be done about a machine."""
    found, inside, token = inputs.handover, inputs.inside, inputs.token
    is_known = inside is not None and is_of(inside, found)
    if inside is not None and not is_known and (token is None or not token.used):
        return _cleared(inputs, inside)
    first = next((each for each in inputs.requests if _is_taken(inputs, each)), None)
    if first is not None and token is not None and found.status.join is not UNSET:
        # Before the approval: a crash in between must not leave a token that is worth another certificate.
        write = tokens.used(found.status.join.secret, token, first.metadata.uid)
        return MachineDecision(home=(write,), status=found.status, again_seconds=0.0)
    decided = _decided(inputs)
    ends = certificates.ends(found.status.certificates, inputs.requests)
    decided = replace(decided, status=replace(decided.status, certificates=ends))
    if inside is None:
        if token is None or not token.used:
            return _offered(inputs, decided)
        return _absent(inputs, token, decided)
    stage = HandoverStage.JOINED if inside.is_ready else HandoverStage.JOINING
    # What starts the machine sets Joining; a Node that is Ready shows that it has.
    if found.status.stage is HandoverStage.WIPED and stage is HandoverStage.JOINING:
        stage = HandoverStage.WIPED
    status = seen(replace(decided.status, stage=stage, inside=inside.metadata.uid), inside)
    # Not with the approval: the kubelet waits for its certificate with the token.
    is_new = inside.metadata.annotations.get(HANDOVER_RECORD) != found.metadata.uid
    over = (tokens.withdrawn(token.id),) if is_new and token is not None else ()
    return replace(decided, inside=(*decided.inside, *over, *_pooled(found, inside)), status=status)


def seen(status: NodeHandoverStatus, inside: Node) -> NodeHandoverStatus:
    """Return a status with what a Node inside reports, which users inside can change."""
    return replace(
        status,
        kubelet=inside.status.node_info.kubelet_version[:MOST_VERSION],
        cordoned=inside.spec.unschedulable,
    )


def needs_token(token: JoinToken | None, now: dt.datetime) -> bool:
    """Return whether a machine that has not joined needs another token, and an endpoint to join at."""
    return token is None or token.is_late(now)


def is_of(inside: Node, found: NodeHandover) -> bool:
    """Return whether a Node inside is that of a NodeHandover; users inside may have removed its annotation."""
    mark = inside.metadata.annotations.get(HANDOVER_RECORD)
    return mark == found.metadata.uid or inside.metadata.uid == found.status.inside


def _absent(inputs: JoinMachineInputs, token: JoinToken, decided: MachineDecision) -> MachineDecision:
    """Return what is to be done while a machine that has its certificate has no Node inside."""
    found = inputs.handover
    stage = HandoverStage.JOINING if found.status.stage is HandoverStage.JOINED else found.status.stage
    left = (token.expires - inputs.now).total_seconds()
    message = (
        "its machine has a certificate, and no Node inside: a Node that was deleted is made again only when the kubelet"
        " starts; webhooks and policies inside may refuse it: end those, take the node out of its pool, and scale the"
        " pool again"
    )
    late = JoinObstacle(reasons.NODE_BLOCKED, message) if left <= 0 else None
    return replace(
        decided,
        status=replace(decided.status, stage=stage, inside=PENDING),
        obstacle=decided.obstacle or late,
        again_seconds=left if left > 0 else None,
    )


# -- the token ------------------------------------------------------------------------------------


def _cleared(inputs: JoinMachineInputs, inside: Node) -> MachineDecision:
    """Return the deletion of a Node that has the name of the machine and is not of it."""
    found, meta = inputs.handover, inside.metadata
    if meta.deletion_timestamp:
        return MachineDecision(status=found.status, obstacle=blocked_by(inside))
    gone = DirectWrite(request=request.delete(Node.resource, "", meta.name, uid=meta.uid), ignores=(NotFound, Conflict))
    return MachineDecision(inside=(gone,), status=found.status)


def blocked_by(inside: Node) -> JoinObstacle:
    """Return the obstacle that a Node of the same name is, which is being deleted."""
    names = shortened(map(repr, inside.metadata.finalizers)) or "none"
    message = (
        f"an earlier Node {inside.metadata.name!r} inside is being deleted and has the finalizers {names}: remove them"
        " inside"
    )
    return JoinObstacle(reasons.NODE_BLOCKED, message)


def _offered(inputs: JoinMachineInputs, decided: MachineDecision) -> MachineDecision:
    """Return the writes by which a machine that has not joined has a token that holds."""
    found, token, name = inputs.handover, inputs.token, inputs.handover.metadata.name
    if token is not None and not needs_token(token, inputs.now):
        left = (token.expires - inputs.now).total_seconds()
        again = left if found.spec.bootstrap is UNSET else min(left, _GIVEN_SECONDS)
        # Users inside may have deleted it, or the operator: one that Cluster API has made for the same token.
        return replace(decided, inside=(*decided.inside, tokens.offered(name, token)), again_seconds=again)
    if token is not None and found.status.kind is MachineKind.CONTRIBUTED:
        # Its owner starts it, perhaps never: a token that is made again and again would be one that never expires.
        message = (
            f"the machine of node {name!r} did not use its token in time: `tenantry node take-back {name} --from"
            f" {found.spec.plane.namespace}/{found.spec.plane.name}` ends its entry; then contribute the machine again"
        )
        late = JoinObstacle(reasons.JOIN_TOKEN_EXPIRED, message)
        return replace(decided, inside=(*decided.inside, tokens.withdrawn(token.id)), obstacle=decided.obstacle or late)
    if inputs.endpoint is None:
        message = "machines cannot reach the control plane: it has no endpoint for nodes"
        told = JoinObstacle(reasons.NO_NODE_ENDPOINT, message)
        return replace(decided, obstacle=decided.obstacle or told)
    wrong = serveraddresses.clash(found, inputs.endpoint, inputs.services)
    if wrong:
        return replace(decided, obstacle=decided.obstacle or JoinObstacle(reasons.NODE_BLOCKED, wrong))
    fresh = inputs.fresh
    home = [tokens.recorded(found, fresh)]
    # Cluster API has made a Secret for it, with another group.
    inside = [*((tokens.withdrawn(fresh.id),) if fresh.is_given else ()), tokens.offered(name, fresh)]
    before, events = found.status.join, decided.events
    if before is not UNSET:
        home.append(tokens.removed(before.secret))
        inside.append(tokens.withdrawn(tokens.id_of(found)))
        message = f"the machine of node {name!r} did not use its token in time: it gets another one"
        events = (*events, JoinObstacle(reasons.JOIN_TOKEN_EXPIRED, message))
    secret = JoinSecret(namespace=SYSTEM_NAMESPACE, name=tokens.secret_name(name, fresh.id))
    join = NodeJoin(server=inputs.endpoint.server, ca=inputs.endpoint.ca, secret=secret)
    return replace(
        decided,
        home=tuple(home),
        inside=(*decided.inside, *inside),
        # A return waits for any Node that may come of the token.
        status=replace(decided.status, join=join, inside=PENDING),
        events=events,
        again_seconds=(fresh.expires - inputs.now).total_seconds(),
    )


# -- certificates ---------------------------------------------------------------------------------


def _open(asked: SigningRequest) -> bool:
    return not asked.status.conditions


def _refusal(inputs: JoinMachineInputs, asked: SigningRequest) -> str:
    return signing.refusal(asked, inputs.handover, inputs.token, inputs.now, has_node=inputs.inside is not None)


def _is_taken(inputs: JoinMachineInputs, asked: SigningRequest) -> bool:
    """Return whether a request is the first one that may be granted for a token."""
    is_unused = inputs.token is not None and not inputs.token.used
    return is_unused and _open(asked) and signing.is_first(asked) and not _refusal(inputs, asked)


def _decided(inputs: JoinMachineInputs) -> MachineDecision:
    """Return the approvals and denials of the requests that wait."""
    found = inputs.handover
    writes, refused, denied = list[DirectWrite](), list[str](), list[str]()
    name = found.metadata.name
    for asked in inputs.requests:
        if not _open(asked):
            # As long as the request exists: Kubernetes deletes it after an hour.
            denied += [each.message for each in asked.status.conditions if each.reason == reasons.CERTIFICATE_REFUSED]
            continue
        why = _refusal(inputs, asked)
        if why:
            message = f"certificate request {asked.metadata.name!r} of node {name!r} is denied: {why}"
            refused.append(message)
            writes.append(signingrequests.decision(asked, "Denied", reasons.CERTIFICATE_REFUSED, message))
        else:
            message = f"the node {name!r} serves this cluster"
            writes.append(signingrequests.decision(asked, "Approved", reasons.NODE_JOINING, message))
    told = sorted([*refused, *denied])
    obstacle = JoinObstacle(reasons.CERTIFICATE_REFUSED, told[0]) if told else None
    events = tuple(JoinObstacle(reasons.CERTIFICATE_REFUSED, each) for each in refused)
    return MachineDecision(inside=tuple(writes), status=found.status, obstacle=obstacle, events=events)


# -- the Node -------------------------------------------------------------------------------------


def _pooled(found: NodeHandover, inside: Node) -> tuple[DirectWrite, ...]:
    """Return the write by which a Node has the labels and taints of its pool, a providerID, and its mark."""
    meta, spec = inside.metadata, found.spec
    labels = {key: value for key, value in spec.labels.items() if meta.labels.get(key) != value}
    mark = {} if meta.annotations.get(HANDOVER_RECORD) == found.metadata.uid else {HANDOVER_RECORD: found.metadata.uid}
    body: Json = {}
    # Once, with the mark: users inside may remove taints later, as those of any Node.
    if mark and spec.taints:
        own = {(each.key, each.effect) for each in spec.taints}
        kept = [msgspec.to_builtins(each) for each in inside.spec.taints if (each.key, each.effect) not in own]
        wanted = [{"key": each.key, "value": each.value, "effect": each.effect} for each in spec.taints]
        body["metadata"] = {"resourceVersion": meta.resource_version}
        body["spec"] = {"taints": [*kept, *wanted]}
    # Cluster API finds the Node of a Machine by it. It can be set once.
    if not inside.spec.provider_id:
        body.setdefault("spec", {})["providerID"] = provider_id(found)
    if labels or mark:
        body.setdefault("metadata", {}).update({"labels": labels, "annotations": mark})
    if not body:
        return ()
    asked = request.patch(Node.resource, "", meta.name, body)
    return (DirectWrite(request=asked, ignores=(NotFound, Conflict)),)
