"""Light peers of a local cluster: API servers of one etcd, which the supervisor of the cluster runs.

    CLUSTER/light/              the etcd                      ─► light@etcd
    clusters/PEER/cluster.json  its kubeconfigs, certificates ─► light@PEER.kube-apiserver
                                                              ─► light@PEER.kube-controller-manager
                                                              ─► light@PEER.operator, unless it has none

A light peer has no scheduler and no nodes: what is sent there stays Pending until a program sets its status. It takes
a third of the memory of a whole cluster. Its folder is one of a local cluster, so that other commands find it by name.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from tenantry.local import authentication, components, folders, kubeconfigs, pki, ports
from tenantry.local.components import Component, Datastore
from tenantry.local.files import write_private
from tenantry.local.paths import ClusterPaths
from tenantry.local.spec import ClusterSpec, PeerForm, Ports, StartedPeer, read_spec, write_spec
from tenantry.local.state import ClusterState, Phase

PREFIX = "light@"
ETCD = f"{PREFIX}{components.ETCD}"
CONTROLLERS = (
    "namespace-controller",
    "serviceaccount-controller",
    "resourcequota-controller",
    "garbage-collector-controller",
    "root-ca-certificate-publisher-controller",
)
"""Without these, namespaces never end, quotas count nothing, and no pod is admitted."""

FOR_AN_OPERATOR = ("clusterrole-aggregation-controller", "validatingadmissionpolicy-status-controller")
"""The roles of owners have the rules of other roles."""

ALONE_MIB, MANAGED_MIB = 190, 420
"""The memory that one takes, with its part of etcd: without an operator, and with one and its policies."""

_STORE = "etcd.json"
_IDENTITIES = ("admin", components.OPERATOR, components.CONTROLLER_MANAGER)
_AT_ONCE = 2
"""How many API servers start at once: each takes a core for seconds, and more would only make all of them slow."""


class LightStore(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The ports of the etcd of light peers, on 127.0.0.1.

    Args:
        client: For API servers.
        member: For other members, of which there are none.
    """

    client: int
    member: int


def component_name(peer: str, component: str) -> str:
    """Return what the supervisor of the home calls a component of a light peer."""
    return f"{PREFIX}{peer}.{component}"


def light_peers(spec: ClusterSpec) -> list[StartedPeer]:
    """Return the light ones among the peers of a cluster."""
    return [each for each in spec.peers if each.form is PeerForm.LIGHT]


def components_of(spec: ClusterSpec, paths: ClusterPaths, python: str) -> tuple[Component, ...]:
    """Return the etcd and the light peers of a cluster as components of its supervisor.

    Args:
        spec: The cluster.
        paths: Its files.
        python: The interpreter for their operators.
    """
    peers = light_peers(spec)
    if not peers:
        return ()
    at = _store_paths(paths)
    store = msgspec.json.decode((at.folder / _STORE).read_bytes(), type=LightStore)
    etcd = components.shared_etcd(spec.binaries, at, store.client, store.member, throwaway=spec.throwaway)
    found = [replace(etcd, name=ETCD, folder=at.folder)]
    for number, peer in enumerate(peers):
        datastore = Datastore(port=store.client, pki=at.pki, prefix=f"/{peer.name}")
        # One after the other: without this, fifty would start at once.
        earlier = [peers[number - _AT_ONCE].name] if number >= _AT_ONCE else []
        first = (ETCD, *(component_name(each, components.APISERVER) for each in earlier))
        found += _peer(peer, _beside(paths, peer.name), datastore, first, python)
    return tuple(found)


def _peer(
    peer: StartedPeer, paths: ClusterPaths, datastore: Datastore, first: tuple[str, ...], python: str
) -> list[Component]:
    spec = read_spec(paths)
    if spec is None:
        return []  # it is being removed
    own = components.light_apiserver(spec.binaries, paths, spec.ports.apiserver, datastore, watch_cache=False)
    names = (*CONTROLLERS, *(FOR_AN_OPERATOR if peer.has_operator else ()))
    others = [
        components.slim_controller_manager(spec, paths, names),
        *([components.operator(spec, paths, python)] if peer.has_operator else ()),
    ]
    server = component_name(spec.name, own.name)
    placed = [replace(own, after=first), *(replace(each, after=(server,)) for each in others)]
    authority = paths.pki / "ca.crt"
    return [
        replace(each, name=component_name(spec.name, each.name), folder=paths.folder, authority=authority)
        for each in placed
    ]


def on_request(peer: StartedPeer) -> tuple[str, ...]:
    """Return the components of a light peer that start once its kinds are there."""
    names = (components.CONTROLLER_MANAGER, *((components.OPERATOR,) if peer.has_operator else ()))
    return tuple(component_name(peer.name, each) for each in names)


def prepare_light(spec: ClusterSpec, paths: ClusterPaths, running: Collection[str] = ()) -> None:
    """Prepare the light peers of a cluster that do not run: folders, ports, certificates.

    Certificates that are due are renewed, and ports that are not free any more replaced.

    Args:
        spec: The cluster.
        paths: Its files.
        running: The names of those that run, and stay as they are.
    """
    peers = light_peers(spec)
    if not peers:
        return
    now = dt.datetime.now(dt.UTC)
    at = _store_paths(paths)
    folders.prepare(at, "light", None)
    pki.ensure(at.pki, pki.etcd_leaves(), now)
    file = at.folder / _STORE
    if not file.exists():
        client, member = ports.reserve_some(at.folder, 2)
        write_private(file, msgspec.json.encode(LightStore(client=client, member=member)))
    for peer in (each for each in peers if each.name not in running):
        _prepare(spec, _beside(paths, peer.name), peer.name, now)


def _prepare(home: ClusterSpec, paths: ClusterPaths, name: str, now: dt.datetime) -> None:
    folders.prepare(paths, name, None)
    before = read_spec(paths)
    had = before.ports if before else None
    wanted = (had.apiserver, had.controller_manager, had.operator, had.webhook) if had else ()
    server, controllers, operator, webhook = ports.reserve_some(paths.folder, 4, wanted)
    leaves = pki.leaves()
    pki.ensure(paths.pki, {each: leaves[each] for each in ("server", *_IDENTITIES)}, now)
    for identity in _IDENTITIES:
        kubeconfigs.write(paths, name, identity, server)
    write_private(paths.authentication, authentication.text(None).encode())
    found = Ports(
        etcd=0,
        etcd_peer=0,
        apiserver=server,
        controller_manager=controllers,
        scheduler=0,
        kwok=0,
        operator=operator,
        webhook=webhook,
    )
    spec = ClusterSpec(
        name=name,
        ports=found,
        binaries=home.binaries,
        throwaway=home.throwaway,
        supervised_by=home.name,
        kubernetes=home.kubernetes,
    )
    write_spec(paths, spec)


def purge(spec: ClusterSpec, paths: ClusterPaths) -> None:
    """Delete the files of the light peers of a stopped cluster, whose own files go with the folder of the cluster."""
    peers = light_peers(spec)
    for peer in peers:
        at = _beside(paths, peer.name)
        if at.folder.exists():
            folders.purge(at)
    if peers:
        ports.release(_store_paths(paths).folder)


def seen(spec: ClusterSpec, state: ClusterState) -> ClusterState:
    """Return what the state of a supervisor says of one of the clusters that it runs.

    Args:
        spec: The cluster.
        state: The state of its supervisor.
    """
    if not spec.supervised_by:
        own = [each for each in state.components if not each.name.startswith(PREFIX) or each.name == ETCD]
        return msgspec.structs.replace(state, components=tuple(own))
    prefix = component_name(spec.name, "")
    found = [
        msgspec.structs.replace(each, name=each.name.removeprefix(prefix))
        for each in state.components
        if each.name.startswith(prefix)
    ]
    return msgspec.structs.replace(
        state, name=spec.name, phase=_phase([each.phase for each in found]), components=tuple(found)
    )


def _phase(phases: Sequence[Phase]) -> Phase:
    running = [each for each in phases if each is not Phase.STOPPED]
    if not running:
        return Phase.STOPPED
    return Phase.READY if all(each is Phase.READY for each in running) else Phase.STARTING


def _beside(paths: ClusterPaths, name: str) -> ClusterPaths:
    return ClusterPaths(paths.folder.parent / name)


def _store_paths(paths: ClusterPaths) -> ClusterPaths:
    folder: Path = paths.folder / "light"
    return ClusterPaths(folder)
