"""`tenantry explain slice`: why a claim has the nodes that it has, and each other node not."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
import msgspec

from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import TENANT
from tenantry.api.slice import Sharing, SliceClaim, slice_name
from tenantry.cli import output, place, session
from tenantry.cli.seen import PODS
from tenantry.cli.target import Target, takes_target
from tenantry.world.slices.selection import select, sum_of

if TYPE_CHECKING:
    from tenantry.controllers.nodes.controller import Node
    from tenantry.kube.client import Client


class SliceAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a claim has, and what it would get now.

    Args:
        claim: NAMESPACE/NAME.
        state: How far it is.
        has: The nodes that it has.
        would_take: The nodes that it would get besides, as things are.
        short: What it lacks, and the nearest that would fit; "" for nothing.
        refused: Node to why it is not taken.
    """

    claim: str
    state: str
    has: tuple[str, ...]
    would_take: tuple[str, ...]
    short: str
    refused: dict[str, str]


@click.command("slice")
@takes_target
@click.argument("called", metavar="NAME")
@place.takes_namespace("The claim's namespace; the context's where it names one.")
@output.output_option("json")
def slice_(target: Target, *, called: str, namespace: str, form: str | None) -> None:
    r"""Tell why a claim has its nodes, what it lacks, and why each other node is not taken.

    It reads nodes and pods: an administrator's command.

    \b
      tenantry explain slice fast -n acme
    """
    where = place.parent(target, namespace)
    answer = session.run(target, lambda client: explain(client, called, where))
    if form:
        output.write(output.to_json(answer))
        return
    output.write_lines(_lines(answer))


async def explain(client: Client, name: str, namespace: str) -> SliceAnswer:
    """Return why a claim has the nodes that it has.

    Raises:
        NotFound: There is no such claim.
        Forbidden: The claim, nodes or pods may not be read.
    """
    from tenantry.cli.nodes_reads import shared_nodes
    from tenantry.controllers.nodes.controller import Node
    from tenantry.controllers.slices import desired, pods

    claim = await client.get(SliceClaim, name, namespace)
    own = slice_name(name, claim.metadata.uid)
    nodes = await client.list(Node)
    if claim.spec.sharing is Sharing.PART:
        return await _explain_parts(client, claim, own, nodes)
    leaving: Counter[str] = Counter()
    async for page in client.pages(pods.Pod.resource, msgspec.Raw):
        leaving.update(node for raw in page.items for node in pods.leaving_of(pods.observe(raw)))
    facts = [desired.facts(node, leaving[node.metadata.name]) for node in nodes]
    tenant = (await client.get(Namespace, namespace)).metadata.labels.get(TENANT, "")
    held = sum_of(each for each in facts if each.taken_by == own)
    choice = select(claim.spec, facts, held, tenant, shared=await shared_nodes(client))
    return SliceAnswer(
        claim=claim.key,
        state=claim.status.state.value,
        has=tuple(sorted(each.name for each in facts if each.taken_by == own)),
        would_take=tuple(sorted(choice.nodes)),
        short=choice.short,
        refused=dict(sorted(choice.refused.items())),
    )


async def _explain_parts(client: Client, claim: SliceClaim, own: str, nodes: Sequence[Node]) -> SliceAnswer:
    from tenantry.controllers.parts import desired, pods
    from tenantry.world.parts import Size, choose, parts_of

    on: defaultdict[str, list[pods.PodOnNode]] = defaultdict(list)
    async for page in client.pages(PODS, msgspec.Raw, selectors=pods.RUNNING):
        for pod in map(pods.read, page.items):
            on[pod.facts.node].append(pod)
    others = {node: pods.of_others(found) for node, found in on.items()}
    facts = [desired.facts(node, others.get(node.metadata.name, Size())) for node in nodes]
    choice = choose(claim.spec, facts, own)
    return SliceAnswer(
        claim=claim.key,
        state=claim.status.state.value,
        has=tuple(sorted(each.name for each in facts if own in parts_of(each.labels))),
        would_take=tuple(sorted(choice.nodes)),
        short=choice.short,
        refused=dict(sorted(choice.refused.items())),
    )


def _lines(answer: SliceAnswer) -> list[str]:
    lines = [f"{answer.claim} is {answer.state}", f"has: {', '.join(answer.has) or 'no nodes'}"]
    if answer.would_take:
        lines.append(f"would take: {', '.join(answer.would_take)}")
    if answer.short:
        lines.append(f"lacks: {answer.short}")
    return [*lines, "", *output.table(("NODE", "NOT TAKEN BECAUSE"), list(answer.refused.items()))]
