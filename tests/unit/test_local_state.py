"""What is read back of a local cluster's state, whatever happened to the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenantry.api.errors import LocalError
from tenantry.local.paths import ClusterPaths
from tenantry.local.spec import read_spec
from tenantry.local.state import ClusterState, ComponentState, Phase, ProcessExit, decode_state, read_state, write_state

STATE = ClusterState(
    name="a",
    boot_id="b",
    supervisor_pid=7,
    supervisor_ticks=9,
    phase=Phase.READY,
    components=(
        ComponentState(name="etcd", phase=Phase.READY, pid=8, start_ticks=10, port=20000),
        ComponentState(
            name="kwok",
            phase=Phase.BACK_OFF,
            restarts=2,
            last_exit=ProcessExit(at="now", signal="SIGKILL", lines=("x",)),
        ),
    ),
)


def test_a_written_state_is_read_back(tmp_path: Path) -> None:
    paths = ClusterPaths(tmp_path)
    write_state(paths, STATE)
    assert read_state(paths) == STATE
    assert paths.state.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("text", ["", "{", '{"name":"a"', "[]", '{"name": 3}', "\0\0\0"])
def test_a_broken_state_is_no_state(tmp_path: Path, text: str) -> None:
    paths = ClusterPaths(tmp_path)
    paths.state.write_text(text)
    assert read_state(paths) is None
    assert decode_state(text.encode()) is None


def test_a_missing_state_is_no_state(tmp_path: Path) -> None:
    assert read_state(ClusterPaths(tmp_path / "nowhere")) is None


def test_a_component_is_found_by_its_name() -> None:
    assert STATE.component("etcd") == STATE.components[0]
    assert STATE.component("operator") is None


@pytest.mark.parametrize(
    ("end", "text"),
    [
        (ProcessExit(at="", code=3), "exit code 3"),
        (ProcessExit(at="", code=0), "ended by itself without an error"),
        (ProcessExit(at="", signal="SIGSEGV"), "killed by SIGSEGV"),
    ],
)
def test_an_end_reads_as_a_phrase(end: ProcessExit, text: str) -> None:
    assert str(end) == text


def test_a_missing_spec_is_none_and_a_broken_one_says_what_to_do(tmp_path: Path) -> None:
    paths = ClusterPaths(tmp_path)
    assert read_spec(paths) is None
    paths.spec.write_text("{")
    with pytest.raises(LocalError, match="down --purge"):
        read_spec(paths)
