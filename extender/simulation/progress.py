"""What the run says while it goes, and its one-line summary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from extender.simulation.audit import Finding
from extender.simulation.scheduler import Counts
from extender.simulation.verbs import Timings

_P99 = 0.99


@dataclass(slots=True)
class Story:
    """What was seen over the whole run; ``oversubscribed`` gathers every device that ever was."""

    nodes: int
    devices: int
    oversubscribed: set[str] = field(default_factory=set)
    unreadable: int = 0
    peak_share: float = 0.0
    finding: Finding | None = None

    def note(self, finding: Finding) -> None:
        """Take in one audit."""
        self.finding = finding
        self.oversubscribed |= finding.oversubscribed
        self.unreadable = max(self.unreadable, finding.unreadable)
        self.peak_share = max(self.peak_share, finding.compute_share)

    def line(self, elapsed_s: float, counts: Counts, waiting: int, timings: Timings) -> str:
        """Return one line of progress."""
        finding = self.finding
        share = finding.compute_share if finding is not None else 0.0
        holders = finding.holders if finding is not None else 0
        return (
            f"{elapsed_s:5.0f} s  {counts.bound} pods bound, {holders} on GPUs now, {waiting} waiting; "
            f"{share:.0%} of compute booked; filter {_ms(timings, 'filter')}, prioritize {_ms(timings, 'prioritize')}, "
            f"bind {_ms(timings, 'bind')} ms (p99)"
        )

    def summary(self, seconds: float, counts: Counts, waiting: int, timings: Timings, decisions: int) -> str:
        """Return the last line: one JSON object."""
        finding = self.finding
        content: dict[str, object] = {
            "nodes": self.nodes,
            "devices": self.devices,
            "seconds": round(seconds, 1),
            "pods_bound": counts.bound,
            "pods_waiting": waiting,
            "gpu_allocated_percent": _percent(finding.compute_share if finding else 0.0),
            "gpu_allocated_peak_percent": _percent(self.peak_share),
            "gpu_memory_allocated_percent": _percent(finding.memory_share if finding else 0.0),
            "oversubscribed_devices": len(self.oversubscribed),
            "unreadable_allocations": self.unreadable,
            **{f"{verb}_p99_ms": _rounded(timings.percentile(verb, _P99)) for verb in ("filter", "prioritize", "bind")},
            "bind_conflicts": counts.conflicts,
            "scheduler_errors": counts.errors,
            "decisions": decisions,
        }
        return msgspec.json.encode(content).decode()


def decisions_made(metrics: str) -> int:
    """Return how many calls of kube-scheduler the extender answered, from the text of its metrics."""
    lines = (line for line in metrics.splitlines() if line.startswith("tangram_extender_requests_total{"))
    return int(sum(float(line.rsplit(" ", 1)[1]) for line in lines))


def _percent(share: float) -> float:
    return round(share * 100, 1)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def _ms(timings: Timings, verb: str) -> str:
    value = timings.percentile(verb, _P99)
    return "-" if value is None else f"{value:.1f}"


def grouped(waiting: Mapping[str, str]) -> list[tuple[int, str]]:
    """Return how many pods wait for each reason, most first."""
    counts: dict[str, int] = {}
    for reason in waiting.values():
        counts[reason] = counts.get(reason, 0) + 1
    return sorted(((count, reason) for reason, count in counts.items()), reverse=True)
