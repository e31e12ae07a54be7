"""Names of hosts outside: resolved once, checked address by address, dialled by address; real sockets."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tenantry.hosting.destinations import Outside
from tenantry.hosting.dialling import OutsideInputs, leads_here
from tenantry.hosting.gate import Gate, GateLimits
from tenantry.hosting.heads import HttpRefusal
from tenantry.hosting.outside import OutsideRule
from tenantry.hosting.resolver import MOST_ADDRESSES, NameResolver, system_addresses
from testkit.egress import connecting, echo, listening

pytestmark = pytest.mark.timeout(60)
NAME = "hooks.example.com"
SERVER = "127.0.0.1"
OPEN = OutsideRule(hosts=(NAME,))


def only(*admitted: str) -> Callable[[str, str], str]:
    """Return a rule that admits these addresses: servers of tests are on loopback, which a real rule never admits."""
    return lambda _, address: "" if address in admitted else "not admitted"


class Answers:
    """Name servers of an attacker: a new answer for each lookup.

    Args:
        answers: The addresses of each; the last one is repeated.
    """

    def __init__(self, *answers: Sequence[str]) -> None:
        self._answers = list(answers)
        self.asked: list[str] = []

    def __call__(self, name: str) -> Sequence[str]:
        """Return the next answer."""
        self.asked.append(name)
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


@asynccontextmanager
async def leading(
    path: Path,
    answers: Callable[[str], Sequence[str]],
    refusal: Callable[[str, str], str],
    *,
    is_own: Callable[[str], bool] = lambda _: False,
) -> AsyncGenerator[Gate]:
    """Serve a gate to hosts outside, with a name server of the test."""
    inputs = OutsideInputs(refusal=refusal, resolve=NameResolver(answers).addresses, is_own=is_own)
    limits = GateLimits(dial_seconds=5.0)
    gate = Gate(path, lambda host, port: Outside(host=host, port=port), outside=inputs, limits=limits)
    async with gate.serve():
        yield gate


@pytest.fixture(name="path")
def socket_path(tmp_path: Path) -> Path:
    """Return the path of a socket."""
    return tmp_path / "s"


async def test_an_allowed_name_is_reached(path: Path) -> None:
    answers = Answers([SERVER])
    async with (
        listening(echo) as port,
        leading(path, answers, only(SERVER)),
        connecting(path, f"Hooks.Example.COM:{port}") as found,
    ):
        assert found.status == 200
        found.writer.write(b"hello")
        assert await found.reader.readexactly(5) == b"hello"
        assert answers.asked == [NAME], "once, in lower case"


async def test_a_name_that_changes_between_two_lookups_is_looked_up_once(path: Path) -> None:
    """VCP-4: DNS rebinding: the second answer would be the metadata service."""
    answers = Answers([SERVER], ["169.254.169.254"])
    async with listening(echo) as port, leading(path, answers, only(SERVER)):
        async with connecting(path, f"{NAME}:{port}") as found:
            assert found.status == 200
        assert len(answers.asked) == 1
        async with connecting(path, f"{NAME}:{port}") as found:
            assert found.status == 403


@pytest.mark.parametrize("bad", ["127.0.0.2", "169.254.169.254", "fe80::1", "::1", "not an address"])
async def test_one_bad_address_refuses_the_name(path: Path, bad: str) -> None:
    accepted: list[bool] = []

    async def count(*_: object) -> None:
        accepted.append(True)

    async with (
        listening(count) as port,
        leading(path, Answers([SERVER, bad]), only(SERVER)),
        connecting(path, f"{NAME}:{port}") as found,
    ):
        assert found.head.startswith("HTTP/1.1 403 Forbidden: not admitted\r\n")
    assert accepted == []


@pytest.mark.parametrize(
    "answer", ["127.0.0.1", "::1", "0.0.0.1", "169.254.169.254", "10.1.2.3", "::ffff:127.0.0.1", "64:ff9b::7f00:1"]
)
async def test_an_allowed_name_does_not_lead_inside(path: Path, answer: str) -> None:
    """VCP-4: with the real rule, and a server that would answer on loopback."""
    accepted: list[bool] = []

    async def count(*_: object) -> None:
        accepted.append(True)

    async with (
        listening(count) as port,
        leading(path, Answers([answer]), OPEN.refusal),
        connecting(path, f"{NAME}:{port}") as found,
    ):
        assert found.head.startswith(f"HTTP/1.1 403 Forbidden: {NAME} resolves to an address that is ")
    assert accepted == []


async def test_the_machine_of_the_gate_is_never_dialled(path: Path) -> None:
    """VCP-4: by an address that no Node object has."""
    async with (
        listening(echo) as port,
        leading(path, Answers([SERVER]), only(SERVER), is_own=leads_here),
        connecting(path, f"{NAME}:{port}") as found,
    ):
        assert found.head.startswith(f"HTTP/1.1 403 Forbidden: {NAME} is the machine that hosts this API server")


def test_the_addresses_of_this_machine_are_known() -> None:
    for address in ("127.0.0.1", "127.9.9.9"):
        assert leads_here(address)
    for address in ("203.0.113.9", "2600::1"):
        assert not leads_here(address)


async def test_the_next_address_is_tried(path: Path) -> None:
    """A server on one of two addresses is enough."""
    async with (
        listening(echo) as port,
        leading(path, Answers(["127.0.0.9", SERVER]), only("127.0.0.9", SERVER)),
        connecting(path, f"{NAME}:{port}") as found,
    ):
        assert found.status == 200


async def test_a_change_of_the_rule_ends_connections(path: Path) -> None:
    """The API server keeps connections to webhooks: a removed host must not stay reachable by one."""
    hosts = {NAME, "other.example.com"}

    def refusal(host: str, _: str) -> str:
        return "" if host in hosts else "not admitted"

    async with (
        listening(echo) as port,
        leading(path, Answers([SERVER]), refusal) as gate,
        connecting(path, f"{NAME}:{port}") as ended,
        connecting(path, f"other.example.com:{port}") as kept,
    ):
        assert (ended.status, kept.status) == (200, 200)
        hosts.discard(NAME)
        gate.recheck()
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await ended.reader.readexactly(1)
        kept.writer.write(b"still")
        assert await kept.reader.readexactly(5) == b"still"


async def test_a_gate_without_inputs_leads_to_no_host_outside(path: Path) -> None:
    gate = Gate(path, lambda host, port: Outside(host=host, port=port))
    async with gate.serve(), connecting(path, f"{NAME}:443") as found:
        assert found.status == 403


# -- the resolver -------------------------------------------------------------------------------


async def test_a_silent_name_server_holds_nothing_up() -> None:
    """VCP-8: lookups beyond the bound are refused at once; one that is late counts while its thread waits."""
    go = threading.Event()

    def silent(name: str) -> Sequence[str]:
        go.wait()
        return [name]

    resolver = NameResolver(silent, most=2, seconds=0.05)
    try:
        for _ in range(2):
            with pytest.raises(HttpRefusal, match="was not resolved in time") as late:
                await resolver.addresses(NAME)
            assert late.value.status == 504
        with pytest.raises(HttpRefusal, match="too many names") as refused:
            await resolver.addresses(NAME)
        assert refused.value.status == 503
        # The event loop's own threads are free.
        assert await asyncio.to_thread(lambda: "free") == "free"
    finally:
        go.set()


async def test_a_lookup_that_has_ended_makes_room() -> None:
    resolver = NameResolver(lambda _: ["203.0.113.9"], most=1)
    for _ in range(3):
        assert await resolver.addresses(NAME) == ("203.0.113.9",)


def unknown(name: str) -> Sequence[str]:
    """Raise, as for a name that does not exist."""
    raise OSError(name)


def malformed(name: str) -> Sequence[str]:
    """Raise, as for a label of more than 63 characters."""
    return [(name + "x" * 64).encode("idna").decode()]


@pytest.mark.parametrize(
    "look_up", [unknown, malformed, Answers([]), Answers([f"203.0.113.{n}" for n in range(MOST_ADDRESSES + 1)])]
)
async def test_names_without_a_usable_answer_are_refused(look_up: Callable[[str], Sequence[str]]) -> None:
    with pytest.raises(HttpRefusal) as refused:
        await NameResolver(look_up).addresses(NAME)
    assert refused.value.status == 502


def test_search_domains_do_not_complete_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """VCP-4: "a.example.com" must not become "a.example.com.corp.internal"."""
    asked: list[str] = []

    def answer(host: str, *_: object, **__: object) -> list[object]:
        asked.append(host)
        return [(2, 1, 6, "", ("203.0.113.9", 0)), (2, 1, 6, "", ("203.0.113.9", 0))]

    monkeypatch.setattr("socket.getaddrinfo", answer)
    assert system_addresses(NAME) == ["203.0.113.9"]
    assert asked == [f"{NAME}."]
