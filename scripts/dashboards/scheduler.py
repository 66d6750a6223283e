"""Whether decisions are made, how fast, on how fresh a state."""

from __future__ import annotations

from scripts.dashboards.panels import (
    ANY_IS_BAD,
    ANY_IS_ODD,
    RED,
    YELLOW,
    Dashboard,
    Panel,
    Query,
    Threshold,
    Unit,
    lines,
    stat,
)

SCHEDULER = Dashboard(
    "tangram-scheduler",
    "Tangram / Scheduler health",
    "Whether decisions are made, how fast, on how fresh a state.",
    (
        (
            "At a glance",
            (
                stat("Decisions", "sum(tangram:requests:rate5m)", "Answers to kube-scheduler", Unit.PER_SECOND),
                stat(
                    "Errors",
                    "max(tangram:request_errors:ratio5m)",
                    "Of the verb that fails most",
                    Unit.RATIO,
                    thresholds=(Threshold(0.01, YELLOW), Threshold(0.05, RED)),
                ),
                stat(
                    "Slowest verb",
                    "max(tangram:request_duration_seconds:p99)",
                    "99th percentile; kube-scheduler waits 5 s",
                    Unit.SECONDS,
                    thresholds=(Threshold(0.5, YELLOW), Threshold(2.5, RED)),
                ),
                stat(
                    "Bind conflicts",
                    "max(tangram:bind_conflicts:ratio10m)",
                    "Part of the binds that lost their place",
                    Unit.RATIO,
                    thresholds=(Threshold(0.05, YELLOW), Threshold(0.1, RED)),
                ),
                stat(
                    "In doubt",
                    'max(tangram_extender_holdings{phase="in_doubt"})',
                    "Binds whose outcome nobody knows yet",
                    thresholds=ANY_IS_ODD,
                ),
                stat(
                    "Stale nodes",
                    'sum(tangram:nodes:by_state{state=~"stale|unreported|conflicted"})',
                    "Nodes that take nothing new",
                    thresholds=ANY_IS_ODD,
                    link="tangram-node",
                ),
            ),
        ),
        (
            "Decisions",
            (
                lines(
                    "Calls",
                    "tangram:requests:rate5m",
                    "{{verb}} {{outcome}}",
                    "By how they were answered",
                    Unit.PER_SECOND,
                    is_stacked=True,
                ),
                Panel(
                    "Time to answer",
                    (
                        Query("tangram:request_duration_seconds:p50", "{{verb}} p50"),
                        Query("tangram:request_duration_seconds:p99", "{{verb}} p99"),
                    ),
                    "Without the transport; the scheduler gives up after 5 s",
                    Unit.SECONDS,
                    thresholds=(Threshold(2.5, RED),),
                ),
                lines(
                    "By policy",
                    'sum by (policy, outcome) (rate(tangram_extender_decisions_total{verb="bind"}[5m]))',
                    "{{policy}} {{outcome}}",
                    "Binds by the policy that chose the device",
                    Unit.PER_SECOND,
                    is_stacked=True,
                ),
                lines(
                    "Nodes refused",
                    "sum by (reason) (rate(tangram_extender_filter_rejections_total[5m]))",
                    "{{reason}}",
                    "By filter, for which reason",
                    Unit.PER_SECOND,
                    is_stacked=True,
                ),
                lines(
                    "Binds",
                    "sum by (outcome) (rate(tangram_extender_binds_total[5m]))",
                    "{{outcome}}",
                    "By how they ended",
                    Unit.PER_SECOND,
                    is_stacked=True,
                ),
                lines(
                    "Pods waiting",
                    "tangram:pods_waiting:by_reason",
                    "{{reason}}",
                    "By what stands in the way on most nodes",
                    is_stacked=True,
                ),
            ),
        ),
        (
            "State",
            (
                lines(
                    "Age of the state",
                    "max by (source) (tangram_extender_snapshot_age_seconds)",
                    "{{source}}",
                    "Time since each source was heard last",
                    Unit.SECONDS,
                    thresholds=(Threshold(180, RED),),
                ),
                lines("Nodes", "tangram:nodes:by_state", "{{state}}", "By what is known of them", is_stacked=True),
                lines(
                    "Contradictions",
                    "max by (kind) (tangram_extender_books_drift)",
                    "{{kind}}",
                    "Between books, pods and hardware; zero is well",
                    thresholds=ANY_IS_BAD,
                ),
                lines(
                    "Devices in trouble",
                    "max by (kind) (tangram_extender_devices_in_trouble)",
                    "{{kind}}",
                    "Devices that take no new pods, by cause",
                    is_stacked=True,
                ),
                lines(
                    "Holdings",
                    "max by (phase) (tangram_extender_holdings)",
                    "{{phase}}",
                    "Pods that hold something of a node",
                    is_stacked=True,
                ),
                lines(
                    "Reports",
                    "sum by (outcome) (rate(tangram_extender_reports_total[5m]))",
                    "{{outcome}}",
                    "From agents, by what became of them",
                    Unit.PER_SECOND,
                    is_stacked=True,
                ),
                lines(
                    "Watches",
                    "sum by (kind) (rate(tangram_extender_reflector_events_total[5m]))",
                    "{{kind}}",
                    "Objects set or deleted, as watches tell",
                    Unit.PER_SECOND,
                ),
                lines(
                    "Watches that broke",
                    "sum by (kind) (increase(tangram_extender_reflector_errors_total[1h]))",
                    "{{kind}}",
                    "In the last hour",
                    thresholds=(Threshold(20, YELLOW),),
                ),
                lines(
                    "Writes",
                    "sum by (outcome) (rate(tangram_extender_advertisements_total[5m]))",
                    "totals {{outcome}}",
                    "Totals of nodes, by outcome",
                    Unit.PER_SECOND,
                ),
            ),
        ),
    ),
)
