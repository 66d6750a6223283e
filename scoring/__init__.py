"""The decision core of Tangram: values in, verdicts and scores out. See ``pipeline`` for the verbs."""

from scoring.draft import FleetDraft
from scoring.errors import InvalidCondition, InvalidPolicy, InvalidRequest, ScoringError
from scoring.fleet import DeviceState, Fleet, ModeCode, NodeState, Row
from scoring.outlook import Outlook
from scoring.pipeline import PlacedPod, allocation_on, booked_by, evaluate, levels, verdict
from scoring.placement import Placements
from scoring.registry import DEFAULT_POLICY, Policy, build_policies
from scoring.request import Allocation, ContainerAsk, ContainerKind, PluginAsk, PodRequest, Share, SharingMode, Topology
from scoring.status import FITS, Code, Reason, Verdict
from scoring.workload import Mix, MixHistogram

__all__ = [
    "DEFAULT_POLICY",
    "FITS",
    "Allocation",
    "Code",
    "ContainerAsk",
    "ContainerKind",
    "DeviceState",
    "Fleet",
    "FleetDraft",
    "InvalidCondition",
    "InvalidPolicy",
    "InvalidRequest",
    "Mix",
    "MixHistogram",
    "ModeCode",
    "NodeState",
    "Outlook",
    "PlacedPod",
    "Placements",
    "PluginAsk",
    "PodRequest",
    "Policy",
    "Reason",
    "Row",
    "ScoringError",
    "Share",
    "SharingMode",
    "Topology",
    "Verdict",
    "allocation_on",
    "booked_by",
    "build_policies",
    "evaluate",
    "levels",
    "verdict",
]
