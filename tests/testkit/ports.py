"""Ports on loopback for servers that tests start."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator
from itertools import cycle, islice

# Clusters take theirs from 20000 on, see local/ports.py; from the end on, Linux gives them to outgoing connections.
_FIRST, _END = 26000, 32768
_WORKERS = 4


def _all() -> Iterator[int]:
    """Yield ports without end, from a random one on: a chosen port is in use only later, so it is offered last again.

    Workers of one run have ports of their own.
    """
    share = range(_FIRST + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % _WORKERS, _END, _WORKERS)
    begin = random.Random(os.getpid()).randrange(len(share))
    yield from cycle((*share[begin:], *share[:begin]))


_ports = _all()


def free(count: int) -> list[int]:
    """Choose unused ports, for UDP and TCP."""
    return list(islice(filter(_is_free, _ports), count))


def _is_free(port: int) -> bool:
    try:
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            with socket.socket(socket.AF_INET, kind) as probe:
                probe.bind(("127.0.0.1", port))
    except OSError:
        return False
    return True
