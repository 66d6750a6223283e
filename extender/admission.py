"""The door: what is thought of a pod that is being created.

``mutate`` and ``validate`` judge by the same rules. Mutate refuses as well, because the API server's own checks of
amounts come before the validating webhooks and would hide our sentences; validate looks again after every other
webhook has had its say, and warns of what no node could hold.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from extender.admission_forecast import never_fits
from extender.admission_patches import managed_patch, preset_patch, rewrites, rows_patch, scheduler_patch
from extender.admission_review import Opinion, ReviewedPod
from extender.admission_settings import AdmissionSettings
from extender.admission_shapes import mentions_ours, reserved_annotations, shape_problems
from extender.annotations import GPU_POLICY, Wishes, read_wishes
from extender.podspec import parse_problems, pod_request
from extender.settings import Settings
from scoring.conditions import product_problems, unknown_preferences
from scoring.errors import InvalidRequest
from scoring.fleet import Fleet
from scoring.registry import Policy
from scoring.request import PodRequest


@dataclass(frozen=True, slots=True)
class Door:
    """Judges pods at admission.

    ``policies``  those that the configuration knows
    ``fleet``     returns what is known of nodes now
    ``rules``     what the operator decided
    ``prefix``    that of our resources and annotations, with its slash
    """

    rules: AdmissionSettings
    policies: Mapping[str, Policy]
    fleet: Callable[[], Fleet]
    prefix: str

    def mutate(self, pod: ReviewedPod, namespace: str) -> Opinion:
        """Return what is to be written into a pod, or why it is refused. ``namespace`` is that of the request."""
        problems = self._problems(pod)
        if problems:
            return Opinion(_sentences(problems))
        request = pod_request(pod, self.prefix)
        if request.containers:
            return self._ours(pod, request)
        if request.plugin and self.rules.plugin_pods:
            return Opinion(patch=(*scheduler_patch(pod, self.rules), *preset_patch(pod, self.prefix)))
        if not request.plugin and self._is_routed(pod, namespace):
            return Opinion(patch=tuple(scheduler_patch(pod, self.rules)))
        return Opinion()

    def validate(self, pod: ReviewedPod) -> Opinion:
        """Return every problem of a pod, or what its author should know besides."""
        problems = self._problems(pod)
        if problems:
            return Opinion(_sentences(problems))
        request = pod_request(pod, self.prefix)
        if not request.asks_gpu:
            return Opinion()
        unknown = unknown_preferences(request.preferences)
        warnings = [f"{self.prefix}gpu-prefer: {name} is no known product or architecture" for name in unknown]
        return Opinion(warnings=(*warnings, *never_fits(request, self.fleet())))

    def _ours(self, pod: ReviewedPod, request: PodRequest) -> Opinion:
        warnings: list[str] = []
        patch = [*scheduler_patch(pod, self.rules), *preset_patch(pod, self.prefix)]
        patch += managed_patch(pod, request, self.rules, self.prefix)
        for place, rewrite in rewrites(pod, request, self.prefix):
            patch += rows_patch(place, rewrite)
            warnings += rewrite.warnings
        return Opinion(warnings=tuple(warnings), patch=tuple(patch))

    def _problems(self, pod: ReviewedPod) -> tuple[InvalidRequest, ...]:
        """Return everything that is wrong; one that asks for no GPU has nothing to get wrong but forged annotations."""
        unread = parse_problems(pod, self.prefix)
        request = None if unread else pod_request(pod, self.prefix)
        if request is not None and not request.asks_gpu:
            return reserved_annotations(pod, self.prefix)
        problems = (*unread, *self._unknown_names(read_wishes(pod.annotations, self.prefix, [])))
        if request.containers if request is not None else mentions_ours(pod, self.prefix):
            return (*problems, *shape_problems(pod, request, self.rules, self.prefix))
        return (*problems, *reserved_annotations(pod, self.prefix))

    def _unknown_names(self, wishes: Wishes) -> tuple[InvalidRequest, ...]:
        """Return a problem for a policy that is not configured, and for each product that nobody knows."""
        unknown = product_problems(wishes.conditions, self.prefix, self._seen_products())
        name = wishes.policy
        if name is None or name in self.policies:
            return unknown
        near = difflib.get_close_matches(name, self.policies, n=1)
        nearest = f"; the nearest is {near[0]}" if near else ""
        valid = f"one of {', '.join(sorted(self.policies))}{nearest}"
        return (InvalidRequest(self.prefix + GPU_POLICY, name, valid), *unknown)

    def _seen_products(self) -> set[str]:
        return {name for kind in self.fleet().kinds for name in (kind.product, kind.nvml_name)}

    def _is_routed(self, pod: ReviewedPod, namespace: str) -> bool:
        keys = {toleration.key for toleration in pod.spec.tolerations or ()}
        return namespace in self.rules.routed_namespaces or not keys.isdisjoint(self.rules.routed_taints)


def door(settings: Settings, policies: Mapping[str, Policy], fleet: Callable[[], Fleet]) -> Door:
    """Return the door of one extender."""
    return Door(settings.admission, policies, fleet, settings.key_prefix)


def _sentences(problems: Iterable[InvalidRequest]) -> tuple[str, ...]:
    return tuple(str(problem) for problem in problems)
