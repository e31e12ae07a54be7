"""`tenantry bench vcp`: how fast virtual control planes start, what they take, and what the mirror adds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from tenantry.api.errors import InputError
from tenantry.cli import output
from tenantry.cli.bench.running import run
from tenantry.cli.bench.throwaway import stock_server
from tenantry.cli.groupflags import CLUSTER_FLAGS
from tenantry.cli.target import Target, may_take_target, takes_target

if TYPE_CHECKING:
    from tenantry.bench.planes.convert import PlaneConvertResult
    from tenantry.bench.planes.create import PlaneCreateResult
    from tenantry.bench.planes.flood import PlaneFloodResult, QuietFigures
    from tenantry.bench.planes.many import ManyPlanesResult, SharedCost
    from tenantry.bench.planes.memory import PlaneMemoryResult
    from tenantry.bench.planes.pods import PlanePodsResult
    from tenantry.bench.planes.processes import Processes
    from tenantry.bench.planes.short import VcpResult
    from tenantry.bench.planes.wake import PlaneWakeResult
    from tenantry.kube.client import Client


def _count(name: str, default: int, most: int, text: str) -> Callable[[Callable[..., object]], Callable[..., object]]:
    return click.option(name, type=click.IntRange(1, most), default=default, show_default=True, help=text)


_idle_seconds = click.option(
    "--idle-seconds",
    type=click.FloatRange(1, 3600),
    default=60.0,
    show_default=True,
    help="Seconds over which the idle CPU is measured, after as many seconds of rest.",
)


@click.group(invoke_without_command=True)
@may_take_target
@_count("--count", 5, 100, "Number of control planes to create.")
@_count("--pods", 20, 1000, "Number of pods on each side.")
@_idle_seconds
@output.output_option("json")
def vcp(find: Callable[[], Target], *, count: int, pods: int, idle_seconds: float, form: str | None) -> None:
    """Measure virtual control planes on a local cluster.

    Without a command, it runs a short form of all: it creates control planes one after the other, and starts pods on
    the host and inside. The cluster needs simulated nodes (`tenantry up --nodes 4`). Each benchmark deletes everything
    that it creates.
    """
    context = click.get_current_context()
    if context.invoked_subcommand:
        _refuse_own_flags(context)
        return
    target = find()
    processes = _processes(target)

    async def measure(client: Client) -> VcpResult:
        from tenantry.bench.planes import short

        return await short.vcp(client, count, pods, idle_seconds, processes, output.talk)

    run(target, form, measure, _short_lines)


def _refuse_own_flags(context: click.Context) -> None:
    """Refuse the flags of the short form before a command, which has its own; those of a cluster it takes from here."""
    given = [
        f"--{name.replace('_', '-')}"
        for name in context.params
        if name not in CLUSTER_FLAGS and context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    ]
    if given:
        command = context.invoked_subcommand
        raise click.UsageError(f"{' and '.join(given)} may not be given before `{command}`: give flags after it")


@vcp.command()
@takes_target
@_count("--count", 20, 1000, "Number of control planes to create one after the other.")
@_count("--at-once", 20, 100, "Number of control planes to create together.")
@output.output_option("json")
def create(target: Target, *, count: int, at_once: int, form: str | None) -> None:
    """Measure the time from an object to a usable kubeconfig, and its CPU beside a stock API server.

    The stock API server is one of a second, throwaway local cluster, and is restarted after each control plane.
    """
    processes = _processes(target)

    async def measure(client: Client) -> PlaneCreateResult:
        from tenantry.bench.planes import create as benchmark

        return await benchmark.create(client, count, at_once, processes, stock, output.talk)

    with stock_server() as stock:
        run(target, form, measure, _create_lines)


@vcp.command()
@takes_target
@_count("--count", 20, 1000, "How often to wake a control plane.")
@output.output_option("json")
def wake(target: Target, *, count: int, form: str | None) -> None:
    """Measure the first request to a control plane that sleeps, and its CPU beside a stock API server."""
    processes = _processes(target)

    async def measure(client: Client) -> PlaneWakeResult:
        from tenantry.bench.planes import wake as benchmark

        return await benchmark.wake(client, count, processes, stock, output.talk)

    with stock_server() as stock:
        run(target, form, measure, _wake_lines)


@vcp.command()
@takes_target
@_idle_seconds
@output.output_option("json")
def memory(target: Target, *, idle_seconds: float, form: str | None) -> None:
    """Measure the private memory of one control plane, at rest and after use."""
    processes = _processes(target)

    async def measure(client: Client) -> PlaneMemoryResult:
        from tenantry.bench.planes import memory as benchmark

        return await benchmark.memory(client, idle_seconds, processes, output.talk)

    run(target, form, measure, _memory_lines)


@vcp.command()
@takes_target
@_count("--count", 100, 1000, "Number of control planes.")
@_idle_seconds
@output.output_option("json")
def many(target: Target, *, count: int, idle_seconds: float, form: str | None) -> None:
    """Measure what many idle control planes take together, and the processes that serve them."""
    processes = _processes(target)

    async def measure(client: Client) -> ManyPlanesResult:
        from tenantry.bench.planes import many as benchmark

        return await benchmark.many(client, count, idle_seconds, processes, output.talk)

    run(target, form, measure, _many_lines)


@vcp.command()
@takes_target
@_count("--pods", 50, 1000, "Number of pods on each side, one after the other.")
@_count("--at-once", 200, 1000, "Number of pods on each side that start together.")
@_count("--changes", 100, 10_000, "Number of changes of a status.")
@output.output_option("json")
def pods(target: Target, *, pods: int, at_once: int, changes: int, form: str | None) -> None:
    """Measure the start of pods on the host and inside, and how fast a status comes up."""

    async def measure(client: Client) -> PlanePodsResult:
        from tenantry.bench.planes import pods as benchmark

        return await benchmark.pods(client, pods, at_once, changes, output.talk)

    run(_local(target), form, measure, _pods_lines)


@vcp.command()
@takes_target
@_count("--objects", 1000, 10_000, "Number of objects of each kind that the flood creates before it deletes them.")
@_count("--pods", 20, 1000, "Number of pods that the other control plane starts, alone and flooded.")
@output.output_option("json")
def flood(target: Target, *, objects: int, pods: int, form: str | None) -> None:
    """Measure what a control plane whose users flood it costs another one, and the host."""

    async def measure(client: Client) -> PlaneFloodResult:
        from tenantry.bench.planes import flood as benchmark

        return await benchmark.flood(client, objects, pods, output.talk)

    run(_local(target), form, measure, _flood_lines)


# -- the machine ----------------------------------------------------------------------------------


def _local(target: Target) -> Target:
    if target.local_name is None:
        raise InputError("virtual control planes run on local clusters only: choose one with --cluster")
    return target


@vcp.command()
@takes_target
@_count("--deployments", 20, 200, "Number of Deployments of the tenant.")
@_count("--pods", 100, 1000, "Number of pods that they have together.")
@output.output_option("json")
def convert(target: Target, *, deployments: int, pods: int, form: str | None) -> None:
    """Measure how long a tenant that runs takes to get a control plane of its own, and whether a pod restarts."""

    async def measure(client: Client) -> PlaneConvertResult:
        from tenantry.bench.planes import convert as benchmark

        return await benchmark.convert(client, deployments, pods, output.talk)

    run(target, form, measure, _convert_lines)


def _processes(target: Target) -> Processes:
    from tenantry.bench.planes.processes import Processes
    from tenantry.local.cluster import LocalCluster
    from tenantry.local.components import ENDPOINT_PROXY, OPERATOR
    from tenantry.local.hosted import PREFIX
    from tenantry.local.state import read_state

    paths = LocalCluster(_local(target).local_name or "").paths

    def pids() -> dict[str, int]:
        state = read_state(paths)
        return {each.name: each.pid for each in state.components if each.pid} if state is not None else {}

    return Processes(pids, PREFIX, (OPERATOR, ENDPOINT_PROXY))


# -- tables ---------------------------------------------------------------------------------------


def _short_lines(result: VcpResult) -> list[tuple[str, str]]:
    return [
        ("control planes", f"{result.control_planes}, one after the other"),
        ("usable", f"p50 {result.ready_p50_seconds} s, p95 {result.ready_p95_seconds} s"),
        ("private memory", f"{result.private_megabytes_each} MB each"),
        ("idle CPU", f"{result.idle_cpu_seconds_per_minute} s a minute each"),
        ("first request", f"{result.wake_p50_seconds} s while it sleeps"),
        ("a pod runs", f"direct {result.pod_direct_seconds_p50} s, inside {result.pod_mirrored_seconds_p50} s"),
    ]


def _convert_lines(result: PlaneConvertResult) -> list[tuple[str, str]]:
    return [
        ("converted", f"{result.pods} pods of {result.deployments} Deployments in {result.seconds} s"),
        ("writes refused", f"{result.refused_seconds} s"),
        ("restarts", f"{result.restarts}"),
    ]


def _create_lines(result: PlaneCreateResult) -> list[tuple[str, str]]:
    return [
        ("one by one", f"{result.control_planes}: p50 {result.ready_p50_seconds} s, p95 {result.ready_p95_seconds} s"),
        ("at once", f"{result.at_once}: {result.at_once_seconds} s"),
        ("CPU of a start", f"{result.cpu_seconds_p50} s; a stock API server {result.stock_cpu_seconds_p50} s"),
        ("ratio", f"{result.cpu_ratio} (1 is as much as the stock API server alone)"),
    ]


def _wake_lines(result: PlaneWakeResult) -> list[tuple[str, str]]:
    return [
        ("first request", f"{result.wakes}: p50 {result.wake_p50_seconds} s, p95 {result.wake_p95_seconds} s"),
        ("CPU of a start", f"{result.cpu_seconds_p50} s; a stock API server {result.stock_cpu_seconds_p50} s"),
        ("ratio", f"{result.cpu_ratio} (1 is as much as the stock API server alone)"),
    ]


def _memory_lines(result: PlaneMemoryResult) -> list[tuple[str, str]]:
    return [("at rest", f"{result.private_megabytes} MB"), ("after use", f"{result.used_megabytes} MB")]


def _many_lines(result: ManyPlanesResult) -> list[tuple[str, str]]:
    return [
        ("control planes", f"{result.control_planes}"),
        ("private memory", f"{result.private_gigabytes} GB together, {result.private_megabytes_each} MB each"),
        ("idle CPU", f"{result.idle_cpu_seconds_per_minute} s a minute each"),
        *((each.name, _shared(each)) for each in result.shared),
    ]


def _shared(found: SharedCost) -> str:
    return (
        f"{found.private_megabytes} MB ({found.before_megabytes} MB before), {found.cpu_seconds_per_minute} s a minute"
    )


def _pods_lines(result: PlanePodsResult) -> list[tuple[str, str]]:
    one_by_one = f"p50 direct {result.pod_direct_seconds_p50} s, inside {result.pod_mirrored_seconds_p50} s"
    direct, mirrored = result.at_once_direct_seconds_p99, result.at_once_mirrored_seconds_p99
    return [
        ("one by one", f"{result.pods}: {one_by_one}"),
        ("at once", f"{result.at_once}: p99 direct {direct} s, inside {mirrored} s, ratio {result.at_once_ratio}"),
        ("a status comes up", f"p50 {result.status_seconds_p50} s, p99 {result.status_seconds_p99} s"),
    ]


def _flood_lines(result: PlaneFloodResult) -> list[tuple[str, str]]:
    def told(found: QuietFigures) -> str:
        return f"a pod takes {found.pod_seconds_p50} s (p50), a request to the host {found.host_seconds_p99} s (p99)"

    return [
        ("flood", f"{result.flood_per_second} requests a second, {result.flood_refused} refused"),
        ("alone", told(result.alone)),
        ("flooded", told(result.flooded)),
        ("ratio", f"{result.pod_ratio} (pods), {result.host_ratio} (host)"),
    ]
