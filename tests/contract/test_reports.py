"""Agents and extenders one version apart: reports and answers of each version are kept as files and never edited.

With a new ``SCHEMA_VERSION`` its own files are added and those of the one before stay, so that what is on the wire of a
cluster in the middle of a roll-out is read here by today's code.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from extender.errors import InvalidReport
from extender.intake import NEWEST, OLDEST, read_report
from node_agent.report import (
    SCHEMA_VERSION,
    Answer,
    Booking,
    Device,
    Health,
    Mig,
    Mode,
    NodeState,
    PluginResource,
    Report,
    Usage,
)
from tests.support.builders import device, pod
from tests.support.harness import harness

GOLDEN = Path(__file__).parent / "golden"
A100, LOST = "GPU-6f1c2f0e-58a1-4c4b-9c0e-1f3f5b7a9d21", "GPU-0b7d9a44-7c1e-4f0a-8a35-52f8c1d3e6b0"

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def golden(name: str) -> bytes:
    return (GOLDEN / f"{name}.json").read_bytes()


@pytest.mark.parametrize("version", range(OLDEST, SCHEMA_VERSION + 1))
def test_files_of_this_version_and_the_one_before_are_kept(version: int) -> None:
    assert read_report(golden(f"report-v{version}")).version == version
    assert read_report(golden(f"report-v{version}-least")).version == version
    assert msgspec.json.decode(golden(f"report-answer-v{version}"), type=Answer).bookings


def test_no_field_of_an_earlier_version_was_renamed_or_dropped() -> None:
    """What is unknown is skipped without a word, so a field that got another name would be lost without one."""
    kept = msgspec.json.decode(golden("report-v1"))
    for schema, written in (
        (Report, [kept]),
        (Device, kept["devices"]),
        (Mig, [each["mig"] for each in kept["devices"] if "mig" in each]),
        (PluginResource, kept["plugin"]),
        (Usage, kept["usage"]),
        (Booking, msgspec.json.decode(golden("report-answer-v1"))["bookings"]),
        (Answer, [msgspec.json.decode(golden("report-answer-v1"))]),
    ):
        fields = {field.encode_name for field in msgspec.structs.fields(schema)}
        assert {key for each in written for key in each} <= fields, schema.__name__


def test_report_of_version_one_is_read_as_it_was_meant() -> None:
    report = read_report(golden("report-v1"))
    first, second, instance = report.devices
    assert (report.state, report.driver, report.bookings_generation) == (
        NodeState.DEGRADED,
        "570.86.15",
        1764561600000042,
    )
    assert (first.uuid, first.total_mib, first.reserved_mib, first.foreign_mib) == (A100, 81920, 591, 512)
    assert (first.mode, first.mode_ready, first.utilisation) == (Mode.MPS, False, 0.37)
    assert (second.uuid, second.health) == (LOST, Health.OUT)
    assert instance.mig is not None
    assert (instance.mig.profile, instance.sm_milli) == ("1g.10gb", 129)
    assert (report.plugin[0].replicas, report.usage[0].memory_mib) == (8, 19968)


def test_newer_agent_is_understood_as_far_as_its_report_is_known() -> None:
    older, newer = read_report(golden("report-v1")), read_report(golden("report-v2-as-known-to-v1"))
    assert newer.version == 2
    assert msgspec.structs.replace(newer, version=1) == older


def test_newer_extender_is_understood_as_far_as_its_answer_is_known() -> None:
    older = msgspec.json.decode(golden("report-answer-v1"), type=Answer)
    newer = msgspec.json.decode(golden("report-answer-v2-as-known-to-v1"), type=Answer)
    assert newer == older
    assert older.cordoned == (LOST,)


@pytest.mark.parametrize("version", [OLDEST - 1, NEWEST + 1])
def test_two_versions_apart_is_refused_with_what_is_valid(version: int) -> None:
    body = msgspec.json.encode({**msgspec.json.decode(golden("report-v1")), "version": version})
    with pytest.raises(InvalidReport, match=rf"version: found {version}, valid is {OLDEST} to {NEWEST}"):
        read_report(body)


@pytest.mark.parametrize("name", ["report-v1", "report-v2-as-known-to-v1"])
async def test_pods_are_placed_by_the_report_of_a_neighbouring_version(name: str) -> None:
    bench = harness({"gpu-a": [device("GPU-before")]})
    answer = await bench.report(msgspec.json.encode({**msgspec.json.decode(golden(name)), "sequence": 10**6}))
    assert answer.status_code == 200
    assert await bench.run(pod("p", gpu_memory=8192), ["gpu-a"]) == ""  # MPS of the file is not ready, one is out.
    ready = msgspec.json.decode(golden(name))
    ready["devices"][0].update(mode="time-slicing", mode_ready=True)
    assert (await bench.report(msgspec.json.encode({**ready, "sequence": 10**6 + 1}))).status_code == 200
    assert await bench.run(pod("q", gpu_memory=8192), ["gpu-a"]) == "gpu-a"
