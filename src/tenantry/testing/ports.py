"""Ports on loopback for what tests start themselves."""

from __future__ import annotations

import os
import random
import socket

# Clusters take theirs from 20000 on, see local/ports.py; from the end on, Linux gives them to outgoing connections.
_FIRST, _END = 26000, 32768
# By process, so that tests at the same time seldom try the same ones.
_chance = random.Random(os.getpid())  # noqa: S311 - nobody is to be surprised


def free(count: int) -> list[int]:
    """Choose ports that nobody has, for UDP and TCP."""
    found: list[int] = []
    while len(found) < count:
        port = _chance.randrange(_FIRST, _END)
        if port not in found and _is_free(port):
            found.append(port)
    return found


def _is_free(port: int) -> bool:
    try:
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            with socket.socket(socket.AF_INET, kind) as probe:
                probe.bind(("127.0.0.1", port))
    except OSError:
        return False
    return True
