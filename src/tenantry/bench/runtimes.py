"""What a runtime costs the pods in it: each RuntimeClass of a cluster beside the others, on one real node.

    for each round, for each runtime; every other round in the opposite order
      start:      POST ─► Running, one pod after the other; they stay ─► memory, as the kubelet counts it
      work:       a pod prints its rates of hashes, system calls, files, and bytes from another pod of the same runtime
      neighbours: pods of the same runtime keep the processors and the kernel busy ─► work again ─► ratio

Rates are of one thread. A runtime whose pods do not run has no figures, and the result states why. What is read was
written a moment before, so that the rate of reads is that of memory, and not that of the disk.

Sources: Kubernetes, "Runtime Class", "Node metrics data" (the summary of the kubelet).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from tenantry.api.errors import InputError, RetryableError
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import Json, ObjectMeta, Resource
from tenantry.api.runtime import RuntimeClass
from tenantry.api.wording import shortened
from tenantry.bench.figures import median
from tenantry.bench.load import RUN_LABEL, Progress, clean_up, deadline, delete, new_run, of_run
from tenantry.bench.probe import MIB
from tenantry.engine.tasks import all_of
from tenantry.hosting.simulation import NO_CONTAINERS
from tenantry.kube import wire
from tenantry.kube.client import Client
from tenantry.kube.podruns import PODS, NotReady, Pods, create_pod
from tenantry.policy.request import part, parts

START_SECONDS = 60.0
"""How long a pod may take to run; a runtime that the node does not have never does."""

MEASURE_SECONDS = 600.0
"""How long a pod may measure; each rate takes as long as it is told to, and large files longer."""

STATS_SECONDS = 90.0
STATS_POLL_SECONDS = 1.0
LIFE_SECONDS = 1800
"""How long a pod lives at most, even if the benchmark is killed."""

PORT = 8080
NEIGHBOURS = 3
FOLDER = "/volume"

NODES = Resource("", "v1", "nodes", "Node", namespaced=False)

_KINDS: tuple[tuple[str, Callable[[str], bool]], ...] = (
    ("runc", lambda handler: not handler or handler.startswith("runc")),
    ("gVisor", lambda handler: handler.startswith(("runsc", "gvisor"))),
    ("gVisor with KVM", lambda handler: handler.startswith(("runsc", "gvisor")) and "kvm" in handler),
    ("Kata Containers", lambda handler: handler.startswith("kata")),
)


class RuntimesLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What is measured.

    Args:
        rounds: How often each runtime is measured; figures are medians.
        starts: How many pods are started in each round.
        seconds: How long each rate is taken.
        mebibytes: The size of the file that is written and read.
    """

    rounds: int
    starts: int
    seconds: float
    mebibytes: int


class RuntimeRates(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a pod prints, per second of one thread; see go/probe/measure.go."""

    hash_mebibytes: float
    system_calls: float
    file_operations: float
    write_mebibytes: float
    read_mebibytes: float
    network_mebibytes: float


class RuntimeRound(msgspec.Struct, frozen=True, kw_only=True):
    """One round of one runtime: seconds of each start, MiB of each pod at rest, and rates alone and with neighbours."""

    starts: tuple[float, ...]
    memory: tuple[float, ...]
    alone: RuntimeRates
    beside: RuntimeRates


class RuntimeFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A runtime; medians over all rounds.

    Args:
        runtime: The RuntimeClass; "" for pods that name none.
        handler: Its handler on nodes.
        start_seconds: From the POST of a pod until its container runs.
        memory_mebibytes: Working set of a pod at rest.
        rates: Alone; None if not measured.
        beside_processor: The rate of hashes with neighbours, as a share of that alone.
        beside_kernel: The same of system calls.
        not_measured: Why it has no figures; "" if it has.
    """

    runtime: str
    handler: str
    start_seconds: float | None = None
    memory_mebibytes: float | None = None
    rates: RuntimeRates | None = None
    beside_processor: float | None = None
    beside_kernel: float | None = None
    not_measured: str = ""


class RuntimesResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result.

    Args:
        node: Where all pods ran.
        kernel: Of that node.
        container_runtime: Of that node, with its version.
        runtimes: Each of them; the first one is what the others are compared with.
        absent: The kinds of runtimes that no RuntimeClass has.
        load: What was measured.
    """

    node: str
    kernel: str
    container_runtime: str
    runtimes: tuple[RuntimeFigures, ...]
    absent: tuple[str, ...]
    load: RuntimesLoad


class _Place(msgspec.Struct, frozen=True, kw_only=True):
    client: Client
    namespace: str
    node: str
    image: str
    is_there: bool


async def node_of(client: Client, named: str) -> str:
    """Return the name of the node to measure on: the named one, or the first that runs containers and is Ready.

    Raises:
        InputError: There is none, or the named one runs no containers.
    """
    data = await _read(client, wire.path(NODES))
    real = sorted(each["metadata"]["name"] for each in parts(data, "items") if _runs_containers(each))
    if named and named not in real:
        raise InputError(
            f"--node {named!r}: no Node of this name is Ready and runs containers; others: {shortened(real) or 'none'}"
        )
    if not real:
        raise InputError(
            "no Node of this cluster is Ready and runs containers, and simulated ones have no runtimes: use another"
            " cluster, or `tenantry up --cluster NAME --runtime real --nodes 1`"
        )
    return named or real[0]


def _runs_containers(node: Json) -> bool:
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in parts(node, "status", "conditions"))
    return ready and not NO_CONTAINERS & {*part(node, "metadata", "annotations")}


async def runtimes(
    client: Client,
    load: RuntimesLoad,
    progress: Progress,
    *,
    node: str,
    image: str,
    is_there: bool,
    only: Sequence[str] = (),
) -> RuntimesResult:
    """Run the benchmark and clean up after it.

    Args:
        client: An administrator's client.
        load: What is measured.
        progress: Receives a line after each runtime of a round.
        node: The node that all pods run on; it must run containers.
        image: The image of the probe.
        is_there: The node has the image already.
        only: The RuntimeClasses to measure, the first of them as the one that others are compared with; all if empty.

    Raises:
        InputError: A RuntimeClass that was asked for does not exist.
        RetryableError: No runtime can be measured, or the cluster does not answer in time.
    """
    classes = {each.metadata.name: each.handler for each in await client.list(RuntimeClass)}
    chosen = chosen_of(classes, only)
    run = new_run()
    meta = ObjectMeta(name=f"bench-runtimes-{run}", labels={RUN_LABEL: run})
    place = _Place(client=client, namespace=meta.name, node=node, image=image, is_there=is_there)
    measured: dict[str, list[RuntimeRound]] = {each: [] for each in chosen}
    failed: dict[str, str] = {}
    try:
        await client.create(Namespace(metadata=meta))
        for number in range(load.rounds):
            for each in chosen if number % 2 == 0 else reversed(chosen):
                if each in failed:
                    continue
                try:
                    measured[each].append(await _Round(place, each, load).run())
                except NotReady as error:
                    failed[each] = str(error)
                progress(
                    f"round {number + 1} of {load.rounds}, {each or 'no RuntimeClass'}: {failed.get(each, 'done')}"
                )
    finally:
        await clean_up(client, run, of_run(run), by_hand=True)
    if len(failed) == len(chosen):
        raise RetryableError(f"no runtime could be measured: {'; '.join(failed.values())}")
    about = part(await _read(client, f"/api/v1/nodes/{node}"), "status", "nodeInfo")
    return RuntimesResult(
        node=node,
        kernel=str(about.get("kernelVersion", "")),
        container_runtime=str(about.get("containerRuntimeVersion", "")),
        runtimes=tuple(figures(each, classes.get(each, ""), measured[each], failed.get(each, "")) for each in chosen),
        absent=absent(classes.values()),
        load=load,
    )


def chosen_of(classes: Mapping[str, str], only: Sequence[str]) -> tuple[str, ...]:
    """Return the RuntimeClasses to measure; "" stands for pods that name none.

    Args:
        classes: RuntimeClass to handler.
        only: Those that were asked for; all if empty, and first what shares the kernel of the node.

    Raises:
        InputError: One that was asked for does not exist.
    """
    missing = [each for each in only if each not in classes]
    if missing:
        found = shortened(sorted(classes)) or "none"
        raise InputError(f"--runtime {missing[0]!r}: the cluster has no such RuntimeClass; it has: {found}")
    if only:
        return tuple(dict.fromkeys(only))
    plain = sorted(name for name, handler in classes.items() if handler.startswith("runc"))
    return (*(plain or ("",)), *sorted(set(classes) - set(plain)))


def absent(handlers: Iterable[str]) -> tuple[str, ...]:
    """Return the kinds of runtimes that no handler is of; runc is what nodes have without a RuntimeClass, too."""
    found = ("", *handlers)
    return tuple(name for name, is_of in _KINDS if not any(map(is_of, found)))


def figures(runtime: str, handler: str, rounds: Sequence[RuntimeRound], failure: str) -> RuntimeFigures:
    """Return the medians over the rounds of a runtime."""
    if failure or not rounds:
        return RuntimeFigures(runtime=runtime, handler=handler, not_measured=failure)
    fields = RuntimeRates.__struct_fields__
    rates = {name: median((getattr(each.alone, name) for each in rounds), 1) for name in fields}
    return RuntimeFigures(
        runtime=runtime,
        handler=handler,
        start_seconds=median((one for each in rounds for one in each.starts), 2),
        memory_mebibytes=median((one for each in rounds for one in each.memory), 1),
        rates=RuntimeRates(**rates),
        beside_processor=median((each.beside.hash_mebibytes / each.alone.hash_mebibytes for each in rounds), 2),
        beside_kernel=median((each.beside.system_calls / each.alone.system_calls for each in rounds), 2),
    )


# -- one round ------------------------------------------------------------------------------------


class _Round:
    """Measures one runtime once."""

    def __init__(self, place: _Place, runtime: str, load: RuntimesLoad) -> None:
        self._place = place
        self._runtime = runtime
        self._load = load
        self._pods = Pods(place.client, [place.node])

    async def run(self) -> RuntimeRound:
        """Measure, and delete the pods.

        Raises:
            NotReady: A pod does not run.
        """
        resting = [f"rest-{number}" for number in range(self._load.starts)]
        try:
            starts = [await self._start(each, "stream", str(PORT)) for each in resting]
            source = await self._pods.until(resting[0], self._place.namespace, _is_running, START_SECONDS)
            memory = await self._memory(resting)
            wanted = {"seconds": self._load.seconds, "folder": FOLDER, "mebibytes": self._load.mebibytes}
            asked = json.dumps({**wanted, "source": f"{part(source, 'status')['podIP']}:{PORT}"})
            alone = await self._rates("alone", asked)
            loud = [f"loud-{number}" for number in range(NEIGHBOURS)]
            await all_of(self._start(each, "burn", str(LIFE_SECONDS)) for each in loud)
            beside = await self._rates("beside", asked)
        finally:
            await self._delete()
        return RuntimeRound(starts=tuple(starts), memory=tuple(memory), alone=alone, beside=beside)

    async def _start(self, name: str, *arguments: str) -> float:
        """Start a pod; return how many seconds pass until it runs.

        Raises:
            NotReady: It does not run in time.
        """
        began = time.perf_counter()
        await create_pod(self._place.client, self._pod(name, *arguments), self._place.namespace)
        await self._pods.until(name, self._place.namespace, _is_running, START_SECONDS)
        return time.perf_counter() - began

    async def _rates(self, name: str, asked: str) -> RuntimeRates:
        """Run a pod that measures; return what it prints.

        Raises:
            NotReady: It does not run in time, or reports nothing.
        """
        await create_pod(self._place.client, self._pod(name, "measure", asked), self._place.namespace)
        _, found = await self._pods.report(name, self._place.namespace, RuntimeRates, MEASURE_SECONDS)
        return found

    async def _memory(self, names: Sequence[str]) -> list[float]:
        """Return the working sets of pods at rest, in MiB.

        Raises:
            RetryableError: The kubelet does not count them in time.
        """
        first: dict[str, str] = {}
        async with deadline(STATS_SECONDS, f"the kubelet of {self._place.node!r} reports no memory of pods"):
            while True:
                found = {name: value for name, value in await self._summary() if name in names}
                # The first value may be of a moment at which the pod was starting.
                settled = [name for name, (at, _) in found.items() if at != first.setdefault(name, at)]
                if len(settled) == len(names):
                    return [found[name][1] / MIB for name in names]
                await asyncio.sleep(STATS_POLL_SECONDS)  # no event reports it

    async def _summary(self) -> list[tuple[str, tuple[str, int]]]:
        """Return name, time and working set in bytes of each pod of the benchmark that the kubelet has counted."""
        data = await _read(self._place.client, f"/api/v1/nodes/{self._place.node}/proxy/stats/summary")
        return [
            (each["podRef"]["name"], (memory["time"], memory["workingSetBytes"]))
            for each in parts(data, "pods")
            if part(each, "podRef").get("namespace") == self._place.namespace
            and (memory := part(each, "memory")).get("workingSetBytes")
        ]

    async def _delete(self) -> None:
        """Delete all pods of the round, and wait until they are gone."""
        client, namespace = self._place.client, self._place.namespace
        async with deadline(START_SECONDS * 2, f"pods in {namespace!r} do not end"):
            while found := parts(await _read(client, wire.path(PODS, namespace)), "items"):
                await all_of(delete(client, PODS, each["metadata"]["name"], namespace) for each in found)
                await asyncio.sleep(STATS_POLL_SECONDS / 4)  # until the node has ended them

    def _pod(self, name: str, *arguments: str) -> Json:
        """Return a pod of the probe that may use all of its node."""
        container: Json = {
            "name": "probe",
            "image": self._place.image,
            "imagePullPolicy": "IfNotPresent" if self._place.is_there else "Always",
            "args": list(arguments),
            "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
            "volumeMounts": [{"name": "volume", "mountPath": FOLDER}],
        }
        spec: Json = {
            "containers": [container],
            "volumes": [{"name": "volume", "emptyDir": {}}],
            "nodeSelector": {"kubernetes.io/hostname": self._place.node},
            "restartPolicy": "Never",
            "activeDeadlineSeconds": LIFE_SECONDS,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
        }
        if self._runtime:
            spec["runtimeClassName"] = self._runtime
        return {"metadata": {"name": name}, "spec": spec}


def _is_running(value: Json) -> bool:
    status = part(value, "status")
    return status.get("phase") == "Running" and bool(status.get("podIP"))


async def _read(client: Client, path: str) -> Json:
    return client.decode(Json, await client.request("GET", path))
