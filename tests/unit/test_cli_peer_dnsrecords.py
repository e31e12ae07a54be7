"""Records of the DNS by which clusters are discovered: untrusted (L13)."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantry.api.peercluster import is_name
from tenantry.api.peerdiscovery import MOST_DISCOVERED, SERVER_PATTERN
from tenantry.cli.peer import dnsrecords
from tenantry.cli.peer.dnsrecords import DnsAnswer, FoundPeer

DIGEST, OTHER = f"sha256:{'0a' * 32}", f"sha256:{'1b' * 32}"
KNOWN = st.sampled_from([f"ca={DIGEST}", "host=", "name=a"])
API = ("api.example.com.", 6443)


def one(*text: str, addresses: tuple[tuple[str, int], ...] = (API,)) -> tuple[list[FoundPeer], list[str]]:
    return dnsrecords.read(DnsAnswer(addresses=addresses, texts=[text]))


def test_the_printed_records_are_read_again() -> None:
    peer = FoundPeer(name="berlin", server="https://api.example.com:6443", cluster_id="id", ca_digests=(DIGEST, OTHER))
    service, text = dnsrecords.zone("Example.com.", peer)
    assert service == "_tenantry-peer._tcp.example.com. 3600 IN SRV 0 0 6443 api.example.com."
    assert one(*re.findall('"([^"]*)"', text)) == ([peer], [])


def test_one_cluster_needs_neither_a_host_nor_a_name() -> None:
    assert one(f"ca={DIGEST}") == (
        [FoundPeer(name="api", server="https://api.example.com:6443", ca_digests=(DIGEST,))],
        [],
    )


@pytest.mark.parametrize(
    ("text", "addresses", "words"),
    [
        (("name=berlin",), (API,), "ca must be"),
        (("ca=sha256:00",), (API,), "ca must be"),
        ((f"ca={DIGEST}",) * 5, (API,), "ca must be"),
        ((f"ca={DIGEST}", "host=other.example.com"), (API,), "target of an SRV record"),
        ((f"ca={DIGEST}",), (), "target of an SRV record"),
        ((f"ca={DIGEST}",), (API, ("other.example.com", 1)), "target of an SRV record"),
        ((f"ca={DIGEST}",), (("a/b?c.example.com", 1),), "target of an SRV record"),
        ((f"ca={DIGEST}", "name=kube system"), (API,), "no name of a peer"),
        ((f"ca={DIGEST}", "name=" + "\x1b]0;owned\x07" * 99), (API,), "no name of a peer"),
        ((f"ca={DIGEST}", "id=a b"), (API,), "no id of a cluster"),
    ],
)
def test_a_wrong_record_is_reported_and_left_out(
    text: tuple[str, ...], addresses: tuple[tuple[str, int], ...], words: str
) -> None:
    found, problems = one(*text, addresses=addresses)
    assert found == []
    (problem,) = problems
    assert words in problem
    assert len(problem) < 400
    # No terminal escape reaches the terminal of an administrator.
    assert problem.isprintable()


def test_a_good_record_is_used_beside_a_wrong_one_and_a_second_of_its_name() -> None:
    good = (f"ca={DIGEST}", "name=berlin")
    found, problems = dnsrecords.read(DnsAnswer(addresses=[API], texts=[("x=y",), good, good]))
    assert [each.name for each in found] == ["berlin"]
    assert [each.partition(":")[0] for each in problems] == ["TXT record 1", "TXT record 3"]


def test_no_more_records_are_read_than_are_kept() -> None:
    texts = [(f"ca={DIGEST}", f"name=n{number}") for number in range(3 * MOST_DISCOVERED)]
    found, problems = dnsrecords.read(DnsAnswer(addresses=[API], texts=texts))
    assert len(found) == MOST_DISCOVERED
    assert problems == [f"there are {3 * MOST_DISCOVERED} records; only the first {MOST_DISCOVERED} are read"]


@given(
    st.lists(st.tuples(st.text(max_size=30), st.integers(0, 65535)), max_size=3),
    st.lists(
        st.lists(st.text(max_size=80) | st.sampled_from([f"ca={DIGEST}", "host=", "name=a"]), max_size=5), max_size=4
    ),
)
def test_whatever_the_dns_says_what_is_found_can_be_stored(
    addresses: list[tuple[str, int]], texts: list[list[str]]
) -> None:
    found, _ = dnsrecords.read(DnsAnswer(addresses=addresses, texts=texts))
    assert len({each.name for each in found}) == len(found)
    for each in found:
        assert is_name(each.name)
        assert re.fullmatch(SERVER_PATTERN, each.server)
