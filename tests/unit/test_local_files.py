"""Files, locks and processes of local clusters."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tenantry.api.errors import InputError, LocalError
from tenantry.local import files, folders, paths, process
from tenantry.local.locks import FileLock, is_held
from tenantry.local.paths import ClusterPaths


@pytest.mark.parametrize("name", ["a", "a-1", "0", "a" * 63])
def test_names_of_clusters(name: str) -> None:
    assert paths.check_name(name) == name


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a.b", "a/b", "..", "a" * 64, "a\n"])
def test_bad_names_of_clusters(name: str) -> None:
    with pytest.raises(InputError, match="DNS label"):
        paths.check_name(name)


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    file = tmp_path / "a"
    files.write_private(file, b"one")
    files.write_private(file, b"two")
    assert file.read_bytes() == b"two"
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [file]


def test_a_file_that_is_not_written_to_its_end_leaves_nothing(tmp_path: Path) -> None:
    file = tmp_path / "a"

    def fill() -> None:
        with files.private_file(file, replaces=False) as part:
            part.write(b"one")
            raise OSError(errno.ENOSPC, "full")

    with pytest.raises(OSError, match="full"):
        fill()
    assert list(tmp_path.iterdir()) == []
    with files.private_file(file, replaces=False) as whole:
        whole.write(b"two")
        assert not file.exists()
        (temporary,) = tmp_path.iterdir()
        assert temporary.stat().st_mode & 0o777 == 0o600
    assert file.read_bytes() == b"two"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("target", ["file", "link"])
def test_an_existing_file_is_kept(tmp_path: Path, target: str) -> None:
    """A link that leads nowhere is one."""
    file = tmp_path / "a"
    if target == "file":
        file.write_bytes(b"old")
    else:
        file.symlink_to(tmp_path / "b")
    with pytest.raises(FileExistsError), files.private_file(file, replaces=False) as part:
        part.write(b"new")
    assert list(tmp_path.iterdir()) == [file]
    assert file.is_symlink() or file.read_bytes() == b"old"


@pytest.mark.parametrize(
    ("number", "words"),
    [(errno.ENOSPC, "is full"), (errno.EROFS, "cannot be written"), (errno.EACCES, "--data"), (errno.EIO, "error")],
)
def test_errors_of_the_system_say_what_to_do(number: int, words: str) -> None:
    assert words in str(files.explain(OSError(number, os.strerror(number)), Path("/x")))


def test_too_little_room_is_an_error_with_both_numbers(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match=r"MiB free and 1000000000 MiB are needed"):
        files.check_space(tmp_path, 10**9)


@pytest.mark.parametrize(("lines", "found"), [(0, []), (1, ["c"]), (2, ["b", "c"]), (9, ["a", "b", "c"])])
def test_the_end_of_a_log(tmp_path: Path, lines: int, found: list[str]) -> None:
    (tmp_path / "log").write_text("a\nb\nc\n")
    assert files.tail(tmp_path / "log", lines) == found
    assert files.tail(tmp_path / "none", lines) == []


def test_a_lock_is_seen_without_being_taken(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    assert not is_held(file)
    first, second = FileLock(file), FileLock(file)
    assert first.try_acquire()
    assert is_held(file)
    assert not second.try_acquire()
    first.release()
    assert not is_held(file)
    assert second.try_acquire()
    second.release()


def test_a_lock_goes_with_the_process_that_inherited_it(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock")
    assert lock.try_acquire()
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(lock.descriptor,)
    ) as heir:
        lock.release()
        assert is_held(lock.path)
        heir.kill()
        heir.wait()
        assert not is_held(lock.path)


def test_a_pid_alone_is_not_enough_to_be_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        ticks = process.start_ticks(child.pid)
        assert process.is_same(child.pid, ticks)
        assert not process.kill_if_same(child.pid, ticks + 1)
        assert child.poll() is None
        assert process.kill_if_same(child.pid, ticks)
        assert child.wait() == -signal.SIGKILL
    assert not process.is_same(child.pid, ticks)
    assert not process.kill_if_same(0, 0)


def test_data_elsewhere_is_found_by_the_name(tmp_path: Path) -> None:
    usual, data = ClusterPaths(tmp_path / "home" / "clusters" / "a"), tmp_path / "disk" / "a"
    folders.prepare(usual, "a", data)
    assert usual.folder.resolve() == data
    folders.prepare(usual, "a", None)
    folders.prepare(usual, "a", data)
    assert data.stat().st_mode & 0o777 == 0o700
    with pytest.raises(InputError, match="already"):
        folders.prepare(usual, "a", tmp_path / "other")


def test_data_in_a_used_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").touch()
    with pytest.raises(InputError, match="must be an empty folder"):
        folders.prepare(ClusterPaths(tmp_path / "home" / "a"), "a", tmp_path)


def test_data_that_is_gone_is_named(tmp_path: Path) -> None:
    usual, data = ClusterPaths(tmp_path / "home" / "clusters" / "a"), tmp_path / "disk"
    folders.prepare(usual, "a", data)
    data.rename(tmp_path / "unplugged")
    with pytest.raises(LocalError, match="disk"):
        folders.prepare(usual, "a", None)
