"""What each GPU of a node does."""

from __future__ import annotations

from scripts.dashboards.panels import (
    ANY_IS_BAD,
    ANY_IS_ODD,
    RED,
    WHOLE,
    YELLOW,
    Dashboard,
    Threshold,
    Unit,
    Variable,
    lines,
    stat,
    table,
)

NODE_NAME = Variable("node", "node", "tangram_gpu_info")
_OF_NODE = '{node=~"$node"}'
_GPU = "{{node}} GPU {{gpu_index}} {{mig_profile}}"
_HOT = (Threshold(80, YELLOW), Threshold(85, RED))
NODE = Dashboard(
    "tangram-node",
    "Tangram / Node",
    "What each GPU of a node does, as its agent reads it.",
    (
        (
            "At a glance",
            (
                stat("Devices", f"sum(tangram:gpu_count:by_node{_OF_NODE})", "GPUs and MIG instances"),
                stat(
                    "Not healthy",
                    'sum(tangram_gpu_health{node=~"$node", state!="healthy"})',
                    "Devices in any other state",
                    thresholds=ANY_IS_ODD,
                ),
                stat("Power", f"sum(tangram_gpu_power_watts{_OF_NODE})", "Drawn by all GPUs", Unit.WATTS),
                stat(
                    "Hottest",
                    f"max(tangram_gpu_temperature_celsius{_OF_NODE})",
                    "The warmest GPU",
                    Unit.CELSIUS,
                    thresholds=_HOT,
                ),
                stat(
                    "Oldest sweep",
                    "max(tangram_agent_sample_age_seconds)",
                    "Age of the oldest reading of any agent",
                    Unit.SECONDS,
                    thresholds=(Threshold(60, YELLOW), Threshold(300, RED)),
                ),
                stat(
                    "XIDs in 10 min",
                    f"sum(tangram:gpu_xid_errors:new10m{_OF_NODE}) or vector(0)",
                    "Faults announced by the driver",
                    thresholds=ANY_IS_BAD,
                ),
            ),
        ),
        (
            "Load",
            (
                lines(
                    "Utilisation",
                    f"tangram_gpu_utilization_ratio{_OF_NODE}",
                    _GPU,
                    "Time with any kernel running; one SM is enough",
                    Unit.RATIO,
                    most=WHOLE,
                ),
                lines(
                    "Memory used",
                    f"tangram_gpu_memory_used_bytes{_OF_NODE}",
                    _GPU,
                    "Without what the driver keeps",
                    Unit.BYTES,
                ),
                lines(
                    "Memory used of total",
                    f"tangram_gpu_memory_used_bytes{_OF_NODE} / (tangram_gpu_memory_total_bytes{_OF_NODE} > 0)",
                    _GPU,
                    "Part of the device's memory that processes hold",
                    Unit.RATIO,
                    most=WHOLE,
                ),
                lines(
                    "Memory of nobody's pod",
                    f"tangram_gpu_memory_foreign_bytes{_OF_NODE} > 0",
                    _GPU,
                    "Held by processes that belong to no pod of Tangram",
                    Unit.BYTES,
                ),
                lines("Power", f"tangram_gpu_power_watts{_OF_NODE}", _GPU, "Drawn now", Unit.WATTS),
                lines(
                    "Temperature",
                    f"tangram_gpu_temperature_celsius{_OF_NODE}",
                    _GPU,
                    "Of the chip",
                    Unit.CELSIUS,
                    thresholds=_HOT,
                ),
                lines(
                    "Energy",
                    f"sum by (node) (rate(tangram_gpu_energy_joules_total{_OF_NODE}[5m]))",
                    "{{node}}",
                    "Mean power over five minutes, from the energy counters",
                    Unit.WATTS,
                ),
            ),
        ),
        (
            "Health",
            (
                table(
                    "States",
                    f"max by (node, gpu_index, mig_profile, state) (tangram_gpu_health{_OF_NODE}) == 1",
                    "The state each device is in",
                ),
                table(
                    "Nodes",
                    f"max by (node, state) (tangram_agent_node_state{_OF_NODE}) == 1",
                    "What the agent makes of its node as a whole",
                ),
                table(
                    "XIDs",
                    f"sum by (node, gpu_index, xid) (tangram_gpu_xid_errors_total{_OF_NODE}) > 0",
                    "Since the agent started; the runbook says what each asks for",
                    thresholds=ANY_IS_BAD,
                ),
                table(
                    "Last XID",
                    f"max by (node, gpu_index) (tangram_gpu_last_xid_timestamp_seconds{_OF_NODE}) * 1000",
                    "When the driver announced the last fault",
                    Unit.SINCE,
                ),
                lines(
                    "Sweeps",
                    "histogram_quantile(0.99, sum by (le) (rate(tangram_agent_sample_duration_seconds_bucket[5m])))",
                    "p99",
                    "Time to read all GPUs of a node; grows before a driver hangs",
                    Unit.SECONDS,
                    width=6,
                ),
                lines(
                    "Pushes",
                    "sum by (outcome) (rate(tangram_agent_pushes_total[5m]))",
                    "{{outcome}}",
                    "Reports to the extender",
                    Unit.PER_SECOND,
                    is_stacked=True,
                    width=6,
                ),
            ),
        ),
        (
            "What only some devices tell",
            (
                lines(
                    "SMs active",
                    f"tangram_gpu_sm_active_ratio{_OF_NODE}",
                    _GPU,
                    "Part of the SMs with a warp, from GPM (Hopper and newer)",
                    Unit.RATIO,
                    most=WHOLE,
                ),
                lines(
                    "ECC errors",
                    f"sum by (node, gpu_index, type) (increase(tangram_gpu_ecc_errors_total{_OF_NODE}[1h]))",
                    "{{node}} GPU {{gpu_index}} {{type}}",
                    "In the last hour; uncorrected ones spoil results",
                    thresholds=ANY_IS_ODD,
                ),
                lines(
                    "Clocks held down",
                    f"sum by (node, gpu_index, reason) (tangram_gpu_throttled{_OF_NODE})",
                    "{{node}} GPU {{gpu_index}} {{reason}}",
                    "1 while it lasts",
                    thresholds=ANY_IS_ODD,
                    most=WHOLE,
                ),
                lines(
                    "Recovery action",
                    f"max by (node, gpu_index) (tangram_gpu_recovery_action{_OF_NODE})",
                    "{{node}} GPU {{gpu_index}}",
                    "What the driver asks for: 1 GPU reset, 2 or 7 reboot, 3 or 4 drain, 5 IMEX, 6 bus reset",
                    thresholds=ANY_IS_ODD,
                ),
                lines(
                    "Memory repairs",
                    "max by (node, gpu_index)"
                    f" (tangram_gpu_row_remap_pending{_OF_NODE} or tangram_gpu_page_retirement_pending{_OF_NODE})",
                    "{{node}} GPU {{gpu_index}}",
                    "1 while bad memory waits for a reset",
                    thresholds=ANY_IS_ODD,
                    most=WHOLE,
                ),
                lines(
                    "Boards to replace",
                    f"max by (node, gpu_index) (tangram_gpu_row_remap_failed{_OF_NODE})",
                    "{{node}} GPU {{gpu_index}}",
                    "1 where a row of memory could not be remapped",
                    thresholds=ANY_IS_ODD,
                    most=WHOLE,
                ),
                lines(
                    "NVML errors",
                    "sum by (call, code) (rate(tangram_agent_nvml_errors_total[5m]))",
                    "{{call}} {{code}}",
                    "Calls to the driver that ended badly",
                    Unit.PER_SECOND,
                ),
            ),
        ),
    ),
    (NODE_NAME,),
)
