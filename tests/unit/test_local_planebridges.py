"""Where nodes of a hosted control plane are led, without a kernel."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tenantry.local.paths import ClusterPaths
from tenantry.local.real import network, planebridges


class Kernel:
    """What the commands of nft(8) leave in the set and the map of one bridge."""

    def __init__(self) -> None:
        self.servers: set[int] = set()
        self.of_any: dict[int, int] = {}

    def run(self, *_: str, text: str = "") -> str:
        """Obey commands as nft(8) does, which refuses an element of a map that has another value."""
        for line in text.splitlines():
            numbers = [int(each) for each in re.findall(r"\d+", line.partition("{")[2])]
            if line.startswith("flush map"):
                self.of_any.clear()
            elif " servers " in line:
                (self.servers.add if line.startswith("add") else self.servers.discard)(numbers[0])
            else:
                assert self.of_any.get(numbers[0], numbers[1]) == numbers[1]
                self.of_any[numbers[0]] = numbers[1]
        return ""


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Kernel:
    """A bridge with the folder `tmp_path`."""
    found = Kernel()

    def is_laid(_: str) -> bool:
        return True

    monkeypatch.setattr(network, "_run", found.run)
    monkeypatch.setattr(network, "is_laid", is_laid)
    (tmp_path / "bridge.json").write_text('{"block": 113}')
    return found


def test_nodes_keep_their_port_when_the_number_of_processes_changes(kernel: Kernel, tmp_path: Path) -> None:
    """Only the ports that lead there are open, before, meanwhile and afterwards."""
    for of_any, servers, led in ((0, {7001}, {}), (7002, {7001, 7002}, {7001: 7002}), (0, {7001}, {})):
        for _ in range(2):
            found = planebridges.admit(tmp_path, 7001, of_any)
            assert found is not None
            assert (found.port, found.of_any) == (7001, of_any)
            assert (kernel.servers, kernel.of_any) == (servers, led)


def test_a_bridge_that_is_laid_again_leads_to_the_same_port(
    kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "hosted" / "uid"
    folder.mkdir(parents=True)
    (folder / "bridge.json").write_text('{"block": 113, "port": 7001, "ofAny": 7002}')

    def lay(_: str, port: int, *__: object) -> int:
        kernel.servers = {port}
        kernel.of_any = {}
        return 114

    monkeypatch.setattr(network, "lay", lay)
    planebridges.lay_again(ClusterPaths(tmp_path))
    assert (kernel.servers, kernel.of_any) == ({7001, 7002}, {7001: 7002})
    found = planebridges.find(folder)
    assert found is not None
    assert (found.block, found.of_any) == (114, 7002)
