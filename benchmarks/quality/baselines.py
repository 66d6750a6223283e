"""The harness' own BestFit and FGD, to show that it reproduces the published figures before it reports ours.

Both as the artifact of the paper defines them; ties go to the first node of one fixed random order, as in the
artifact's patched kube-scheduler, or are drawn as upstream does.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from benchmarks.quality.ledger import WHOLE, Ledger
from benchmarks.quality.trace import TracePod

Decision = tuple[int, tuple[int, ...]]
Policy = Callable[[TracePod], Decision | None]
_MOST_CORES_MILLI = 128_000
_MOST_CARDS = 8
_TYPICAL_SHARE = 0.95
_RESTS = np.arange(WHOLE + 1, dtype=np.float64)


class Ties:
    """How the best of equals is chosen: by one fixed random order of the nodes, or drawn anew each time."""

    def __init__(self, nodes: int, draw: random.Random, *, fixed: bool) -> None:
        order = list(range(nodes))
        draw.shuffle(order)
        self._rank = np.empty(nodes, np.int64)
        self._rank[order] = np.arange(nodes)
        self._draw = None if fixed else draw

    def choose(self, best: npt.NDArray[np.intp]) -> int:
        """Return one of the nodes."""
        if self._draw is not None:
            return int(best[self._draw.randrange(len(best))])
        return int(best[self._rank[best].argmin()])


def best_fit(ledger: Ledger, ties: Ties) -> Policy:
    """Return BestFit: least free cores and cards after placement, stretched to 0..100 over the candidates."""

    def decide(pod: TracePod) -> Decision | None:
        candidates = np.flatnonzero(ledger.fits(pod))
        if not len(candidates):
            return None
        cards_free = np.maximum(ledger.card_left[:, candidates], 0).sum(axis=0) / WHOLE
        cpu = (ledger.cpu_left[candidates] - pod.cpu_milli) / _MOST_CORES_MILLI
        gpu = (cards_free - pod.gpu_milli / WHOLE) / _MOST_CARDS
        score = np.floor(100 * (1 - cpu / 2 - gpu / 2))
        low, high = score.min(), score.max()
        if high > low:
            score = np.floor((score - low) * 100 / (high - low))
        node = ties.choose(candidates[score == score.max()])
        return node, tightest_cards(ledger, pod, node)

    return decide


def tightest_cards(ledger: Ledger, pod: TracePod, node: int) -> tuple[int, ...]:
    """Return the cards of a node that a pod takes by best fit."""
    left = ledger.card_left[:, node]
    fitting = [card for card in np.argsort(left, kind="stable") if left[card] >= pod.card_milli]
    return tuple(int(card) for card in fitting[: pod.cards])


class Fgd:
    """Fragmentation Gradient Descent over the typical pods of a list."""

    def __init__(self, ledger: Ledger, pods: Sequence[TracePod], ties: Ties) -> None:
        self._ledger, self._ties = ledger, ties
        typical = _typical(pods)
        models = sorted(set(ledger.models.tolist()))
        self._model = np.array([models.index(model) for model in ledger.models.tolist()])
        self._levels = np.unique([cpu for (cpu, _, _, _), _ in typical])
        shape = (len(models), len(self._levels) + 1)
        self._unusable = np.zeros((*shape, WHOLE + 1))
        self._several: dict[int, npt.NDArray[np.float64]] = {}
        for (cpu, milli, cards, accepted), weight in typical:
            level = int(np.searchsorted(self._levels, cpu)) + 1
            for at, model in enumerate(models):
                if cards == 0 or (accepted and model not in accepted):
                    self._unusable[at] += weight * _RESTS
                    continue
                self._unusable[at, :level] += weight * _RESTS
                self._unusable[at, level:] += weight * np.where(milli > _RESTS, _RESTS, 0)
                if cards > 1:
                    self._several.setdefault(cards, np.zeros(shape))[at, level:] += weight

    def __call__(self, pod: TracePod) -> Decision | None:
        """Return node and cards of the highest score, or None where nothing fits."""
        ledger = self._ledger
        nodes = np.flatnonzero(ledger.fits(pod))
        if not len(nodes):
            return None
        left, cpu = ledger.card_left[:, nodes], ledger.cpu_left[nodes]
        before = self._amount(nodes, cpu, left)
        after_cpu = cpu - pod.cpu_milli
        if pod.cards == 0:
            gain = (before - self._amount(nodes, after_cpu, left))[np.newaxis]
            fits = np.ones((1, len(nodes)), np.bool_)
        elif pod.cards == 1:
            gain, fits = self._card_gains(pod, nodes, before, after_cpu, left)
        else:
            taken = np.cumsum(left >= WHOLE, axis=0) <= pod.cards
            taken &= left >= WHOLE
            gain = (before - self._amount(nodes, after_cpu, np.where(taken, 0, left)))[np.newaxis]
            fits = np.ones((1, len(nodes)), np.bool_)
        score = np.where(fits, np.floor(100 / (1 + np.exp(-np.round(gain, 6) / 1000))), -1)
        best_card, best = score.argmax(axis=0), score.max(axis=0)
        node = self._ties.choose(nodes[best == best.max()])
        if pod.cards == 1:
            return node, (int(best_card[np.searchsorted(nodes, node)]),)
        return node, tightest_cards(ledger, pod, node)

    def _card_gains(
        self,
        pod: TracePod,
        nodes: npt.NDArray[np.intp],
        before: npt.NDArray[np.float64],
        cpu: npt.NDArray[np.int64],
        left: npt.NDArray[np.int32],
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        fits = left >= pod.card_milli
        gain = np.full(left.shape, -np.inf)
        for card in range(left.shape[0]):
            changed = left.copy()
            changed[card] = np.where(fits[card], left[card] - pod.card_milli, left[card])
            gain[card] = before - self._amount(nodes, cpu, changed)
        return gain, fits

    def _amount(
        self, nodes: npt.NDArray[np.intp], cpu: npt.NDArray[np.int64], left: npt.NDArray[np.int32]
    ) -> npt.NDArray[np.float64]:
        """Return F_n(M) of each node: GPU milli that the typical pods cannot use."""
        level, model = np.searchsorted(self._levels, cpu, side="right"), self._model[nodes]
        rest = np.maximum(left, 0)
        amount = self._unusable[model, level, rest].sum(axis=0)
        untouched = (left >= WHOLE).sum(axis=0)
        for cards, weight in self._several.items():
            amount += np.where(untouched < cards, weight[model, level] * untouched * WHOLE, 0)
        return amount


def _typical(pods: Sequence[TracePod]) -> list[tuple[tuple[int, int, int, tuple[str, ...]], float]]:
    counts = Counter((pod.cpu_milli, pod.card_milli, pod.cards, pod.models) for pod in pods)
    taken, total = [], 0
    for shape, count in counts.most_common():
        if total >= _TYPICAL_SHARE * len(pods):
            break
        taken.append((shape, count))
        total += count
    return [(shape, count / total) for shape, count in taken]
