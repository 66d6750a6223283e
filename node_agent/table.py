"""A report as a table for people: what ``tangram-agent --once`` prints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from node_agent.report import Device, Report

_HEADINGS = ("IDX", "UUID", "PRODUCT", "KIND", "MEMORY MIB", "FREE MIB", "FOREIGN", "LOAD", "TEMP", "HEALTH")


def render(report: Report) -> str:
    """Return the report as lines of text, without a newline at the end."""
    heading = f"node {report.node}: {report.state}" + (f" ({report.message})" if report.message else "")
    versions = f"driver {report.driver or 'unknown'}, CUDA {report.cuda or 'unknown'}, {len(report.devices)} devices"
    if not report.devices:
        return f"{heading}\n{versions}"
    profiles = [line for device in report.devices for line in _profiles(device)]
    return "\n".join([heading, versions, *_columns([_HEADINGS, *map(_row, report.devices)]), *profiles])


def _profiles(device: Device) -> Iterable[str]:
    """Yield what instances a split device can have, one line a profile."""
    for each in device.mig_profiles:
        places = ", ".join(f"{start}:{size}" for start, size in each.placements)
        where = f", at {places}" if places else ""
        size = f"{each.max_count} x {each.profile} ({each.sm_count} SMs, {each.total_mib} MiB)"
        yield f"{_known(device.index)} can have {size}{where}"


def _row(device: Device) -> tuple[str, ...]:
    schedulable_mib = device.total_mib - device.reserved_mib
    return (
        _known(device.index),
        device.uuid,
        device.name,
        _kind(device),
        str(schedulable_mib),
        "-" if device.used_mib is None else str(max(0, schedulable_mib - device.used_mib)),
        str(device.foreign_mib),
        "-" if device.utilisation is None else f"{device.utilisation:.0%}",
        _known(device.temperature_celsius),
        device.health + (f" ({device.fault})" if device.fault else ""),
    )


def _kind(device: Device) -> str:
    if device.mig is not None:
        return f"mig {device.mig.profile}"
    if device.mig_enabled:
        return "split"
    return device.mode if device.owner == "tangram" else device.owner


def _known(value: int | None) -> str:
    return "-" if value is None else str(value)


def _columns(rows: Sequence[Sequence[str]]) -> Iterable[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
