"""Heads of HTTP messages: whatever two readers could read differently is refused."""

from __future__ import annotations

import pytest

from tenantry.hosting import heads
from tenantry.hosting.heads import HttpRefusal


def parse(text: str) -> heads.RequestHead:
    """Parse a head that is written without its end."""
    return heads.parse(text.encode("latin-1") + b"\r\n\r\n")


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("", 400),
        ("GET", 400),
        ("GET /", 400),
        ("GET  / HTTP/1.1", 400),
        (" GET / HTTP/1.1", 400),
        ("GET / HTTP/1.1 x", 400),
        ("GET\t/ HTTP/1.1", 400),
        ("G(T / HTTP/1.1", 400),
        ("GET /\x00 HTTP/1.1", 400),
        ("GET /\xe4 HTTP/1.1", 400),
        ("GET / HTTP/1.0", 505),
        ("GET / HTTP/2.0", 505),
        ("GET / http/1.1", 505),
        ("GET / HTTP/1.1\nX: y", 400),
        ("GET / HTTP/1.1\r\nX", 400),
        ("GET / HTTP/1.1\r\n: y", 400),
        ("GET / HTTP/1.1\r\nX : y", 400),
        ("GET / HTTP/1.1\r\n X: y", 400),
        ("GET / HTTP/1.1\r\nX: y\r\n folded: z", 400),
        ("GET / HTTP/1.1\r\nX: y\nInjected: z", 400),
        ("GET / HTTP/1.1\r\nX: y\rInjected: z", 400),
        ("GET / HTTP/1.1\r\nX: \x00", 400),
        ("POST / HTTP/1.1\r\nContent-Length: 1", 400),
        ("POST / HTTP/1.1\r\nContent-Length: 0\r\nContent-Length: 5", 400),
        ("POST / HTTP/1.1\r\nContent-Length: 0, 5", 400),
        ("POST / HTTP/1.1\r\ncontent-length: +0", 400),
        ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked", 400),
    ],
)
def test_ambiguous_heads_are_refused(text: str, status: int) -> None:
    with pytest.raises(HttpRefusal) as found:
        parse(text)
    assert found.value.status == status


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("10.1.2.3:443", ("10.1.2.3", 443)),
        ("[fd00:0:0::1]:10250", ("fd00::1", 10250)),
        ("[::ffff:10.1.2.3]:443", ("10.1.2.3", 443)),
        ("Hook.Shop.svc:8443", ("hook.shop.svc", 8443)),
        ("node-1:65535", ("node-1", 65535)),
    ],
)
def test_destinations_have_one_form(target: str, expected: tuple[str, int]) -> None:
    assert heads.destination(parse(f"CONNECT {target} HTTP/1.1\r\nHost: {target}")) == expected


@pytest.mark.parametrize(
    "target",
    [
        "10.1.2.3",
        "10.1.2.3:",
        "10.1.2.3:0",
        "10.1.2.3:65536",
        "10.1.2.3:080",
        "10.1.2.3:+80",
        ":80",
        "[]:80",
        "fd00::1:80",
        "[fd00::1%25lo]:80",
        "[fe80::1%lo]:80",
        "user@10.1.2.3:80",
        "10.1.2.3:80/path",
        "http://10.1.2.3:80",
        # resolvers take these for addresses
        "127.1:80",
        "2130706433:80",
        "0x7f000001:80",
        "0x7f.0.0.1:80",
        "010.0.0.1:80",
        "1.2.3.4.5:80",
        "host.:80",
        "host..x:80",
        "-host:80",
        "h%6fst:80",
        "a_b:80",
        f"{'a' * 254}:80",
    ],
)
def test_destinations_that_are_no_address_and_no_name_are_refused(target: str) -> None:
    with pytest.raises(HttpRefusal) as found:
        heads.destination(parse(f"CONNECT {target} HTTP/1.1"))
    assert found.value.status == 400


@pytest.mark.parametrize(
    "text",
    [
        "GET /x HTTP/1.1",
        "GET /x HTTP/1.1\r\nUpgrade: websocket",
        "GET /x HTTP/1.1\r\nConnection: close\r\nUpgrade: websocket",
        "GET /x HTTP/1.1\r\nConnection: Upgrade",
        "GET /x HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c",
        "GET /x HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket, h2c",
        "GET /x HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: SPDY/3.1",
    ],
)
def test_only_upgrades_to_one_known_protocol_count(text: str) -> None:
    assert parse(text).upgrade_headers() == []


def test_upgrades_keep_their_own_headers_only() -> None:
    head = parse(
        "POST /x HTTP/1.1\r\nHost: node\r\nConnection: keep-alive, Upgrade\r\nUpgrade: SPDY/3.1\r\n"
        "Authorization: Bearer secret\r\nImpersonate-User: admin\r\nX-Forwarded-For: 10.0.0.1\r\n"
        "X-Remote-User: admin\r\n"
        "X-Stream-Protocol-Version: v5.channel.k8s.io\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n"
        "Sec-WebSocket-Key: abc"
    )
    assert head.upgrade_headers() == [
        ("upgrade", "SPDY/3.1"),
        ("x-stream-protocol-version", "v5.channel.k8s.io"),
        ("x-stream-protocol-version", "v4.channel.k8s.io"),
        ("sec-websocket-key", "abc"),
    ]


def test_reasons_stay_on_one_line() -> None:
    response = HttpRefusal(403, "no\r\nSet-Cookie: x\r\n\r\n<b>ä</b>").response()
    assert response == (
        b"HTTP/1.1 403 Forbidden: no Set-Cookie: x <b>?</b>\r\nContent-Type: text/plain; charset=utf-8\r\n"
        b"Content-Length: 27\r\nConnection: close\r\n\r\nno Set-Cookie: x <b>?</b>\n"
    ).replace(b"27", str(len("no Set-Cookie: x <b>?</b>\n")).encode())


def test_unknown_statuses_have_a_response() -> None:
    assert HttpRefusal(599, "").response().startswith(b"HTTP/1.1 599 Error\r\n")
