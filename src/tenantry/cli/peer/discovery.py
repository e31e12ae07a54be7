"""`tenantry peer discover` and `record`: which clusters there are to ask for an invitation; nothing is granted.

peer  record ─► DNS of a domain ─► home  discover ─► PeerCluster with spec.discovered ─► accept: the same authority
"""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click
import msgspec

from tenantry.api.errors import AlreadyExists, InputError, TenantryError
from tenantry.api.model import ObjectMeta
from tenantry.api.names import SERVER_PATTERN
from tenantry.api.peercluster import PeerCluster, PeerClusterSpec
from tenantry.api.peerdiscovery import DIGEST_PATTERN, MOST_DISCOVERED, PeerDiscovery
from tenantry.cli import kinds, output, session
from tenantry.cli.peer import dnsrecords
from tenantry.cli.peer.dnsrecords import SERVICE, DnsAnswer, FoundPeer
from tenantry.cli.peer.invitation import address, check_name, cluster_id_of, cluster_name
from tenantry.cli.target import Target, takes_target
from tenantry.engine.clock import rfc3339

if TYPE_CHECKING:
    from tenantry.kube.client import Client

_DNS_SECONDS = 10.0
_API_SERVER_PORT = 443


@click.command()
@takes_target
@click.argument("called", metavar="DOMAIN|NAME")
@click.option("--server", default="", metavar="URL", help="URL of the API server of the cluster NAME.")
@click.option(
    "--ca-digest",
    "digests",
    multiple=True,
    metavar="DIGEST",
    help="Digest of its authority, as in sha256:0123…. May be repeated.",
)
@click.option("--cluster-id", default="", metavar="ID", help="Id of the cluster NAME (default: any).")
@click.option(
    "--nameserver", default="", metavar="IP[:PORT]", help="DNS server to ask (default: those of this machine)."
)
def discover(
    target: Target, *, called: str, server: str, digests: tuple[str, ...], cluster_id: str, nameserver: str
) -> None:
    r"""Find clusters that may become peers: those that the DNS of DOMAIN names, or the one at --server.

    Each gets a PeerCluster that grants nothing, and is deleted after an hour if it is not used. If you accept an
    invitation under its name, the authority in the invitation must be the one that was found.

    \b
      tenantry peer discover example.com
      tenantry peer discover berlin --server https://api.example.com:6443 --ca-digest sha256:0123…
    """
    if server:
        found, problems, source = [_stated(called, server, digests, cluster_id)], [], ""
    elif digests or cluster_id:
        raise InputError("--server is needed with --ca-digest and --cluster-id")
    elif not dnsrecords.is_host(called):
        raise InputError(
            f"{called[:64]!r} is no domain: give one, as in example.com, or the cluster's address with --server"
        )
    else:
        found, problems = dnsrecords.read(_records(called, nameserver))
        source = called
    problems += session.run(target, lambda client: _keep(client, found, source))
    if problems:
        raise InputError("; ".join(problems))


def _stated(name: str, server: str, digests: tuple[str, ...], cluster_id: str) -> FoundPeer:
    check_name(name)
    if not re.fullmatch(SERVER_PATTERN, server):
        raise InputError(f"--server {server[:64]!r} must be a URL without a path, as in https://api.example.com:6443")
    if not digests or not all(re.fullmatch(DIGEST_PATTERN, each) for each in digests):
        raise InputError(
            "--ca-digest must be sha256: and 64 digits of 0-9 and a-f: `tenantry peer record` there prints it"
        )
    return FoundPeer(name=name, server=server, cluster_id=cluster_id, ca_digests=digests)


def _records(domain: str, nameserver: str) -> DnsAnswer:
    """Ask the DNS.

    Raises:
        InputError: The domain has no such records, or the address of the server is none.
        TenantryError: No server answers.
    """
    import dns.exception
    import dns.resolver

    name = f"{SERVICE}.{domain.removesuffix('.')}."
    try:
        resolver = dns.resolver.Resolver(configure=not nameserver)
        if nameserver:
            host, port = _host_and_port(nameserver)
            resolver.nameservers, resolver.port = [host], port
        services = resolver.resolve(name, "SRV", lifetime=_DNS_SECONDS)
        texts = resolver.resolve(name, "TXT", lifetime=_DNS_SECONDS)
    except (dns.resolver.NXDOMAIN, dns.resolver.NoAnswer) as error:
        raise InputError(
            f"{name} has no records SRV and TXT: `tenantry peer record {domain}` at the other cluster prints them"
        ) from error
    except ValueError as error:
        raise InputError(f"--nameserver {nameserver[:64]!r} must be an IP address, with a port or without") from error
    except dns.exception.DNSException as error:
        raise TenantryError(
            f"the DNS does not answer for {name}: {type(error).__name__}; try again, or give another --nameserver"
        ) from error
    return DnsAnswer(
        addresses=[(each.target.to_text(), each.port) for each in services],
        texts=[[one.decode(errors="replace") for one in each.strings] for each in texts],
    )


def _host_and_port(value: str) -> tuple[str, int]:
    parts = urlsplit(f"//{value}")
    return parts.hostname or "", parts.port or 53


async def _keep(client: Client, found: list[FoundPeer], source: str) -> list[str]:
    """Create the PeerClusters, or see them again; return what is wrong."""
    there = {each.metadata.name: each for each in await client.list(PeerCluster)}
    left = MOST_DISCOVERED - sum(_is_only_found(each) for each in there.values())
    problems, now = list[str](), rfc3339(dt.datetime.now(dt.UTC))
    for each in found:
        known = PeerDiscovery(
            server=each.server, ca_digests=each.ca_digests, cluster_id=each.cluster_id, source=source, seen=now
        )
        told, before = kinds.told(PeerCluster, each.name), there.get(each.name)
        if before is None and left <= 0:
            problems.append(
                f"{told}: there are {MOST_DISCOVERED} that are only discovered: delete some, or wait an hour"
            )
            continue
        if before is None:
            left -= 1
            try:
                await client.create(
                    PeerCluster(metadata=ObjectMeta(name=each.name), spec=PeerClusterSpec(discovered=known))
                )
            except AlreadyExists:
                problems.append(f"{told}: it was created a moment ago; try again")
                continue
            output.talk(f"{told} discovered at {each.server}")
        elif not _is_only_found(before):
            output.talk(f"{told} is used already; nothing is changed")
        elif not _is_same(before, known):
            problems.append(f"{told} is another cluster that was discovered: delete it, or use it under another name")
        else:
            body = {"spec": {"discovered": msgspec.to_builtins(known)}}
            await client.merge_patch(PeerCluster.resource, "", each.name, body)
            output.talk(f"{told} discovered again at {each.server}")
    return problems


def _is_only_found(found: PeerCluster) -> bool:
    from tenantry.controllers.peering import discovery

    return discovery.is_unused(found)


def _is_same(before: PeerCluster, now: PeerDiscovery) -> bool:
    known = before.spec.discovered
    return isinstance(known, PeerDiscovery) and (known.source, set(known.ca_digests)) == (
        now.source,
        set(now.ca_digests),
    )


@click.command()
@takes_target
@click.argument("domain", metavar="[DOMAIN]", default="")
@click.option("--as", "known_as", default="", metavar="NAME", help="Name of this cluster in the records.")
@click.option("--server", default="", metavar="URL", help="URL of this API server for other clusters (default: yours).")
def record(target: Target, *, domain: str, known_as: str, server: str) -> None:
    r"""Print how other clusters discover this one: the DNS records for DOMAIN, or without it a command.

    \b
      tenantry peer record example.com --server https://api.example.com:6443 >> example.com.zone
    """
    from tenantry.controllers.peering import discovery

    called = known_as or cluster_name(target)
    check_name(called)

    async def itself(client: Client) -> FoundPeer:
        url, ca = address(client, server)
        return FoundPeer(
            name=called, server=url, cluster_id=await cluster_id_of(client), ca_digests=discovery.digests(ca)
        )

    found = session.run(target, itself)
    if not domain:
        digests = " ".join(f"--ca-digest {each}" for each in found.ca_digests)
        click.echo(f"tenantry peer discover {called} --server {found.server} --cluster-id {found.cluster_id} {digests}")
        return
    if not dnsrecords.is_host(domain):
        raise InputError(f"{domain[:64]!r} is no domain, as in example.com")
    parts = urlsplit(found.server)
    if not dnsrecords.is_host(parts.hostname or ""):
        raise InputError(
            f"{found.server} has no name in the DNS, which an SRV record needs: give one with --server, as in"
            " --server https://api.example.com:6443"
        )
    named = msgspec.structs.replace(found, server=f"https://{parts.hostname}:{parts.port or _API_SERVER_PORT}")
    for line in dnsrecords.zone(domain, named):
        click.echo(line)
