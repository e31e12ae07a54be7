"""Resolves the names of hosts outside, without letting a slow name server stop anything else.

A lookup in the system's resolver cannot be ended. Each has a thread of its own: the event loop's threads are shared by
everything in this process, and a few names whose server never answers would take them all. The threads of one resolver
are bounded, and do not keep the process from ending.

Source: getaddrinfo(3), resolv.conf(5).
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Sequence

from tenantry.hosting.heads import HttpRefusal

LookUp = Callable[[str], Sequence[str]]
"""Returns the addresses of a DNS name; blocks. It raises OSError if there are none."""

MOST_ADDRESSES = 16


def system_addresses(name: str) -> Sequence[str]:
    """Return the addresses of a DNS name, as the system's resolver finds them.

    Raises:
        OSError: There are none.
    """
    # With the dot the name is absolute: the search domains of the machine do not complete it.
    found = socket.getaddrinfo(f"{name}.", None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(each[4][0]) for each in found))


class NameResolver:
    """Resolves names for one gate.

    Args:
        look_up: Returns the addresses of a name.
        most: The number of lookups at one time; further ones are refused.
        seconds: How long a lookup may take.
    """

    def __init__(self, look_up: LookUp = system_addresses, *, most: int = 4, seconds: float = 5.0) -> None:
        self._look_up = look_up
        self._most = most
        self._seconds = seconds
        self._running = 0

    async def addresses(self, name: str) -> tuple[str, ...]:
        """Return all addresses of a name.

        Raises:
            HttpRefusal: It has none, too many, or none in time, or too many names are being resolved.
        """
        if self._running >= self._most:
            raise HttpRefusal(503, "too many names are being resolved")
        try:
            async with asyncio.timeout(self._seconds):
                found = await self._in_a_thread(name)
        except TimeoutError:
            raise HttpRefusal(504, f"{name} was not resolved in time") from None
        except (OSError, UnicodeError):
            raise HttpRefusal(502, f"{name} has no address") from None
        if not 0 < len(found) <= MOST_ADDRESSES:
            raise HttpRefusal(502, f"{name} has {'too many addresses' if found else 'no address'}")
        return tuple(found)

    def _in_a_thread(self, name: str) -> asyncio.Future[Sequence[str]]:
        loop = asyncio.get_running_loop()
        result: asyncio.Future[Sequence[str]] = loop.create_future()

        def done(found: Sequence[str], error: Exception | None) -> None:
            # Only now: a lookup that its caller does not wait for any more still has its thread.
            self._running -= 1
            if result.done():
                return
            if error is not None:
                result.set_exception(error)
            else:
                result.set_result(found)

        def work() -> None:
            found: Sequence[str] = ()
            problem: Exception | None = None
            try:
                found = self._look_up(name)
            except Exception as error:  # noqa: BLE001 - it is raised where the result is awaited
                problem = error
            try:
                loop.call_soon_threadsafe(done, found, problem)
            except RuntimeError:
                return  # the loop is closed, and nothing waits

        self._running += 1
        try:
            threading.Thread(target=work, name="resolver", daemon=True).start()
        except RuntimeError:
            self._running -= 1
            raise HttpRefusal(503, "too many names are being resolved") from None
        return result
