"""`tenantry bench`: measure a cluster's Tenantry, and what it adds to the API server's own speed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from tenantry.api import marks
from tenantry.api.errors import ApiError, InputError, LocalError
from tenantry.cli import output
from tenantry.cli.bench.fairness import fairness
from tenantry.cli.bench.pods import pods
from tenantry.cli.bench.slices import slices
from tenantry.cli.target import Target, takes_target

if TYPE_CHECKING:
    from tenantry.bench.establish import Result
    from tenantry.bench.probe import Probe
    from tenantry.bench.tree import TreeResult
    from tenantry.kube.client import Client

MANY = 512
"""From this many tenants on, one round is long enough to be believed."""


@click.group()
def bench() -> None:
    """Measure a cluster."""


bench.add_command(fairness)
bench.add_command(pods)
bench.add_command(slices)


@bench.command()
@takes_target
@click.option("--tenants", type=click.IntRange(1, 20_000), default=128, show_default=True, help="How many at once.")
@click.option("--spread", type=click.FloatRange(0, 3600), default=0, help="Ask for them over so many seconds instead.")
@click.option("--rounds", type=click.IntRange(1, 50), help=f"Interleaved rounds; 5, or 1 from {MANY} tenants on.")
@click.option("--operator-metrics", help="URL of the operator's /metrics; found where it can be.")
@output.output_option("json")
def establish(
    target: Target, *, tenants: int, spread: float, rounds: int | None, operator_metrics: str | None, form: str | None
) -> None:
    """Make tenants, and write the same objects with no operator, to compare.

    The operator is held still for the second half of each round by taking its lease; it goes on by itself afterwards,
    even if this command is killed. Everything that was made is deleted again. Needs an administrator's credentials.
    """
    import uvloop

    from tenantry.bench.establish import establish as measure
    from tenantry.bench.load import CONNECTIONS
    from tenantry.kube.client import Client
    from tenantry.kube.version import require_supported

    async def main() -> Result:
        connection = target.connection()
        async with Client(connection, field_manager="tenantry-bench", max_connections=CONNECTIONS) as client:
            await require_supported(client)
            return await measure(
                client,
                tenants=tenants,
                spread_seconds=spread,
                rounds=rounds or (1 if tenants >= MANY else 5),
                probe=await _probe(client, target, operator_metrics),
                talk=output.talk,
            )

    result = uvloop.run(main())
    if form == "json":
        output.write(msgspec.json.encode(result).decode())
    else:
        output.write_lines(_lines(result))


@bench.command()
@takes_target
@click.option("--namespaces", type=click.IntRange(1, 20_000), default=100, show_default=True, help="How many in all.")
@click.option("--depth", type=click.IntRange(1, 32), default=1, show_default=True, help="How many levels; 1 is flat.")
@click.option(
    "--fanout", type=click.IntRange(1, 20_000), default=10, show_default=True, help="Children of each, unless flat."
)
@click.option(
    "--inherit",
    default="role,rolebinding,secret",
    show_default=True,
    metavar="KIND,...",
    help="What every child inherits one of: role, rolebinding, secret, configmap; or none.",
)
@click.option("--quota", is_flag=True, help="The tenant has a quota, and every child a share of it.")
@click.option("--rounds", type=click.IntRange(1, 50), default=1, show_default=True, help="Interleaved rounds.")
@click.option("--operator-metrics", help="URL of the operator's /metrics; found where it can be.")
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
    operator_metrics: str | None,
    form: str | None,
) -> None:
    """Make a tenant's tree of namespaces, and write the same objects with no operator, to compare.

    The operator is held still for the second half of each round, as by `bench establish`. Everything that was made is
    deleted again. Needs an administrator's credentials.
    """
    import uvloop

    from tenantry.bench.load import CONNECTIONS
    from tenantry.bench.tree import SOURCES, Shape, plan
    from tenantry.bench.tree import tree as measure
    from tenantry.kube.client import Client
    from tenantry.kube.version import require_supported

    kinds = tuple(dict.fromkeys(part.strip() for part in inherit.split(",") if part.strip() not in {"", "none"}))
    unknown = [kind for kind in kinds if kind not in SOURCES]
    if unknown:
        raise InputError(f"--inherit {unknown[0]!r} is none of {', '.join(SOURCES)}")
    shape = Shape(namespaces=namespaces, depth=depth, fanout=fanout, inherit=kinds, quota=quota)
    plan(shape)  # what cannot be is refused before the cluster is asked

    async def main() -> TreeResult:
        connection = target.connection()
        # Beside the writers: two watches, the lease, and one to spare.
        async with Client(connection, field_manager="tenantry-bench", max_connections=CONNECTIONS + 4) as client:
            await require_supported(client)
            probe = await _probe(client, target, operator_metrics)
            return await measure(client, shape=shape, rounds=rounds, probe=probe, talk=output.talk)

    result = uvloop.run(main())
    if form == "json":
        output.write(msgspec.json.encode(result).decode())
    else:
        output.write_lines(_tree_lines(result))


async def _probe(client: Client, target: Target, url: str | None) -> Probe | None:
    """Return what reads the metrics, tried once; None, with a word on stderr, where it cannot."""
    import aiohttp

    from tenantry.bench.hold import leading_operator
    from tenantry.bench.probe import Probe

    async def from_url(address: str) -> bytes:
        try:
            async with aiohttp.ClientSession() as session, session.get(address) as response:
                return await response.read()
        except (aiohttp.ClientError, OSError) as error:
            raise ApiError(f"{address}: {error}") from error

    async def through_api_server(pod: str) -> bytes:
        path = f"/api/v1/namespaces/{marks.SYSTEM_NAMESPACE}/pods/{pod}:8080/proxy/metrics"
        return await client.request("GET", path)

    address = url or _local_address(target)
    if address:
        probe = Probe(lambda: from_url(address))
    else:
        pod = (await leading_operator(client)).partition("_")[0]
        probe = Probe(lambda: through_api_server(pod))
    try:
        await probe.read()
    except ApiError as error:
        output.talk(f"the operator's CPU and memory are not measured ({error}); give --operator-metrics")
        return None
    return probe


def _local_address(target: Target) -> str:
    from tenantry.local.cluster import LocalCluster

    if not target.local_name:
        return ""
    try:
        return f"http://127.0.0.1:{LocalCluster(target.local_name).spec().ports.operator}/metrics"
    except LocalError:
        return ""


def _tree_lines(result: TreeResult) -> list[str]:
    unknown = "not measured"
    cpu = unknown if result.operator_cpu_seconds is None else f"{result.operator_cpu_seconds} s"
    memory = unknown if result.operator_rss_mib is None else f"{result.operator_rss_mib} MiB"
    change = (
        "no Secret is inherited" if result.change_seconds is None else f"{result.change_seconds} s until all have it"
    )
    shape = f"{result.namespaces} in {result.depth} level(s)"
    return [
        f"namespaces         {shape}, {result.objects} objects",
        f"tree               {result.tree_seconds} s",
        f"raw writes         {result.raw_seconds} s",
        f"ratio              {result.ratio} (1 is as fast as writing alone)",
        f"operator           CPU {cpu}, memory {memory}",
        f"changed Secret     {change}",
        f"deleted            {result.deleted_seconds} s",
    ]


def _lines(result: Result) -> list[str]:
    latency = result.latency_seconds
    unknown = "not measured"
    cpu = unknown if result.operator_cpu_seconds is None else f"{result.operator_cpu_seconds} s"
    memory = unknown if result.operator_rss_mib is None else f"{result.operator_rss_mib} MiB"
    return [
        f"tenants            {result.tenants} of {result.objects_per_tenant} objects, {result.rounds} round(s)",
        f"established        {result.established_seconds} s ({result.tenants_per_second}/s)",
        f"latency            p50 {latency.p50} s, p95 {latency.p95} s, max {latency.max} s",
        f"raw writes         {result.raw_seconds} s",
        f"ratio              {result.ratio} (1 is as fast as writing alone)",
        f"operator           CPU {cpu}, memory {memory}",
        f"deleted            {result.deleted_seconds} s",
    ]
