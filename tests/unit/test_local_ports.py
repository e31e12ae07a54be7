"""Ports of local clusters."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import msgspec
import pytest

from tenantry.api.errors import LocalError
from tenantry.local import ports
from tenantry.local.spec import Ports

# Clusters of other tests start meanwhile, and take the first ports that are free; from 26000 on see testing/ports.py.
THEIRS = frozenset(range(20000, 25000))
OURS = Ports(
    etcd=25500, etcd_peer=25501, apiserver=25502, controller_manager=25503, scheduler=25504, kwok=25505, operator=25506
)


def test_ports_are_below_the_ephemeral_range_and_differ() -> None:
    chosen = ports.choose(7, (), frozenset())
    assert len(set(chosen)) == 7
    assert all(20000 <= port < 32768 for port in chosen)


def test_a_cluster_keeps_its_free_ports_in_place() -> None:
    before = ports.choose(3, (), THEIRS)
    assert ports.choose(3, before, frozenset()) == before


def test_ports_of_others_are_left_alone() -> None:
    before = ports.choose(3, (), THEIRS)
    after = ports.choose(3, before, frozenset(before[1:2]))
    assert (after[0], after[2]) == (before[0], before[2])
    assert after[1] not in before


def test_a_port_in_use_is_not_chosen() -> None:
    wanted = ports.choose(1, (), THEIRS)
    with socket.socket() as other:
        # Connections of a cluster that another test just stopped may linger there.
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("0.0.0.0", wanted[0]))  # noqa: S104 - just that must be noticed
        other.listen()
        assert not ports.is_free(wanted[0])
        assert ports.choose(1, wanted, frozenset()) != wanted
    assert ports.choose(1, wanted, frozenset()) == wanted


def test_too_few_ports_are_an_error() -> None:
    with pytest.raises(LocalError, match="fewer than 5 ports"):
        ports.choose(5, (), frozenset(), end=20003)


def test_clusters_that_reserve_at_the_same_moment_do_not_clash(tmp_path: Path) -> None:
    folders = [tmp_path / str(number) for number in range(8)]
    found: list[Ports] = []
    for folder in folders:
        folder.mkdir()

    def reserve(folder: Path) -> None:
        found.append(ports.reserve(folder, None))

    threads = [threading.Thread(target=reserve, args=(folder,)) for folder in folders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    numbers = [port for each in found for port in msgspec.structs.astuple(each)]
    for folder in folders:
        ports.release(folder)
    assert len(numbers) == len(set(numbers)) == 8 * 9


def test_a_reservation_outlives_a_stopped_cluster_but_not_its_folder(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    kept = ports.reserve(first, OURS)
    other = ports.reserve(second, kept)
    assert not set(msgspec.structs.astuple(kept)) & set(msgspec.structs.astuple(other))
    first.rmdir()
    assert ports.reserve(second, kept) == kept
    ports.release(second)
