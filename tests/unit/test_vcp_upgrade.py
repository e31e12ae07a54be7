"""Upgrades of control planes: the operator's controller, without processes (H01, X11)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.errors import StoreError
from tenantry.api.virtualcontrolplane import PlanePhase
from tenantry.controllers.virtualcontrolplane import upgrade
from tenantry.hosting import snapshots
from tenantry.hosting.snapshots import NoSnapshotPlace
from tenantry.hosting.versions import HostedVersion
from testkit.upgradeworld import KNOWN, Workshop
from testkit.worldclient import Crash


def started(version: str = "1.35") -> Workshop:
    """Return a control plane of a version, which runs."""
    shop = Workshop(version)
    shop.settle()
    shop.sleep()
    shop.wake()
    shop.settle()
    return shop


def problem(shop: Workshop) -> str:
    """Return why a control plane has not the version of its spec; "" if it has."""
    found = upgrade.decide(shop.get(), KNOWN, shop.cluster.clock.now()).problem
    return found.message if found is not None else ""


def test_a_new_one_has_the_default_version_and_keeps_it() -> None:
    """H01: a Tenantry with a later default upgrades nothing by itself."""
    shop = Workshop()
    assert shop.settle()["version"] == "1.36.3"
    later = HostedVersion(name="1.37", kubernetes="1.37.0", is_default=True)
    shop.forge.known = (KNOWN[1], HostedVersion(name="1.36", kubernetes="1.36.3"), later)
    shop.restart()
    assert shop.settle()["version"] == "1.36.3"
    assert shop.forge.starts == ["1.36.3"]


def test_one_of_an_earlier_tenantry_has_the_default_version() -> None:
    """H01: no other one existed, and none was recorded."""
    shop = Workshop("1.35")
    shop.sleep()
    shop.wake()
    shop.settle()
    assert shop.forge.starts == ["1.36.3"]
    assert shop.status()["version"] == "1.36.3"
    assert "spec.version: Kubernetes 1.35.4 does not read objects of 1.36.3" in problem(shop)


@pytest.mark.parametrize("version", ["1.34", "1.37"])
def test_an_unknown_version_lists_those_that_there_are(version: str) -> None:
    """H01: before the first start, it does not start; later, it runs on."""
    shop = Workshop(version)
    shop.forge.known = KNOWN[1:]
    shop.settle()
    reason, message = shop.told()
    assert reason == reasons.INVALID_SPEC
    assert message.endswith("choose 1.35, 1.36")
    assert shop.forge.starts == []
    shop.change("1.35")
    shop.settle()
    assert shop.forge.starts == ["1.35.4"]


def test_an_upgrade_takes_a_snapshot_of_the_process_that_has_ended() -> None:
    """X11: then the new version starts on the same objects."""
    shop = started()
    shop.change("1.36")
    found = shop.settle()
    assert (found["version"], found["phase"]) == ("1.36.3", PlanePhase.UPGRADING)
    assert shop.forge.starts[-2:] == ["1.35.4", "1.36.3"]
    last = found["lastUpgrade"]
    assert (last["before"], last["after"]) == ("1.35.4", "1.36.3")
    assert last["snapshot"].endswith("-before-1.36.3.snapshot")
    assert [each["name"] for each in found["snapshots"]] == [last["snapshot"]]
    reason, message = shop.told()
    assert reason == reasons.UPGRADE_FAILED
    assert f"tenantry vcp restore web -n acme --from {last['snapshot']} --version 1.35" in message
    shop.restart()
    assert shop.settle()["lastUpgrade"] == last


def test_minor_versions_are_not_skipped() -> None:
    """X11: the API server refuses it, too; the process runs on."""
    shop = started("1.34")
    shop.change("1.36")
    shop.settle()
    assert "one minor version at a time: choose 1.35 first" in problem(shop)
    assert shop.forge.runs == "1.34.9"
    for version in ("1.35", "1.36"):
        shop.change(version)
        shop.settle()
    assert shop.forge.starts[-2:] == ["1.35.4", "1.36.3"]


def test_without_a_snapshot_the_version_stays_and_later_the_upgrade_goes_on() -> None:
    """X11: a full disk ends no control plane."""
    shop = started()
    shop.forge.trouble = "the disk is full"
    shop.change("1.36")
    found = shop.settle()
    assert (found["version"], shop.forge.runs) == ("1.35.4", "1.35.4")
    assert found["lastUpgrade"]["message"] == "the disk is full"
    shop.forge.trouble = ""
    assert shop.settle()["version"] == "1.35.4"
    assert shop.settle(2 * upgrade.AGAIN_SECONDS)["version"] == "1.36.3"


def test_without_a_place_for_the_snapshot_the_process_runs_on() -> None:
    """X11: what an owner has not configured, or a store that is away, ends no process, however often it is tried."""
    shop = started()
    shop.forge.place_trouble = NoSnapshotPlace("set spec.snapshots.destination")
    ends = shop.forge.ends
    shop.change("1.36")
    found = shop.settle(2 * upgrade.AGAIN_SECONDS)
    assert (found["version"], shop.forge.runs, shop.forge.ends) == ("1.35.4", "1.35.4", ends)
    assert "set spec.snapshots.destination" in problem(shop)
    shop.forge.place_trouble = None
    assert shop.settle(2 * upgrade.AGAIN_SECONDS)["version"] == "1.36.3"


NEXT_PATCH = (*KNOWN[:2], HostedVersion(name="1.36", kubernetes="1.36.4", is_default=True))


@pytest.mark.parametrize("is_asleep", [False, True])
def test_a_patch_release_needs_no_snapshot_if_it_has_no_place(*, is_asleep: bool) -> None:
    """X11: the datastore is kept by others; otherwise, a new Tenantry would end all such control planes."""
    shop = started("1.36")
    if is_asleep:
        shop.sleep()
    shop.forge.known = NEXT_PATCH
    shop.forge.place_trouble = NoSnapshotPlace("set spec.snapshots.destination")
    shop.restart()
    found = shop.settle()
    if is_asleep:
        assert (found["phase"], found["version"]) == (PlanePhase.ASLEEP, "1.36.3")
        shop.wake()
        found = shop.settle()
    assert (found["version"], shop.forge.runs) == ("1.36.4", "1.36.4")
    assert shop.forge.kept_files == {}
    assert (found["lastUpgrade"]["before"], found["lastUpgrade"]["after"]) == ("1.36.3", "1.36.4")
    assert found["lastUpgrade"].get("snapshot", "") == ""


def test_a_patch_release_waits_for_a_store_that_is_away_and_the_process_runs_on() -> None:
    """X11: its owner chose to have a snapshot; the message says what does not work meanwhile."""
    shop = started("1.36")
    shop.forge.known = NEXT_PATCH
    shop.forge.place_trouble = StoreError("the store does not answer", is_passing=True)
    shop.restart()
    ends = shop.forge.ends
    found = shop.settle()
    assert (found["version"], shop.forge.runs, shop.forge.ends) == ("1.36.3", "1.36.3", ends)
    assert shop.told()[1].endswith("its pods are not mirrored until then")
    shop.forge.place_trouble = None
    assert shop.settle(2 * upgrade.AGAIN_SECONDS)["version"] == "1.36.4"


def test_a_program_that_is_not_built_ends_nothing() -> None:
    """H01: the process of the version before runs until there is one."""
    shop = started()
    shop.forge.missing.add("1.36")
    shop.change("1.36")
    shop.settle()
    assert shop.forge.runs == "1.35.4"
    assert shop.forge.kept_files == {}
    shop.forge.missing.clear()
    assert shop.settle()["version"] == "1.36.3"


def test_one_that_sleeps_takes_the_snapshot_asleep_and_switches_when_it_wakes() -> None:
    """H01: an upgrade of many wakes none."""
    shop = started()
    shop.sleep()
    shop.change("1.36")
    found = shop.settle()
    assert (found["phase"], found["version"], found.get("wakes")) == (PlanePhase.ASLEEP, "1.35.4", 1)
    assert found["lastUpgrade"]["snapshot"] in shop.told()[1]
    shop.restart()
    assert shop.settle()["phase"] == PlanePhase.ASLEEP
    assert len(shop.forge.kept_files) == 1
    shop.wake()
    assert shop.settle()["version"] == "1.36.3"
    assert shop.forge.starts[-1] == "1.36.3"
    assert len(shop.forge.kept_files) == 1


def test_a_snapshot_of_before_a_change_of_mind_is_not_used() -> None:
    """X11: the version before has run since, and has written."""
    shop = started()
    shop.sleep()
    shop.change("1.36")
    shop.settle()
    shop.change("1.35")
    shop.settle()
    assert shop.forge.runs == "1.35.4"
    shop.change("1.36")
    assert shop.settle()["version"] == "1.36.3"
    assert len(shop.forge.kept_files) == 2


def test_a_restore_with_the_version_leads_back() -> None:
    """X11: with the snapshot of the upgrade; a later one is refused, and the process of its version runs on."""
    shop = started()
    shop.change("1.36")
    snapshot = shop.settle()["lastUpgrade"]["snapshot"]
    shop.complete()
    later = "20270101T000000Z-9.snapshot"
    read = snapshots.read(later, 1)
    assert read is not None
    shop.forge.kept_files[later] = (read, "1.36.3", 0)
    shop.change("1.35", restore=later)
    found = shop.settle()
    assert found["version"] == "1.36.3"
    assert "is of Kubernetes 1.36.3" in found["lastRestore"]["message"]
    assert shop.forge.runs == "1.36.3"
    shop.change("1.35", restore=snapshot)
    found = shop.settle()
    assert (found["version"], shop.forge.runs) == ("1.35.4", "1.35.4")
    assert not found["lastUpgrade"].get("after")
    shop.change("1.36")
    assert shop.settle()["version"] == "1.36.3"


def soaking(seconds: int = 3600) -> Workshop:
    """Return a control plane whose next version behaves as the one before, and is ready."""
    shop = started()
    shop.soak(seconds)
    shop.change("1.36")
    shop.settle()
    shop.complete()
    return shop


def test_the_next_version_behaves_as_the_one_before_until_it_has_soaked() -> None:
    """H04: its objects are those of before; then the same program starts without the emulation."""
    shop = soaking()
    found = shop.settle()
    assert (found["version"], found["lastUpgrade"]["soaks"]) == ("1.35.4", True)
    assert (shop.forge.runs, shop.forge.emulates, shop.forge.objects) == ("1.36.3", "1.35", "1.35.4")
    shop.soak(1)
    found = shop.settle()
    assert (found["version"], found["lastUpgrade"].get("soaks", False)) == ("1.36.3", False)
    assert (shop.forge.runs, shop.forge.emulates, shop.forge.objects) == ("1.36.3", "", "1.36.3")


def test_an_upgrade_that_soaks_is_aborted_with_all_objects() -> None:
    """H04: spec.version of before; no snapshot is restored, and a later upgrade begins anew."""
    shop = soaking()
    shop.change("1.35")
    found = shop.settle()
    assert (found["version"], shop.forge.runs, shop.forge.emulates) == ("1.35.4", "1.35.4", "")
    assert "was aborted" in found["lastUpgrade"]["message"]
    assert "lastRestore" not in found
    shop.change("1.36")
    found = shop.settle()
    assert (found["lastUpgrade"]["soaks"], shop.forge.emulates) == (True, "1.35")
    assert len(shop.forge.kept_files) == 2


def test_a_patch_release_does_not_soak() -> None:
    """H04: it behaves as the one before anyway."""
    shop = started()
    shop.soak(3600)
    shop.forge.known = tuple(
        replace(each, kubernetes="1.35.9") if each.name == "1.35" else each for each in shop.forge.known
    )
    assert shop.settle()["version"] == "1.35.9"
    assert shop.forge.emulates == ""


def test_a_crash_at_any_write_is_gone_on_from() -> None:
    """X11: between the end of the process, the snapshot and the start."""
    for count in range(8):
        shop = started()
        left = iter(["none"] * count + ["crash"])
        shop.fault = lambda left=left: next(left, "none")
        shop.change("1.36")
        try:
            shop.settle()
        except Crash:
            shop.restart()
        shop.fault = lambda: "none"
        assert shop.settle()["version"] == "1.36.3"
        assert shop.forge.starts[-1] == "1.36.3"


def test_snapshots_of_upgrades_are_not_counted_and_bounded() -> None:
    """VCP-38: an owner who goes to and fro does not fill the disk."""
    names = [
        f"2026010{day}T000000Z-{day}{upgrade}.snapshot"
        for day, upgrade in enumerate(["", "-before-1.35.4", "", "-before-1.36.3", "-before-1.36.4", ""], start=1)
    ]
    kept = [each for name in names if (each := snapshots.read(name, 1)) is not None]
    assert len(kept) == len(names)
    assert snapshots.superfluous(kept, 2) == [names[0], names[1]]
    assert snapshots.superfluous(kept, 5) == [names[1]]
    assert snapshots.superfluous(kept[:2], 5) == []
    assert [snapshots.check_name(name) for name in names] == names


def test_a_refused_snapshot_names_the_version_that_reads_it() -> None:
    """H02: the one that it is of, not that of the program; a person may choose it, so all that there are follow."""
    said = snapshots.too_late("v1.36.3", "1.35.4")
    assert said.endswith("restore it into a control plane of v1.36.3 or a later version")
    assert snapshots.failure(f"hosted: {said}\n", ["1.35", "1.36"]) == f"{said}; versions here are 1.35, 1.36"
    assert snapshots.failure("hosted: the disk is full\n", ["1.35", "1.36"]) == "the disk is full"
