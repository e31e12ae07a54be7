"""Processes of hosted control planes that the supervisor stops and starts again when it reloads."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
from pathlib import Path

import msgspec

from tenantry.engine.tasks import cancelled_at_end
from tenantry.hosting import plane as hosting
from tenantry.hosting.plane import HostedPlane
from tenantry.local import pki
from tenantry.local.paths import ClusterPaths
from tenantry.local.spec import ClusterSpec, Ports, write_spec
from tenantry.local.supervisor import Supervisor

PORTS = Ports(
    etcd=20000, etcd_peer=20001, apiserver=20002, controller_manager=20003, scheduler=20004, kwok=20005, operator=20006
)
LEAVES = hosting.leaves(HostedPlane(uid="u", name="n", issuer="https://i.example", owner="owner:u"))


def supervisor(paths: ClusterPaths) -> Supervisor:
    """Return the supervisor of a cluster without control planes."""
    paths.logs.mkdir()
    pki.ensure(paths.pki, LEAVES, dt.datetime.now(dt.UTC))
    write_spec(paths, ClusterSpec(name="a", ports=PORTS, binaries="/bin/x"))
    return Supervisor(paths)


def add(paths: ClusterPaths, name: str, at_end: str) -> Path:
    """Add a control plane whose process does something at its end; it opens the returned pipe at its start."""
    folder = paths.folder / "hosted" / name
    pki.ensure(folder / "pki", LEAVES, dt.datetime.now(dt.UTC))
    up, program = folder / "up", folder / "program"
    os.mkfifo(up)
    program.write_text(f"#!/bin/sh\ntrap '{at_end}; exit' TERM\n: > {up}\nsleep 600 &\nwait\n")
    program.chmod(0o700)
    process = {"name": name, "program": str(program), "port": 20010, "internal": 20011}
    (folder / "process.json").write_bytes(msgspec.json.encode(process))
    return up


async def test_processes_that_go_end_at_once_and_one_that_is_wanted_again_starts_once(tmp_path: Path) -> None:
    """H01: control planes that fall asleep together do not wait for each other, nor does one that starts."""
    paths = ClusterPaths(tmp_path)
    running = supervisor(paths)
    meet = tmp_path / "meet"
    os.mkfifo(meet)
    # Each can open the pipe only with the other one: the first would be killed if the second ended after it.
    first = f"[ -e {tmp_path}/a.end ] || : < {meet}; : > {tmp_path}/a.end"
    ups = [add(paths, "a", first), add(paths, "b", f": > {meet}; : > {tmp_path}/b.end")]
    async with cancelled_at_end() as group:
        await running.reload(group)
        for up in ups:
            await asyncio.to_thread(up.read_bytes)
        files = [tmp_path / "hosted" / each / "process.json" for each in ("a", "b")]
        contents = [each.read_bytes() for each in files]
        for each in files:
            each.unlink()
        ending = group.create_task(running.reload(group))
        await asyncio.sleep(0)
        files[0].write_bytes(contents[0])
        await asyncio.gather(ending, running.reload(group), running.reload(group))
        assert (tmp_path / "a.end").exists()
        assert (tmp_path / "b.end").exists()
        assert [each for each in running.names if each.startswith("hosted@")] == ["hosted@a"]
        await asyncio.to_thread(ups[0].read_bytes)
        files[0].unlink()
        await running.reload(group)
