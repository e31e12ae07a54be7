"""From NetworkPolicies to the nftables table of one node: pure.

::

    source       (prerouting) from a pod's own cable under another's address ──► drop
    forward-out  (forward)    known? ── by source ──► out-SET ──► jump each policy's chain ──► drop
    forward-in   (forward, 1) known? ── by target ──► in-SET  ──► jump each policy's chain ──► drop
    local-out    (input)      known? ── by source ──► out-SET   what the pods send to their own node

Each packet that is not a reply passes two base chains, one for each side, and `accept` ends only the current chain: so
both sides must allow it. Pods that the same policies select share a chain. A pod that no policy selects is in no map.
Services are resolved already: kube-proxy replaces their address by a pod's before the forward hook. What an `ipBlock`
of an egress rule excepts is compared with both addresses: a hostPort of a node is not a way around the exception.

Packets of the node itself to its pods (kubelet's probes) pass the output hook, which has no chain. Kubernetes exempts
the opposite direction, too; Tenantry does not, because tenants must not reach nodes.

Packets from or to a pod interface are dropped if their address is not one of a known pod: that covers pods that the
agent has not seen yet, addresses that a pod gave itself or that its node must not report (`records`), link-local ones
between pods of one bridge, and broadcasts. If each pod has an interface of its own, forged sources are dropped: the
route back to the source must use the interface that the packet came from. With one bridge for all pods, a pod can forge
the source of another one.

Source: Kubernetes, "Network Policies"; nft(8).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from tenantry.world.netpol import blocks
from tenantry.world.netpol.objects import (
    Direction,
    NetworkPolicyRule,
    NetworkState,
    Peer,
    PodEndpoint,
    Policy,
    Port,
    Selector,
)
from tenantry.world.netpol.records import AddressRanges, AddressRecords
from tenantry.world.netpol.ruleset import Chain, ElementSet, Ruleset, render
from tenantry.world.netpol.selectors import selects

TABLE = "tenantry-netpol"

_FAMILIES = {4: ("ip", "ipv4_addr"), 6: ("ip6", "ipv6_addr")}
# The sets and maps whose elements are the node's own pods.
_OF_PODS = frozenset(f"{name}{family}" for name in ("known", "self", "out", "in") for family in _FAMILIES)
# Replies pass. Packets of the connecting side are checked one by one, so that a new policy ends the connections that it
# forbids, and a pod that gets the address of another one inherits no connections.
_ESTABLISHED = ("ct state related accept", "ct state established ct direction reply accept")
# Neighbour discovery uses multicast and link-local addresses; the hop limit proves that no router sent it (RFC 4861).
_NEIGHBOURS = (
    "icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert, nd-router-solicit, nd-router-advert } "
    "ip6 hoplimit 255 accept"
)


class GuardedNode(msgspec.Struct, frozen=True, kw_only=True):
    """The node that the table is for.

    Args:
        node: The node's name.
        interfaces: The interfaces of its pods in nft syntax: the bridge, or "veth*".
        is_routed: Whether each pod has an interface of its own and a route to it.
    """

    node: str
    interfaces: tuple[str, ...] = ("cni0",)
    is_routed: bool = False


class PodRules(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a node's table that follows from pods and policies; the rest depends on the node's interfaces.

    Args:
        pods: The addresses of the node's pods, each with the uid of its pod.
        sets: The sets and maps of the table.
        chains: The chains that the base chains and the maps lead to.
    """

    pods: Mapping[str, str] = {}
    sets: Mapping[str, ElementSet] = {}
    chains: Mapping[str, Chain] = {}


def compile_rules(world: NetworkState, guarded: GuardedNode) -> Ruleset:
    """Return the table of a node; the order of objects does not matter."""
    return table(Compiler(world).compiled(guarded.node), guarded)


def table(rules: PodRules, guarded: GuardedNode) -> Ruleset:
    """Return the table of a node from the part that follows from pods and policies."""
    return Ruleset(TABLE, rules.sets, {**rules.chains, **_bases(guarded)})


def confined(rules: PodRules, pods: Iterable[PodEndpoint]) -> PodRules:
    """Return rules without the addresses that other pods have now than when the rules were compiled.

    Args:
        rules: As the operator compiled them.
        pods: The pods of the node, as the node knows them.
    """
    now = {(address, pod.uid) for pod in pods for address in pod.addresses}
    gone = {address for address, uid in rules.pods.items() if (address, uid) not in now}
    if not gone:
        return rules
    # An element of "self" joins an address to itself.
    sets = {
        name: msgspec.structs.replace(
            found,
            elements={key: verdict for key, verdict in found.elements.items() if key.split(" . ")[0] not in gone},
        )
        if name in _OF_PODS
        else found
        for name, found in rules.sets.items()
    }
    kept = {address: uid for address, uid in rules.pods.items() if address not in gone}
    return PodRules(pods=kept, sets=sets, chains=rules.chains)


def closed(guarded: GuardedNode) -> str:
    """Return the commands that drop all traffic of pods, for a node before its pods are known."""
    return render(compile_rules(NetworkState(), guarded))


class Compiler:
    """Compiles the same pods and policies for one node after another.

    Args:
        world: The pods and policies of the cluster.
    """

    def __init__(self, world: NetworkState) -> None:
        self._node = ""
        self._spaces = {space.key: space.labels for space in world.spaces}
        self._policies: dict[str, list[Policy]] = {}
        for policy in sorted(world.policies, key=lambda each: each.key):
            self._policies.setdefault(policy.namespace, []).append(policy)
        # If two pods claim one address, the greater one overwrites the other: a new pod may get the address of an
        # ended one before the API server reports that end.
        holders = sorted(world.pods, key=lambda each: (each.born, each.key))
        # A kubelet reports the addresses of its pods: those that its record does not allow belong to no pod.
        records = AddressRecords(world.nodes)
        self._owners = {
            address: pod for pod in holders for address in pod.addresses if records.admits(pod.node, address)
        }
        self._by_namespace: dict[str, list[tuple[str, PodEndpoint]]] = {}
        for address, pod in self._owners.items():
            self._by_namespace.setdefault(pod.namespace, []).append((address, pod))
        # Names of sets and chains are digests of their meaning: equal peers of many policies share one set, and
        # `ruleset.difference` finds what stays.
        self._sets: dict[str, ElementSet] = {}
        self._chains: dict[str, Chain] = {}

    def compiled(self, node: str) -> PodRules:
        """Return the part of a node's table that follows from pods and policies."""
        self._node, self._sets, self._chains = node, {}, {}
        local = [(address, pod) for address, pod in self._owners.items() if pod.node == self._node]
        self._add_set("known", local)
        # No policy blocks a pod's connections to itself, also through a service (Kubernetes, "Network Policies").
        self._add_set("self", local, " . ")
        self._add_map("out", "Egress", local)
        self._add_map("in", "Ingress", local)
        pods = {address: pod.uid for address, pod in local}
        return PodRules(pods=pods, sets=self._sets, chains=self._chains)

    def _add_set(self, name: str, local: Sequence[tuple[str, PodEndpoint]], joint: str = "") -> None:
        for family, (_, kind) in _FAMILIES.items():
            own = [address for address, _ in local if _family(address) == family]
            elements = {f"{each}{joint}{each}" if joint else each: "" for each in own}
            self._sets[f"{name}{family}"] = ElementSet(f"{kind}{joint}{kind}" if joint else kind, elements)

    def _add_map(self, name: str, direction: Direction, local: Sequence[tuple[str, PodEndpoint]]) -> None:
        elements: dict[int, dict[str, str]] = {family: {} for family in _FAMILIES}
        chains: dict[str, str] = {}
        for address, pod in local:
            # A pod of two families has two addresses and one chain.
            if pod.key not in chains:
                chains[pod.key] = self._pods_chain(name, direction, pod)
            if chains[pod.key]:
                elements[_family(address)][address] = f"goto {chains[pod.key]}"
        for family, (_, kind) in _FAMILIES.items():
            self._sets[f"{name}{family}"] = ElementSet(f"{kind} : verdict", elements[family])

    def _pods_chain(self, name: str, direction: Direction, pod: PodEndpoint) -> str:
        """Return the chain of the pods that the same policies select, "" if no policy does."""
        policies = [
            policy
            for policy in self._policies.get(pod.namespace, ())
            if policy.rules(direction) is not None and selects(policy.pods, pod.labels)
        ]
        if not policies:
            return ""
        jumps = tuple(f"jump {self._policy_chain(name, direction, policy)}" for policy in policies)
        chain = f"{name}-{_digest(*jumps)}"
        # The counter shows in `nft list ruleset` which pods' packets a policy drops.
        self._chains[chain] = Chain((*jumps, "counter drop"))
        return chain

    def _policy_chain(self, name: str, direction: Direction, policy: Policy) -> str:
        chain = f"{name}-policy-{_digest(policy.namespace, policy.name)}"
        if chain not in self._chains:
            lines: list[str] = []
            for rule in policy.rules(direction) or ():
                lines += self._rule(direction, policy.namespace, rule)
            self._chains[chain] = Chain(tuple(lines))
        return chain

    def _rule(self, direction: Direction, namespace: str, rule: NetworkPolicyRule) -> list[str]:
        peers = self._peers(direction, namespace, rule.peers) if rule.peers else [(0, "")]
        ports = self._ports(direction, namespace, rule) if rule.ports else [(0, "")]
        # Family 0 fits both; matches of different families are never combined.
        return [
            " ".join(each for each in (peer, port, "accept") if each)
            for family, peer in peers
            for port_family, port in ports
            if 0 in {family, port_family} or family == port_family
        ]

    def _peers(self, direction: Direction, namespace: str, peers: Iterable[Peer]) -> list[tuple[int, str]]:
        """Return matches of the peer's address, each with its family."""
        side = "saddr" if direction == "Ingress" else "daddr"
        names: set[str] = set()
        ranges: dict[int, list[blocks.Range]] = {4: [], 6: []}
        left_out: dict[int, list[blocks.Range]] = {4: [], 6: []}
        for peer in peers:
            if peer.ip_block is None:
                names.add(self._group(namespace, peer))
                continue
            family, whole = blocks.addresses(peer.ip_block.cidr)
            holes = [hole for version, hole in map(blocks.addresses, peer.ip_block.but) if version == family]
            ranges[family] += blocks.without(whole, holes)
            left_out[family] += holes
        found = [
            (family, f"{word} {side} @{name}{family}")
            for name in sorted(names)
            for family, (word, _) in _FAMILIES.items()
        ]
        for family, (word, _) in _FAMILIES.items():
            if not ranges[family]:
                continue
            match = f"{word} {side} @{self._block(family, ranges[family])}"
            holes = [each for hole in left_out[family] for each in blocks.without(hole, ranges[family])]
            # A node's hostPort or NodePort leads to a pod, whose address replaces the node's before this hook.
            if direction == "Egress" and holes:
                match += f" ct original {word} daddr != @{self._block(family, holes)}"
            found.append((family, match))
        return found

    def _block(self, family: int, ranges: Iterable[blocks.Range]) -> str:
        # Merged, because the blocks of several peers may overlap, which nft rejects in an interval set.
        elements = dict.fromkeys((blocks.text(family, each) for each in blocks.merged(ranges)), "")
        name = f"block-{_digest(*elements)}-{family}"
        self._sets[name] = ElementSet(_FAMILIES[family][1], elements, is_interval=True)
        return name

    def _group(self, namespace: str, peer: Peer) -> str:
        """Return the name of the sets of the addresses of selected pods, without the family."""
        where = peer.namespace_selector
        name = f"group-{_digest('' if where is not None else namespace, _encoded(where), _encoded(peer.pod_selector))}-"
        if f"{name}4" not in self._sets:
            # Pods of unknown namespaces are not selected: their namespace's labels are not known.
            spaces = (
                [namespace] if where is None else [k for k, labels in self._spaces.items() if selects(where, labels)]
            )
            which = peer.pod_selector or Selector()
            inside = [
                address
                for space in spaces
                for address, pod in self._by_namespace.get(space, ())
                if selects(which, pod.labels)
            ]
            for family, (_, kind) in _FAMILIES.items():
                own = dict.fromkeys((each for each in inside if _family(each) == family), "")
                self._sets[f"{name}{family}"] = ElementSet(kind, own)
        return name

    def _ports(self, direction: Direction, namespace: str, rule: NetworkPolicyRule) -> list[tuple[int, str]]:
        """Return matches of the destination port, each with its family, 0 for both."""
        ranges: dict[str, list[blocks.Range]] = {}
        found: set[tuple[int, str]] = set()
        for port in rule.ports:
            protocol = port.protocol.lower()
            if port.port is None:
                found.add((0, f"meta l4proto {protocol}"))
            elif isinstance(port.port, str):
                # Numbers belong to pods, not to rules: the set joins address, protocol and number.
                name = self._named(port, direction, namespace, rule.peers)
                for family, (word, _) in _FAMILIES.items():
                    found.add((family, f"{word} daddr . meta l4proto . th dport @{name}{family}"))
            else:
                ranges.setdefault(protocol, []).append((port.port, port.end_port or port.port))
        for protocol, own in ranges.items():
            texts = [blocks.port_text(each) for each in blocks.merged(own)]
            found.add((0, f"{protocol} dport {texts[0] if len(texts) == 1 else '{ ' + ', '.join(texts) + ' }'}"))
        return sorted(found)

    def _named(self, port: Port, direction: Direction, namespace: str, peers: Sequence[Peer]) -> str:
        """Return the name of the sets of addresses and ports that have a name, without the family.

        The target pod defines the name, also for egress: each pod may map it to another number. A set has no other
        targets than the rule: a contributed node must not learn of them.
        """
        # The targets of an ingress rule are pods of the node.
        peers = () if direction == "Ingress" else peers
        where = (namespace, *map(_encoded_peer, peers)) if peers else ()
        title = f"port-{_digest(str(port.port), port.protocol, direction, *where)}-"
        if f"{title}4" not in self._sets:
            found = [
                f"{address} . {port.protocol.lower()} . {named.container_port}"
                for address, pod in self._targets(direction, namespace, peers)
                for named in pod.ports
                if (named.name, named.protocol) == (port.port, port.protocol)
            ]
            for family, (_, kind) in _FAMILIES.items():
                own = dict.fromkeys((each for each in found if _family(each.split(" ")[0]) == family), "")
                self._sets[f"{title}{family}"] = ElementSet(f"{kind} . inet_proto . inet_service", own)
        return title

    def _targets(
        self, direction: Direction, namespace: str, peers: Sequence[Peer]
    ) -> Iterable[tuple[str, PodEndpoint]]:
        """Return the addresses of the pods to which a rule allows connections."""
        if direction == "Ingress":
            return [(address, pod) for address, pod in self._owners.items() if pod.node == self._node]
        if not peers:
            return self._owners.items()
        groups = [self._group(namespace, peer) for peer in peers if peer.ip_block is None]
        inside = {address for name in groups for n in _FAMILIES for address in self._sets[f"{name}{n}"].elements}
        blocked = AddressRanges(peer.ip_block.cidr for peer in peers if peer.ip_block is not None)
        return [(a, pod) for a, pod in self._owners.items() if a in inside or blocked.has(a)]


def _bases(guarded: GuardedNode) -> dict[str, Chain]:
    """Return the chains of the hooks."""
    first = (*_ESTABLISHED, _NEIGHBOURS)
    # A rule for each interface: a set of names takes no wildcards.
    pods = sorted(guarded.interfaces)
    families = list(_FAMILIES.items())
    from_known = [f'iifname "{i}" {word} saddr != @known{n} drop' for i in pods for n, (word, _) in families]
    to_known = [f'oifname "{i}" {word} daddr != @known{n} drop' for i in pods for n, (word, _) in families]
    own = [f"{word} saddr . {word} daddr @self{n} accept" for n, (word, _) in families]
    out = [f"{word} saddr vmap @out{n}" for n, (word, _) in families]
    in_ = [f"{word} daddr vmap @in{n}" for n, (word, _) in families]
    found = {
        "forward-out": Chain((*first, *from_known, *own, *out), _header("forward", 0)),
        "forward-in": Chain((*first, *to_known, *own, *in_), _header("forward", 1)),
        "local-out": Chain((*first, *from_known, *out), _header("input", 0)),
    }
    if guarded.is_routed:
        # Before conntrack: a forged reply must not match an existing connection.
        forged = tuple(f'iifname "{i}" fib saddr . iif oif 0 counter drop' for i in pods)
        found["source"] = Chain((_NEIGHBOURS, *forged), _header("prerouting", -300))
    return found


def _header(hook: str, priority: int) -> str:
    return f"type filter hook {hook} priority {priority}; policy accept;"


def _family(address: str) -> int:
    return 6 if ":" in address else 4


def _encoded(selector: Selector | None) -> str:
    return "" if selector is None else msgspec.json.encode(selector, order="deterministic").decode()


def _encoded_peer(peer: Peer) -> str:
    return msgspec.json.encode(peer, order="deterministic").decode()


def _digest(*parts: str) -> str:
    """Return a short name for strings; 128 bits, because tenants choose some of them and could search collisions."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
