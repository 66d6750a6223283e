"""The harness' own ledger: what every node and card has left, independent of anything that the product believes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from benchmarks.quality.trace import TraceNode, TracePod

WHOLE = 1000
Nodes = npt.NDArray[np.bool_]


class BrokenDecision(AssertionError):
    """A decision that breaks a limit: it fails the run."""


class Ledger:
    """Cores, memory and card thousandths left of every node, in the order of the node list.

    ``card_left`` has shape (cards of the largest node, nodes); a card that is not there has -1.
    """

    def __init__(self, nodes: Sequence[TraceNode]) -> None:
        self.nodes = nodes
        width = max(node.cards for node in nodes)
        self.cpu_left = np.array([node.cpu_milli for node in nodes], np.int64)
        self.memory_left = np.array([node.memory_mib for node in nodes], np.int64)
        self.card_left = np.full((width, len(nodes)), -1, np.int32)
        for at, node in enumerate(nodes):
            self.card_left[: node.cards, at] = WHOLE
        self.models = np.array([node.model for node in nodes])
        self._accepts: dict[tuple[str, ...], Nodes] = {}
        self.capacity_milli = WHOLE * sum(node.cards for node in nodes)
        self.allocated_milli = 0

    def accepts(self, models: tuple[str, ...]) -> Nodes:
        """Return the nodes whose model a pod takes."""
        if models not in self._accepts:
            self._accepts[models] = np.isin(self.models, models) if models else np.ones(len(self.nodes), np.bool_)
        return self._accepts[models]

    def fits_host(self, pod: TracePod) -> Nodes:
        """Return where cores and memory suffice: what kube-scheduler's own filter says."""
        return (self.cpu_left >= pod.cpu_milli) & (self.memory_left >= pod.memory_mib)

    def fits(self, pod: TracePod) -> Nodes:
        """Return where everything suffices."""
        fits = self.fits_host(pod)
        if pod.cards:
            fits &= self.accepts(pod.models)
            fits &= (self.card_left >= pod.card_milli).sum(axis=0) >= pod.cards
        return fits

    def take(self, pod: TracePod, node: int, cards: Sequence[int]) -> None:
        """Book a decision. Raises BrokenDecision for one that breaks a limit."""
        problem = self._problem(pod, node, cards)
        if problem:
            msg = f"{pod} on {self.nodes[node]} cards {list(cards)}: {problem}"
            raise BrokenDecision(msg)
        self._add(pod, node, cards, -1)

    def release(self, pod: TracePod, node: int, cards: Sequence[int]) -> None:
        """Give back what a pod had."""
        self._add(pod, node, cards, 1)

    def _problem(self, pod: TracePod, node: int, cards: Sequence[int]) -> str:
        if self.cpu_left[node] < pod.cpu_milli or self.memory_left[node] < pod.memory_mib:
            return "cores or memory exceeded"
        if len(set(cards)) != pod.cards:
            return f"{pod.cards} different cards asked"
        if pod.cards and not self.accepts(pod.models)[node]:
            return "model not accepted"
        if any(self.card_left[card, node] < pod.card_milli for card in cards):
            return "card exceeded"
        return ""

    def _add(self, pod: TracePod, node: int, cards: Sequence[int], sign: int) -> None:
        self.cpu_left[node] += sign * pod.cpu_milli
        self.memory_left[node] += sign * pod.memory_mib
        for card in cards:
            self.card_left[card, node] += sign * pod.card_milli
        self.allocated_milli -= sign * pod.gpu_milli
