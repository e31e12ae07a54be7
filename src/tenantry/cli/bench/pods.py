"""`tenantry bench pods`: what the rules cost the pods of tenants."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from tenantry.cli import output
from tenantry.cli.target import Target, takes_target

if TYPE_CHECKING:
    from tenantry.bench.pods import PodsResult, PodsSide

MANY = 2500
"""From this many pods on, two rounds are long enough to be believed."""


@click.command()
@takes_target
@click.option("--tenants", type=click.IntRange(1, 500), default=32, show_default=True, help="Namespaces on each side.")
@click.option("--pods", type=click.IntRange(1, 100_000), default=2500, show_default=True, help="On each side, in all.")
@click.option("--rounds", type=click.IntRange(1, 50), help=f"Interleaved rounds; 4, or 2 from {MANY} pods on.")
@click.option("--quota", is_flag=True, help="The tenants have a quota, too, which Kubernetes counts at every pod.")
@click.option("--each-policy", is_flag=True, help="Also measure what each policy costs.")
@output.output_option("json")
def pods(
    target: Target, *, tenants: int, pods: int, rounds: int | None, quota: bool, each_policy: bool, form: str | None
) -> None:
    """Make pods in tenants' namespaces with every rule on, and in as many that are no tenant's, to compare.

    The nodes must have room for the pods of one side: `tenantry up --nodes` makes simulated ones. Nothing that is in
    force is taken away: with --each-policy the policies are bound a few times more, in the benchmark's own namespaces.
    Everything that was made is deleted again. Needs an administrator's credentials, who may impersonate.
    """
    import uvloop

    from tenantry.bench.load import CONNECTIONS
    from tenantry.bench.pods import Load
    from tenantry.bench.pods import pods as measure
    from tenantry.kube.client import Client
    from tenantry.kube.version import require_supported

    load = Load(
        tenants=tenants,
        pods=pods,
        rounds=rounds or (2 if pods >= MANY else 4),
        quota=quota,
        each_policy=each_policy,
    )

    async def main() -> PodsResult:
        connection = target.connection()
        # Beside the writers of tenants: watches.
        async with Client(connection, field_manager="tenantry-bench", max_connections=CONNECTIONS + 4) as client:
            await require_supported(client)
            return await measure(client, load, output.talk)

    result = uvloop.run(main())
    if form == "json":
        output.write(msgspec.json.encode(result).decode())
    else:
        output.write_lines(_lines(result))


def _lines(result: PodsResult) -> list[str]:
    quota = ", with a quota" if result.quota else ""
    policies = [
        f"  {each.policy:<40} {each.milliseconds:>7.2f} ms for each pod ({100 * each.share:.0f} %)"
        for each in result.policies or ()
    ]
    ratio = f"{result.ratio} made, {result.running_ratio} until all run (1 is as if nothing guarded)"
    return [
        f"pods               {result.pods} in {result.tenants} namespaces{quota}, {result.rounds} round(s)",
        f"guarded            {_side(result.guarded)}",
        f"unguarded          {_side(result.unguarded)}",
        f"ratio              {ratio}",
        *(["policies", *policies] if result.policies is not None else []),
    ]


def _side(side: PodsSide) -> str:
    return f"{side.pods_per_second} a second, all run after {side.running_seconds} s"
