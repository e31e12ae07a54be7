"""Which server blocks of a Corefile answer every pod."""

from __future__ import annotations

import pytest

from tenantry.audit import corefile

STOCK = """\
.:53 {
    errors
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
    }
    forward . /etc/resolv.conf {
        max_concurrent 1000
    }
    cache 30
}
"""
GUARDED = STOCK.replace(
    "    errors\n", "    errors\n    tenantry cluster.local in-addr.arpa ip6.arpa {\n        wait 1s\n    }\n"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (STOCK, [".:53"]),
        (GUARDED, []),
        ("", []),
        ("example.org {\n    forward . 192.0.2.1\n}\n" + GUARDED, []),
        (GUARDED + STOCK.replace(".:53", "cluster.local:54"), ["cluster.local:54"]),
        # A comment is no plugin, nor is a property of one.
        (STOCK.replace("errors", "# tenantry cluster.local"), [".:53"]),
        (STOCK.replace("pods insecure", "tenantry"), [".:53"]),
        ("(names) {\n    kubernetes cluster.local\n}\n.:53 {\n    import names\n}\n", [".:53"]),
        ("(names) {\n    tenantry a\n    kubernetes a\n}\n.:53 {\n    import names\n}\n", []),
    ],
)
def test_a_block_that_answers_names_of_the_cluster_needs_the_plugin(text: str, expected: list[str]) -> None:
    """H06: the gap in DNS is named where CoreDNS is not Tenantry's."""
    assert corefile.unguarded(text) == expected
