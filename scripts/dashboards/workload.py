"""What pods booked beside what they use."""

from __future__ import annotations

from scripts.dashboards.panels import ANY_IS_ODD, RED, YELLOW, Dashboard, Threshold, Unit, Variable, lines, stat, table

NAMESPACE = Variable("namespace", "namespace", "tangram_booked_gpu_memory_bytes")
_OF_NAMESPACE = '{namespace=~"$namespace"}'
_POD = "{{namespace}}/{{pod}}"
WORKLOAD = Dashboard(
    "tangram-workload",
    "Tangram / Workload",
    "What pods booked beside what they use, and who leaves GPUs idle.",
    (
        (
            "At a glance",
            (
                stat(
                    "Pods on GPUs",
                    f"count(count by (namespace, pod) (tangram_booked_gpu_memory_bytes{_OF_NAMESPACE}))",
                    "Pods with a share",
                ),
                stat(
                    "Memory used of booked",
                    f"sum(tangram_process_gpu_memory_bytes{_OF_NAMESPACE})"
                    f" / sum(tangram_booked_gpu_memory_bytes{_OF_NAMESPACE})",
                    "Over all pods chosen",
                    Unit.RATIO,
                ),
                stat(
                    "SM time used of booked",
                    f"sum(tangram_process_gpu_sm_ratio{_OF_NAMESPACE})"
                    f" / (sum(tangram_booked_gpu_sm_ratio{_OF_NAMESPACE}) > 0)",
                    "Over all pods chosen",
                    Unit.RATIO,
                ),
                stat(
                    "Over their memory",
                    f"count(tangram_gpu_memory_overuse_bytes{_OF_NAMESPACE}) or vector(0)",
                    "Shares whose pod holds more than it booked",
                    thresholds=ANY_IS_ODD,
                ),
            ),
        ),
        (
            "Memory",
            (
                lines(
                    "Booked",
                    f"sum by (namespace, pod) (tangram_booked_gpu_memory_bytes{_OF_NAMESPACE})",
                    _POD,
                    "Memory that each pod booked",
                    Unit.BYTES,
                    is_stacked=True,
                ),
                lines(
                    "Used",
                    f"sum by (namespace, pod) (tangram_process_gpu_memory_bytes{_OF_NAMESPACE})",
                    _POD,
                    "Memory that each pod's processes hold",
                    Unit.BYTES,
                    is_stacked=True,
                ),
                lines(
                    "Used of booked",
                    f"sum by (namespace, pod) (tangram_process_gpu_memory_bytes{_OF_NAMESPACE})"
                    f" / sum by (namespace, pod) (tangram_booked_gpu_memory_bytes{_OF_NAMESPACE})",
                    _POD,
                    "Above 100 % a pod takes what is its neighbours'",
                    Unit.RATIO,
                    thresholds=(Threshold(1, RED),),
                ),
                table(
                    "Beyond the booking",
                    f"sum by (namespace, pod, node) (tangram_gpu_memory_overuse_bytes{_OF_NAMESPACE})",
                    "Empty is well",
                    Unit.BYTES,
                    thresholds=ANY_IS_ODD,
                ),
            ),
        ),
        (
            "Compute",
            (
                lines(
                    "Booked",
                    f"sum by (namespace, pod) (tangram_booked_gpu_sm_ratio{_OF_NAMESPACE})",
                    _POD,
                    "In whole devices",
                    is_stacked=True,
                ),
                lines(
                    "Used",
                    f"sum by (namespace, pod) (tangram_process_gpu_sm_ratio{_OF_NAMESPACE})",
                    _POD,
                    "SM time, in whole devices; absent where the driver does not tell",
                    is_stacked=True,
                ),
                lines(
                    "Beyond the booking",
                    f"sum by (namespace, pod) (tangram_gpu_sm_overuse_ratio{_OF_NAMESPACE})",
                    _POD,
                    "SM time that a pod takes from its neighbours; empty is well",
                    thresholds=(Threshold(0.1, YELLOW),),
                ),
                table(
                    "Least used in the last hour",
                    f"bottomk(20, tangram:pod_gpu_sm_ratio:max1h{_OF_NAMESPACE})",
                    "The most that each pod used at any moment of the last hour",
                    Unit.RATIO,
                ),
                lines(
                    "GPU hours booked",
                    f"max by (namespace) (increase(tangram_extender_gpu_hours_booked_total{_OF_NAMESPACE}[1h]))",
                    "{{namespace}}",
                    "In the last hour",
                    Unit.HOURS,
                    is_stacked=True,
                    width=6,
                ),
                lines(
                    "GPU hours idle",
                    f"max by (namespace) (increase(tangram_extender_gpu_hours_idle_total{_OF_NAMESPACE}[1h]))",
                    "{{namespace}}",
                    "Booked and not used in the last hour",
                    Unit.HOURS,
                    is_stacked=True,
                    width=6,
                ),
            ),
        ),
    ),
    (NAMESPACE,),
)
