"""Which clusters the DNS of a domain names, and the records of one. Pure.

    _tenantry-peer._tcp.example.com.  SRV  0 0 6443 api.example.com.
    _tenantry-peer._tcp.example.com.  TXT  "name=berlin" "host=api.example.com" "id=…" "ca=sha256:…"

One SRV record has the address of a cluster, one TXT record the rest; `host` says which belong together, and may be
absent if there is one of each. Records are untrusted: they are bounded, and a wrong one is reported and left out.

Sources: RFC 2782 (SRV), RFC 6763 section 6 (TXT: keys and values).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

import msgspec

from tenantry.api.peercluster import is_name
from tenantry.api.peerdiscovery import DIGEST_PATTERN, MOST_DISCOVERED

SERVICE = "_tenantry-peer._tcp"
TTL_SECONDS = 3600

_HOST = re.compile(r"(?!-)[a-z0-9-]{1,63}(\.(?!-)[a-z0-9-]{1,63})+", re.ASCII)
_ID = re.compile(r"[0-9a-zA-Z-]{1,64}", re.ASCII)
_MOST_SHOWN = 64
_MOST_DIGESTS = 4


class FoundPeer(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster that records name.

    Args:
        name: What it is called here.
        server: The URL of its API server.
        cluster_id: Its id; "" for an unknown one.
        ca_digests: The digests of its authorities.
    """

    name: str
    server: str
    cluster_id: str = ""
    ca_digests: tuple[str, ...]


class DnsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The records of a domain.

    Args:
        addresses: Host and port of each SRV record.
        texts: The strings of each TXT record.
    """

    addresses: Sequence[tuple[str, int]] = ()
    texts: Sequence[Sequence[str]] = ()


def read(answer: DnsAnswer) -> tuple[list[FoundPeer], list[str]]:
    """Return the clusters that records name, and what is wrong with other records."""
    ports = {_plain(host): port for host, port in answer.addresses[:MOST_DISCOVERED]}
    found, problems = list[FoundPeer](), list[str]()
    most = max(len(answer.addresses), len(answer.texts))
    if most > MOST_DISCOVERED:
        problems.append(f"there are {most} records; only the first {MOST_DISCOVERED} are read")
    for number, text in enumerate(answer.texts[:MOST_DISCOVERED], 1):
        read_one = _one(text, ports, {each.name for each in found})
        if isinstance(read_one, str):
            problems.append(f"TXT record {number}: {read_one}")
        else:
            found.append(read_one)
    return found, problems


def _one(text: Sequence[str], ports: dict[str, int], taken: Collection[str]) -> FoundPeer | str:
    """Return the cluster of one TXT record, or what is wrong with it."""
    values: dict[str, list[str]] = {}
    for each in text:
        key, _, value = each.partition("=")
        values.setdefault(key.lower(), []).append(value)

    def first(key: str) -> str:
        return values.get(key, [""])[0]

    digests = tuple(values.get("ca", ()))
    if not 0 < len(digests) <= _MOST_DIGESTS or not all(re.fullmatch(DIGEST_PATTERN, each) for each in digests):
        return f"ca must be sha256: and 64 digits of 0-9 and a-f, one to {_MOST_DIGESTS} times"
    host = _plain(first("host"))
    if not host and len(ports) == 1:
        (host,) = ports
    if host not in ports or not _HOST.fullmatch(host):
        return f"host {_shown(host)} must be the target of an SRV record of the same name"
    name = first("name") or host.partition(".")[0]
    if not is_name(name):
        return f"name {_shown(name)} is no name of a peer"
    if name in taken:
        return f"name {name!r} is that of an earlier record"
    known_id = first("id")
    if known_id and not _ID.fullmatch(known_id):
        return f"id {_shown(known_id)} is no id of a cluster"
    return FoundPeer(name=name, server=f"https://{host}:{ports[host]}", cluster_id=known_id, ca_digests=digests)


def zone(domain: str, peer: FoundPeer) -> list[str]:
    """Return the records of a cluster, as lines of a zone file.

    Args:
        domain: The domain.
        peer: The cluster; its server has a host name and a port.
    """
    host, _, port = peer.server.removeprefix("https://").rpartition(":")
    owner = f"{SERVICE}.{_plain(domain)}. {TTL_SECONDS} IN"
    texts = [f"name={peer.name}", f"host={host}", f"id={peer.cluster_id}", *(f"ca={each}" for each in peer.ca_digests)]
    quoted = " ".join(f'"{each}"' for each in texts)
    return [f"{owner} SRV 0 0 {port} {host}.", f"{owner} TXT {quoted}"]


def is_host(name: str) -> bool:
    """Return whether a name is one of the DNS, with two labels at least."""
    return len(name) < 254 and _HOST.fullmatch(_plain(name)) is not None and not name.rpartition(".")[2].isdigit()  # noqa: PLR2004


def _plain(host: str) -> str:
    return host.removesuffix(".").lower()


def _shown(value: str) -> str:
    """Return an untrusted value for a message: short, and without terminal escapes."""
    return ascii(value[:_MOST_SHOWN])
