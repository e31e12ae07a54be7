"""Connects the gate to destinations: only to addresses, and outside of the cluster only to those that it has checked.

    Outside ─► resolve once ─► every address: rule, own machine? ─► dial one after the other, by address

A name whose addresses are not all admitted is refused as a whole: its owner changes the answers between two lookups, so
that there is none after the check (DNS rebinding).
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from tenantry.hosting.heads import HttpRefusal
from tenantry.hosting.outside import canonical
from tenantry.hosting.tunnel import ByteStream


def leads_here(address: str) -> bool:
    """Return whether an address is one of this machine, without a packet.

    Node objects do not list every address of a machine. The kernel lets a socket have an address of the machine, and no
    other one unless net.ipv4.ip_nonlocal_bind is set: with that setting, the gate reaches nothing outside.

    Source: ip(7); Linux, Documentation/networking/ip-sysctl.rst.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
        return True


class OutsideInputs(msgspec.Struct, frozen=True, kw_only=True):
    """What the gate needs to reach hosts outside of the cluster.

    Args:
        refusal: Returns why an address of a host may not be dialled, "" if it may; `OutsideRule.refusal`.
        resolve: Returns the addresses of a name; raises HttpRefusal.
        is_own: Returns whether an address is one of this machine.
    """

    refusal: Callable[[str, str], str]
    resolve: Callable[[str], Awaitable[Sequence[str]]]
    is_own: Callable[[str], bool] = leads_here


async def checked(inputs: OutsideInputs, host: str) -> list[str]:
    """Return the addresses of a host, all of which are admitted.

    Raises:
        HttpRefusal: It has none, or one of them is not admitted.
    """
    literal = canonical(host)
    found = [host] if literal is not None else await inputs.resolve(host)
    addresses: list[str] = []
    for each in found:
        reason = inputs.refusal(host, each)
        if reason:
            raise HttpRefusal(403, reason)
        # The rule reads this form.
        address = str(canonical(each) or each)
        if inputs.is_own(address):
            raise HttpRefusal(403, f"{host} is the machine that hosts this API server, which is never dialled")
        addresses.append(address)
    return addresses


async def dial(addresses: Sequence[str], port: int, seconds: float) -> tuple[str, ByteStream]:
    """Connect to the first address that accepts; return the address, too.

    Args:
        addresses: IP addresses, at least one.
        port: The TCP port.
        seconds: The time for all of them.

    Raises:
        HttpRefusal: None accepts.
    """
    last: OSError | None = None
    try:
        async with asyncio.timeout(seconds):
            for index, address in enumerate(addresses):
                # A silent address must not take the time of the others.
                limit = seconds / len(addresses) if index + 1 < len(addresses) else None
                try:
                    async with asyncio.timeout(limit):
                        return address, ByteStream(*await asyncio.open_connection(address, port))
                except TimeoutError:
                    if limit is None:
                        raise
                except OSError as error:
                    last = error
    except TimeoutError:
        raise HttpRefusal(504, "the destination does not accept the connection in time") from None
    why = os.strerror(last.errno) if last is not None and last.errno else "no connection"
    raise HttpRefusal(502, f"the destination cannot be reached: {why}") from last
