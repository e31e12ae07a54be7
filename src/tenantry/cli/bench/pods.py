"""`tenantry bench pods`: what the rules cost the pods of tenants."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tenantry.cli import output
from tenantry.cli.bench.running import rounds_option, run
from tenantry.cli.target import Target, takes_target

if TYPE_CHECKING:
    from tenantry.bench.pods import PodsResult, PodsSide
    from tenantry.kube.client import Client

MANY = 2500
"""With so many pods, two rounds are long enough for a reliable result."""


@click.command()
@takes_target
@click.option(
    "--tenants", type=click.IntRange(1, 500), default=32, show_default=True, help="Number of namespaces on each side."
)
@click.option(
    "--pods", type=click.IntRange(1, 100_000), default=2500, show_default=True, help="Number of pods on each side."
)
@rounds_option(None, f"4, or 2 from {MANY} pods on")
@click.option("--quota", is_flag=True, help="Give the tenants a quota, which Kubernetes updates with every pod.")
@click.option("--each-policy", is_flag=True, help="Measure the cost of each policy, too.")
@output.output_option("json")
def pods(
    target: Target, *, tenants: int, pods: int, rounds: int | None, quota: bool, each_policy: bool, form: str | None
) -> None:
    """Create pods in tenants' namespaces with every rule on, and in as many unmanaged namespaces for comparison.

    The nodes need room for the pods of one side: `tenantry up --nodes` makes simulated ones. The policies in force stay
    untouched: --each-policy binds copies of them in the benchmark's own namespaces. The benchmark deletes everything
    that it creates, and needs the credentials of an administrator who may impersonate.
    """

    async def measure(client: Client) -> PodsResult:
        from tenantry.bench import pods as benchmark

        load = benchmark.PodsLoad(
            tenants=tenants,
            pods=pods,
            rounds=rounds or (2 if pods >= MANY else 4),
            quota=quota,
            each_policy=each_policy,
        )
        return await benchmark.pods(client, load, output.talk)

    run(target, form, measure, _lines)


def _lines(result: PodsResult) -> list[tuple[str, str]]:
    quota = ", with a quota" if result.quota else ""
    ratio = f"{result.ratio} created, {result.running_ratio} until all run (1 is as without policies)"
    return [
        ("pods", f"{result.pods} in {result.tenants} namespaces{quota}, {result.rounds} round(s)"),
        ("guarded", _side(result.guarded)),
        ("unguarded", _side(result.unguarded)),
        ("ratio", ratio),
        *(
            ("policy", f"{each.policy:<40} {each.milliseconds:>7.2f} ms for each pod ({100 * each.share:.0f} %)")
            for each in result.policies or ()
        ),
    ]


def _side(side: PodsSide) -> str:
    alone = f"{side.p50_milliseconds} ms for a pod alone (p99 {side.p99_milliseconds} ms)"
    return f"{side.pods_per_second} a second, all run after {side.running_seconds} s; {alone}"
