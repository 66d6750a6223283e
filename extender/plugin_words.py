"""Explanations in words for pods that ask NVIDIA's device plugin: what is asked, and what each node has of it."""

from __future__ import annotations

from collections.abc import Iterator

from scoring.plugin_diagnosis import OfferDetail, PluginDiagnosis, PluginNode

_NODES_TOLD = 3


def plugin_asked_words(diagnosis: PluginDiagnosis) -> str:
    """Return what the pod asks in one line."""
    parts = [f"{ask.count} of {ask.resource}" for ask in diagnosis.asked]
    parts += [f"{key} {text}" for key, text in diagnosis.conditions]
    return "; ".join([*parts, f"policy {diagnosis.policy}"])


def plugin_node_lines(diagnosis: PluginDiagnosis) -> Iterator[str]:
    """Yield the best nodes where the pod fits, else what the nodes that came closest have."""
    fitting = [node for node in diagnosis.nodes if node.reason is None]
    for node in fitting[:_NODES_TOLD]:
        yield f"Node {node.node} fits, score {node.score:.2f}"
    for node in () if fitting else diagnosis.nodes[:_NODES_TOLD]:
        yield from _node_lines(node)


def _node_lines(node: PluginNode) -> Iterator[str]:
    yield f"Node {node.node}: {node.sentence}"
    yield from (f"  {_offer_words(offer)}" for offer in node.offers)


def _offer_words(offer: OfferDetail) -> str:
    if not offer.devices:
        return f"{offer.resource}: not offered there"
    if offer.unmet:
        return f"{offer.resource}: some of its {offer.devices} devices do not meet {', '.join(offer.unmet)}"
    text = f"{offer.resource}: {offer.asked} asked, {offer.free} free of {offer.replicas}"
    out = offer.devices - offer.healthy
    return text + (f"; {out} of {offer.devices} devices are out" if out else "")
