"""`tenantry bench tree`: how fast a tree of namespaces is established."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tenantry.api.errors import InputError
from tenantry.cli import output
from tenantry.cli.bench.running import metrics_option, operator_usage, read_metrics, rounds_option, run
from tenantry.cli.target import Target, takes_target

if TYPE_CHECKING:
    from tenantry.bench.tree import TreeResult
    from tenantry.kube.client import Client


@click.command()
@takes_target
@click.option(
    "--namespaces",
    type=click.IntRange(1, 20_000),
    default=100,
    show_default=True,
    help="Number of namespaces below the core namespace.",
)
@click.option("--depth", type=click.IntRange(1, 32), default=1, show_default=True, help="Number of levels.")
@click.option(
    "--fanout",
    type=click.IntRange(1, 20_000),
    default=10,
    show_default=True,
    help="Number of children of each namespace; with --depth 1 the core namespace has all.",
)
@click.option(
    "--inherit",
    default="role,rolebinding,secret",
    show_default=True,
    metavar="KIND,...",
    help="Kinds of which every child inherits one object: role, rolebinding, secret, configmap; or none.",
)
@click.option("--quota", is_flag=True, help="Give the tenant a quota, and every child a share of it.")
@rounds_option(1)
@metrics_option
@output.output_option("json")
def tree(
    target: Target,
    *,
    namespaces: int,
    depth: int,
    fanout: int,
    inherit: str,
    quota: bool,
    rounds: int,
    operator_metrics: str,
    form: str | None,
) -> None:
    """Create a tenant's tree of namespaces, and write the same objects without an operator for comparison.

    The operator pauses in the second half of each round, as in `bench establish`. The benchmark deletes everything
    that it creates, and needs an administrator's credentials.
    """
    from tenantry.bench import tree as benchmark

    kinds = tuple(dict.fromkeys(part.strip() for part in inherit.split(",") if part.strip() not in {"", "none"}))
    unknown = [kind for kind in kinds if kind not in benchmark.SOURCES]
    if unknown:
        raise InputError(f"--inherit {unknown[0]!r} is none of {', '.join(benchmark.SOURCES)}")
    shape = benchmark.TreeShape(namespaces=namespaces, depth=depth, fanout=fanout, inherit=kinds, quota=quota)
    benchmark.plan(shape)  # an impossible shape is rejected before the cluster is asked

    async def measure(client: Client) -> TreeResult:
        metrics = await read_metrics(client, target, operator_metrics)
        return await benchmark.tree(client, shape=shape, rounds=rounds, metrics=metrics, progress=output.talk)

    run(target, form, measure, _lines)


def _lines(result: TreeResult) -> list[tuple[str, str]]:
    change = (
        "no Secret is inherited"
        if result.change_seconds is None
        else f"{result.change_seconds} s until every child has it"
    )
    return [
        ("namespaces", f"{result.namespaces} in {result.depth} level(s), {result.objects} objects"),
        ("tree", f"{result.tree_seconds} s"),
        ("raw writes", f"{result.raw_seconds} s"),
        ("ratio", f"{result.ratio} (1 is as fast as writing alone)"),
        operator_usage(result.operator_cpu_seconds, result.operator_rss_mib),
        ("changed Secret", change),
        ("deleted", f"{result.deleted_seconds} s"),
    ]
