"""Reads and writes the heads of HTTP/1.1 messages, without sockets: pure.

The reader is strict, because a head that two programs read differently lets a client smuggle a second request past the
first reader. It rejects folded lines, bare CR and LF, names that are not tokens, bodies, and every other version.

Source: RFC 9112, sections 2 to 6; RFC 9110, sections 7.8 and 9.3.6.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from http import HTTPStatus

import msgspec

from tenantry.api.errors import TenantryError
from tenantry.api.names import DNS_SUBDOMAIN

END = b"\r\n\r\n"
ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
_TARGET = re.compile(r"[\x21-\x7e]+", re.ASCII)
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_AUTHORITY = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:@/\[\]]+):([1-9][0-9]{0,4})", re.ASCII)
_SUBDOMAIN = re.compile(DNS_SUBDOMAIN, re.ASCII)
# inet_aton reads such names as IPv4 addresses: 127.1, 0x7f000001.
_NUMERIC = re.compile(r"(.*[.])?(0x[0-9a-f]*|[0-9]+)", re.ASCII)
_NAME_LENGTH = 253
_LAST_PORT = 65535
_PARTS = 3

_PHRASE_LENGTH = 300
_REASON_LENGTH = 4096
_PROTOCOLS = frozenset({"spdy/3.1", "websocket"})
_SWITCHING = ("upgrade", "x-stream-protocol-version")
_WEBSOCKET = "sec-websocket-"


class HttpRefusal(TenantryError):
    """The request ends with an HTTP error.

    Args:
        status: The HTTP status.
        reason: One line for the client, without paths of this machine.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status

    def response(self) -> bytes:
        """Return the whole response.

        The phrase repeats the reason, because Go programs report only the phrase of a refused CONNECT.
        """
        reason = _one_line(str(self))
        try:
            title = HTTPStatus(self.status).phrase
        except ValueError:
            title = "Error"
        phrase = f"{title}: {reason}"[:_PHRASE_LENGTH] if reason else title
        body = f"{reason}\n".encode("ascii")
        headers = [
            ("Content-Type", "text/plain; charset=utf-8"),
            ("Content-Length", str(len(body))),
            ("Connection", "close"),
        ]
        return response_head(self.status, phrase, headers) + body


class RequestHead(msgspec.Struct, frozen=True, kw_only=True):
    """The head of a request.

    Args:
        method: As in "GET".
        target: As it stands in the request line.
        headers: Names, in lower case, and values, in order.
    """

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]

    def values(self, name: str) -> list[str]:
        """Return the values of a header, each element of a list by itself."""
        found = (value for own, value in self.headers if own == name)
        return [part.strip() for value in found for part in value.split(",")]

    def upgrade_headers(self) -> list[tuple[str, str]]:
        """Return the headers that an upgrade needs; empty if the request is not an upgrade to a known protocol."""
        protocols = [each.lower() for each in self.values("upgrade")]
        is_upgrade = "upgrade" in (each.lower() for each in self.values("connection"))
        return switching(self.headers) if is_upgrade and len(protocols) == 1 and protocols[0] in _PROTOCOLS else []


def switching(headers: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the headers that concern a change of the protocol; credentials and forwarded addresses do not."""
    return [(name, value) for name, value in headers if name in _SWITCHING or name.startswith(_WEBSOCKET)]


def response_head(status: int, phrase: str, headers: Sequence[tuple[str, str]]) -> bytes:
    """Return the head of a response; values must be checked by the caller."""
    lines = [f"HTTP/1.1 {status} {phrase}", *(f"{name}: {value}" for name, value in headers)]
    return ("\r\n".join(lines)).encode("latin-1") + END


def parse(data: bytes) -> RequestHead:
    """Return the head of a request that has no body.

    Args:
        data: All bytes up to and with the empty line.

    Raises:
        HttpRefusal: The head is malformed, of another version, or announces a body.
    """
    first, *lines = data.removesuffix(END).decode("latin-1").split("\r\n")
    parts = first.split(" ")
    if len(parts) != _PARTS or not _TOKEN.fullmatch(parts[0]) or not _TARGET.fullmatch(parts[1]):
        raise HttpRefusal(400, "the request line is malformed")
    if parts[2] != "HTTP/1.1":
        raise HttpRefusal(505, "only HTTP/1.1 is spoken here")
    headers: list[tuple[str, str]] = []
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value):
            raise HttpRefusal(400, "a header is malformed")
        headers.append((name.lower(), value.strip(" \t")))
    head = RequestHead(method=parts[0], target=parts[1], headers=tuple(headers))
    # The bytes of a body would be taken for the first bytes of the next protocol.
    if head.values("transfer-encoding") or any(length != "0" for length in head.values("content-length")):
        raise HttpRefusal(400, "the request may not have a body")
    return head


def destination(head: RequestHead) -> tuple[str, int]:
    """Return host and port of a CONNECT request.

    Returns:
        The host is an IP address in its shortest form (an IPv4 address that is written as IPv6 becomes IPv4), or a DNS
        name in lower case that no resolver can take for an address.

    Raises:
        HttpRefusal: The request is not CONNECT, or its authority is malformed.
    """
    if head.method != "CONNECT":
        raise HttpRefusal(405, "only CONNECT is allowed here")
    found = _AUTHORITY.fullmatch(head.target)
    if found is None or int(found[2]) > _LAST_PORT:
        raise HttpRefusal(400, "CONNECT must name a host and a port")
    return _host(found[1]), int(found[2])


def _host(text: str) -> str:
    try:
        address = ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        name = text.lower()
        if len(name) <= _NAME_LENGTH and _SUBDOMAIN.fullmatch(name) and not _NUMERIC.fullmatch(name):
            return name
        raise HttpRefusal(400, "CONNECT must name an IP address or a DNS name") from None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _one_line(text: str) -> str:
    return " ".join(text.split()).encode("ascii", "replace").decode()[:_REASON_LENGTH]
