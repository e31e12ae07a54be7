"""What a failed build of Go reports to the person who has started it, from its log."""

from __future__ import annotations

import re
from pathlib import Path

from tenantry.local.files import tail

_HINTS = (
    ("no space left on device", "the disk is full: free about 6 GiB in Go's cache (`go env GOCACHE`)"),
    ("disk quota exceeded", "your disk quota is used up: free about 6 GiB"),
    ("signal: killed", "the compiler was killed, most likely because memory ran out: it needs about 3 GiB"),
    ("checksum mismatch", "a Go module is not the one that was locked: do not use this proxy (`go env GOPROXY`)"),
    ("permission denied", "a folder cannot be written: see `go env GOCACHE GOMODCACHE`"),
)
_NETWORK = re.compile(
    r"dial tcp|no such host|i/o timeout|connection refused|network is unreachable|TLS handshake|proxyconnect"
    r"|server misbehaving|unexpected EOF|50[234] |x509:"
)


def hint(output: str) -> str:
    """Return advice on a failed build from Go's output; "" if there is none."""
    for words, advice in _HINTS:
        if words in output:
            return advice
    if _NETWORK.search(output):
        return "the Go modules could not be fetched: check the network, or set GOPROXY to a proxy that answers"
    return ""


def about(name: str, log: Path) -> str:
    """Return the message about a program that was not built, with the end of the log."""
    last = [line for line in tail(log, 200) if not line.startswith("# get ")]
    advice = hint("\n".join(last))
    lines = "\n".join(f"    {line}" for line in last[-12:])
    return f'building "{name}" failed{": " + advice if advice else ""}. The end of "{log}":\n{lines}'
