"""Real nodes without a node: addresses, which nodes there are, and what is written for them."""

from __future__ import annotations

import ipaddress
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tenantry.api.errors import InputError, LocalError
from tenantry.local.real import fleet, limits, network, settings, shaping
from tenantry.local.real.settings import NodeSettings
from tenantry.local.spec import RealNode, RealNodes

NODE = NodeSettings(name="real-3", number=3, block=115, cluster="tnt01234567", memory_reserved_mib=2048)


def test_a_block_that_is_routed_is_not_chosen() -> None:
    """Addresses that this machine reaches elsewhere are never taken, the default route notwithstanding."""
    taken = [ipaddress.IPv4Network(text) for text in ("0.0.0.0/0", "10.112.0.0/16", "10.113.7.0/24", "192.0.2.0/24")]
    assert network.choose(None, taken) == 114
    assert network.choose(120, taken) == 120
    assert network.choose(113, taken) == 114
    with pytest.raises(LocalError, match="no range"):
        network.choose(None, [ipaddress.IPv4Network("10.0.0.0/8")])


def test_nodes_have_addresses_of_their_own() -> None:
    """Neither two nodes nor a node and the bridge share an address, and no range of pods holds a node."""
    addresses = network.NodeAddresses(115)
    numbers = range(1, network.MAX_NODES + 1)
    nodes = [ipaddress.IPv4Address(addresses.node(number)) for number in numbers]
    ranges = [ipaddress.IPv4Network(addresses.pods_of(number)) for number in numbers]
    assert len({*nodes, ipaddress.IPv4Address(addresses.bridge)}) == network.MAX_NODES + 1
    assert all(node in ipaddress.IPv4Network(addresses.nodes) for node in nodes)
    assert not any(node in each for node in nodes for each in ranges)
    assert len(set(ranges)) == network.MAX_NODES
    assert all(each.subnet_of(ipaddress.IPv4Network(addresses.pods)) for each in ranges)


def test_the_names_of_links_fit_the_kernel() -> None:
    """IFNAMSIZ is 16, the end included."""
    assert len(network.link(NODE.cluster, network.MAX_NODES)) <= 15


def test_a_node_gets_the_first_number_that_is_free() -> None:
    """Who is there keeps name and addresses."""
    one, three = RealNode(name="real-1", number=1), RealNode(name="real-3", number=3)
    assert fleet.new((one, three)).name == "real-2"
    assert [each.name for each in fleet.counted((one, three), 3)] == ["real-1", "real-3", "real-2"]
    assert fleet.counted((one, three), 1) == (one,)
    with pytest.raises(InputError, match="--nodes 51 must be from 0 to 50"):
        fleet.counted((), 51)


def test_an_unknown_node_is_named_with_the_known_ones() -> None:
    """E19: a name that is mistyped takes no node away."""
    real = RealNodes(block=112, binaries="/bin", memory_reserved_mib=0, nodes=(RealNode(name="real-1", number=1),))
    with pytest.raises(InputError, match='no real node "real-2"; there are real-1'):
        fleet.without(real, "real-2")
    assert fleet.without(real, "real-1").nodes == ()


def test_what_is_written_for_a_node_agrees() -> None:
    """Pods get addresses of the node's range, and the kubelet leaves other nodes their memory."""
    texts = settings.texts(NODE)
    bridge = json.loads(texts["cni/10-pods.conflist"])["plugins"][0]
    kubelet = json.loads(texts["kubelet.json"])
    assert bridge["ipam"]["ranges"] == [[{"subnet": "10.115.3.0/24"}]]
    assert kubelet["systemReserved"] == {"memory": "2048Mi"}
    assert kubelet["authentication"]["anonymous"] == {"enabled": False}
    assert settings.PAUSE in texts["containerd.toml"]


def test_the_limit_of_inotify_is_raised_and_never_lowered(tmp_path: Path) -> None:
    """Who has too few instances gets more and is told; who has more keeps them, unasked and untold."""
    file, told = tmp_path / "max_user_instances", list[str]()
    file.write_text("128\n")
    limits.raise_them(told.append, file)
    assert file.read_text() == "8192"
    assert told == ["raised fs.inotify.max_user_instances from 128 to 8192, because a kubelet without an instance ends"]
    file.write_text("99999\n")
    limits.raise_them(told.append, file)
    assert (file.read_text(), len(told)) == ("99999\n", 1)
    assert limits.lacking(file) == ""


def test_buckets_fit_the_rates_that_they_are_for() -> None:
    """E09: a tenth of a second's worth, so that a limit is one from the first second on; no limit stays none."""
    asked = {"IngressRate": 100_000_000, "IngressBurst": 2**32 - 1, "EgressRate": 10_000, "EgressBurst": 2**32 - 1}
    found = shaping.shaped({"type": "shaping", "runtimeConfig": {"bandwidth": asked, "ips": []}})
    limits = {
        "ingressRate": 100_000_000,
        "ingressBurst": 10_000_000,
        "egressRate": 10_000,
        "egressBurst": shaping.SMALLEST_BITS,
    }
    assert found == {"type": "shaping", "runtimeConfig": {"bandwidth": limits, "ips": []}}
    assert shaping.shaped({"type": "shaping"}) == {"type": "shaping"}


def test_the_plugin_runs_without_the_package(tmp_path: Path) -> None:
    """E09: it is a script on the node, which loads neither site-packages nor Tenantry."""
    bandwidth = tmp_path / "bandwidth"
    bandwidth.write_text("#!/bin/sh\ncat\n")
    bandwidth.chmod(0o700)
    configuration = {"type": "shaping", "runtimeConfig": {"bandwidth": {"ingressRate": 10_000_000}}}
    done = subprocess.run(
        [sys.executable, "-IS", str(shaping.__file__)],
        input=json.dumps(configuration),
        env={"CNI_PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == shaping.shaped(configuration)


def test_the_rules_of_the_bridge_turn_and_accept_one_set_of_ports_only() -> None:
    """E19: a hosted control plane joins the set; nothing else of the machine is reached from nodes."""
    rules = network.rules("tnt01234567", network.NodeAddresses(115), 20001)
    assert re.search(r"set servers \{\s+type inet_service\s+elements = \{ 20001 \}\s+\}", rules)
    ported = [line.strip() for line in rules.splitlines() if "dport" in line]
    assert ported == [
        'iifname "tnt01234567" ip daddr 10.115.128.1 meta l4proto tcp dnat to 127.0.0.1 : tcp dport map @ofany',
        'iifname "tnt01234567" ip daddr 10.115.128.1 tcp dport @servers dnat to 127.0.0.1',
        "ct status dnat tcp dport @servers accept",
    ]
    others = rules.partition("chain others")[2].partition("}")[0].split("\n")
    assert [line.strip() for line in others if line.strip()][-1] == "drop"


def test_a_bridge_has_no_ipv6_which_no_rule_filters(tmp_path: Path) -> None:
    setting = tmp_path / "tnt01234567" / "disable_ipv6"
    setting.parent.mkdir()
    setting.write_text("0")
    network.refuse_ipv6("tnt01234567", tmp_path)
    assert setting.read_text() == "1"
    # A kernel without IPv6 has no setting.
    network.refuse_ipv6("tnt2", tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["tnt01234567"]


def test_a_bridge_is_laid_without_ipv6_before_it_is_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    done: list[str] = []

    def run(*command: str, text: str | None = None) -> str:
        done.append(" ".join(command) + (text or ""))
        return ""

    def refuse(name: str) -> None:
        done.append(f"refuse {name}")

    def ignore(*_: object) -> None:
        """Leave the machine as it is."""

    monkeypatch.setattr(network, "remove", ignore)
    monkeypatch.setattr(network, "_routed", list[network.Network])
    monkeypatch.setattr(network, "refuse_ipv6", refuse)
    monkeypatch.setattr(network, "_run", run)
    monkeypatch.setattr(network.paths, "cache", lambda: tmp_path)
    monkeypatch.setattr(Path, "write_text", ignore)
    network.lay("tnt2", 0, None)
    assert done.index("refuse tnt2") < done.index("ip link set tnt2 up")
