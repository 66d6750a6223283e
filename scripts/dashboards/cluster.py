"""What the cluster holds, what is left, in which pieces."""

from __future__ import annotations

from scripts.dashboards.panels import (
    ANY_IS_BAD,
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

PRODUCT = Variable("product", "product", "tangram_extender_gpu_devices")
_OF_PRODUCT = '{product=~"$product"}'
CLUSTER = Dashboard(
    "tangram-cluster",
    "Tangram / Cluster",
    "What the cluster's GPUs hold, what is left, and in which pieces.",
    (
        (
            "At a glance",
            (
                stat("Devices", "sum(tangram:gpu_devices:by_product)", "GPUs and MIG instances", link="tangram-node"),
                stat(
                    "Out of use",
                    'sum(tangram:gpu_devices:by_product{state="out"}) or vector(0)',
                    "Devices that take no new pods",
                    thresholds=ANY_IS_BAD,
                ),
                stat(
                    "Compute booked",
                    "tangram:gpu_compute_allocated_ratio:cluster",
                    "Of all devices' compute",
                    Unit.RATIO,
                    most=WHOLE,
                ),
                stat(
                    "Memory booked",
                    "sum(tangram:gpu_memory_allocated_bytes:by_product)"
                    " / sum(tangram:gpu_memory_total_bytes:by_product)",
                    "Of all devices' schedulable memory",
                    Unit.RATIO,
                    most=WHOLE,
                ),
                stat("Pods waiting", "sum(tangram:pods_waiting:by_reason) or vector(0)", "Pods without a node"),
                stat(
                    "Contradictions",
                    "sum(max by (kind) (tangram_extender_books_drift))",
                    "Between books, pods and hardware",
                    thresholds=ANY_IS_BAD,
                    link="tangram-scheduler",
                ),
            ),
        ),
        (
            "By product",
            (
                lines(
                    "Compute booked",
                    f"tangram:gpu_compute_allocated_ratio:by_product{_OF_PRODUCT}",
                    "{{product}}",
                    "Part of the devices' compute that pods booked",
                    Unit.RATIO,
                    most=WHOLE,
                ),
                lines(
                    "Memory booked",
                    f"tangram:gpu_memory_allocated_ratio:by_product{_OF_PRODUCT}",
                    "{{product}}",
                    "Part of the schedulable memory that pods booked",
                    Unit.RATIO,
                    most=WHOLE,
                ),
                lines(
                    "Fragmentation",
                    f"tangram:fragmentation_ratio:by_product{_OF_PRODUCT}",
                    "{{product}}",
                    "Part of the free compute that lies beside pods, where no whole-device pod can have it",
                    Unit.RATIO,
                    thresholds=(Threshold(0.7, YELLOW),),
                    most=WHOLE,
                ),
                lines(
                    "Stranded memory",
                    f"tangram:gpu_memory_stranded_bytes:by_product{_OF_PRODUCT}",
                    "{{product}}",
                    "Free memory whose device has no free compute",
                    Unit.BYTES,
                    is_stacked=True,
                ),
                lines(
                    "Foreign memory",
                    "sum by (product) ("
                    f"max by (node, product) (tangram_extender_gpu_memory_foreign_bytes{_OF_PRODUCT}))",
                    "{{product}}",
                    "Held by processes of no pod; Tangram offers that much less",
                    Unit.BYTES,
                    is_stacked=True,
                ),
                lines(
                    "Shares held",
                    f"max by (product) (tangram_extender_gpu_shared_pods{_OF_PRODUCT})",
                    "{{product}}",
                    "Shares of devices that pods hold",
                    is_stacked=True,
                ),
                lines(
                    "Devices",
                    f"tangram:gpu_devices:by_product{_OF_PRODUCT}",
                    "{{product}} {{state}}",
                    "By whether they take new pods",
                    is_stacked=True,
                    width=12,
                ),
                table(
                    "Shares on devices that are out",
                    f"max by (node, product) (tangram_extender_gpu_shares_on_out_devices{_OF_PRODUCT})",
                    "Pods there may hang or fail; empty is well",
                    thresholds=ANY_IS_BAD,
                ),
            ),
        ),
        (
            "Demand",
            (
                lines(
                    "Pods waiting",
                    "tangram:pods_waiting:by_reason",
                    "{{reason}}",
                    "By what stands in the way on most nodes",
                    is_stacked=True,
                    width=12,
                ),
                lines(
                    "GPU hours booked",
                    "max by (namespace) (increase(tangram_extender_gpu_hours_booked_total[1h]))",
                    "{{namespace}}",
                    "In the last hour, by namespace",
                    Unit.HOURS,
                    is_stacked=True,
                    width=6,
                    link="tangram-workload",
                ),
                lines(
                    "GPU hours idle",
                    "max by (namespace) (increase(tangram_extender_gpu_hours_idle_total[1h]))",
                    "{{namespace}}",
                    "Booked and not used in the last hour, by namespace",
                    Unit.HOURS,
                    is_stacked=True,
                    width=6,
                ),
            ),
        ),
    ),
    (PRODUCT,),
)
