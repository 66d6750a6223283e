"""What a rest of a device is worth to the pods to come: prices from a small linear program.

Take the demand for shares of each size, in pods per device, and ask for the best way to cut devices into them::

    maximise    sum over patterns p of x_p * (thousandths that p hands out)
    subject to  sum over p of x_p * (pieces of size s in p)  <=  demand for s      for every size s   (price y_s)
                sum over p of x_p                            <=  1                 one device         (price mu)

The duals say how scarce demand for each size is: a piece of size s brings s - y_s. A rest of r thousandths is worth
the most that any cutting of it brings, V(r), and placing s on a rest r costs V(r) - V(r - s). So a rest that no likely
pod can fill is worth nothing, and the rest that is exactly the size of a common pod is worth keeping.

Solved by column generation (Gilmore and Gomory, "A Linear Programming Approach to the Cutting-Stock Problem",
Operations Research 9, 1961): a revised simplex whose next pattern is a knapsack. Sizes are in steps of ``STEP_MILLI``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from scoring.request import WHOLE_MILLI

STEP_MILLI = 10
LOADS = (1.0, 1.05, 1.1)
"""Demand as multiples of the fleet's capacity; prices are the mean over these: a fleet just under full has none."""

_UNITS = WHOLE_MILLI // STEP_MILLI
_MOST_SIZES = 32
_MOST_PIVOTS = 400
_SMALL = 1e-9
_SPREAD = 1e-6
"""Demand is spread by such relative steps: no two bases are equally good, so the simplex cannot turn in circles."""

Worth = npt.NDArray[np.float32]


def rest_worth(demand_milli: Mapping[int, float]) -> Worth:
    """Return V(0..1000) in thousandths of a device, never falling with the rest.

    ``demand_milli`` maps a size, 1..1000, to the thousandths of all demand that pods of that size ask (any scale).
    """
    sizes = _in_steps(demand_milli)
    total = sum(sizes.values())
    if total <= 0:
        return np.zeros(WHOLE_MILLI + 1, np.float32)
    units = sorted(sizes)
    pods = np.array([sizes[unit] / total * _UNITS / unit for unit in units])
    tables = [_Cutting(units, pods * load).worth() for load in LOADS]
    by_unit = np.mean(tables, axis=0)
    return np.asarray(by_unit[np.arange(WHOLE_MILLI + 1) // STEP_MILLI], np.float32)


def _in_steps(demand_milli: Mapping[int, float]) -> dict[int, float]:
    """Return demand by size in steps, rounded up; the rarest sizes are left out where there are too many."""
    steps: dict[int, float] = {}
    for size, demand in demand_milli.items():
        unit = min(-(-size // STEP_MILLI), _UNITS)
        steps[unit] = steps.get(unit, 0.0) + demand
    kept = sorted(steps.items(), key=lambda item: -item[1])[:_MOST_SIZES]
    return {unit: demand for unit, demand in kept if unit > 0}


class _Cutting:
    """The linear program for one demand: one row a size, a last row for the device."""

    def __init__(self, units: Sequence[int], pods: npt.NDArray[np.float64]) -> None:
        self._units = np.array(units)
        rows = len(units) + 1
        self._brings = np.zeros(rows)
        self._inverse = np.eye(rows)
        self._amounts = np.append(pods, 1.0) * (1 + _SPREAD * np.arange(1, rows + 1))

    def worth(self) -> npt.NDArray[np.float64]:
        """Return the value of a rest of 0.._UNITS steps, in thousandths."""
        for _ in range(_MOST_PIVOTS):
            prices = self._brings @ self._inverse
            value, last = self._knapsack(np.maximum(self._units - prices[:-1], 0))
            column, brings = self._entering(prices, value, last)
            if column is None or not self._pivot(column, brings):
                break
        return value * STEP_MILLI

    def _knapsack(self, profit: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.intp]]:
        """Return the best value of each rest, and the size of its last piece (-1: the last step stays empty)."""
        # Lists of Python: for so few numbers numpy's calls take eight times as long.
        best, last = [0.0], [-1]
        worthwhile = np.flatnonzero(profit > 0).tolist()
        pieces = list(zip(self._units[worthwhile].tolist(), profit[worthwhile].tolist(), strict=True))
        for rest in range(1, _UNITS + 1):
            values = [best[rest - unit] + brings for unit, brings in pieces if unit <= rest]
            highest = max(values, default=0.0)
            is_better = highest > best[-1] + _SMALL
            last.append(worthwhile[values.index(highest)] if is_better else -1)
            best.append(highest if is_better else best[-1])
        return np.array(best), np.array(last)

    def _entering(
        self, prices: npt.NDArray[np.float64], value: npt.NDArray[np.float64], last: npt.NDArray[np.intp]
    ) -> tuple[npt.NDArray[np.float64] | None, float]:
        """Return the column that improves most and what it brings: a pattern, or a row's slack; None at the end."""
        column = np.zeros(len(prices))
        cheapest = int(prices.argmin())
        gain = value[_UNITS] - prices[-1]
        if -prices[cheapest] > max(gain, _SMALL):
            column[cheapest] = 1
            return column, 0.0
        if gain <= _SMALL * _UNITS:
            return None, 0.0
        rest = _UNITS
        while rest > 0:
            if last[rest] < 0:
                rest -= 1
            else:
                column[last[rest]] += 1
                rest -= int(self._units[last[rest]])
        column[-1] = 1
        return column, float(column[:-1] @ self._units)

    def _pivot(self, column: npt.NDArray[np.float64], brings: float) -> bool:
        """Let a column into the basis; return whether there was a row to leave."""
        direction = self._inverse @ column
        positive = direction > _SMALL
        if not positive.any():
            return False
        ratios = np.full(len(direction), np.inf)
        ratios[positive] = self._amounts[positive] / direction[positive]
        leaving = int(ratios.argmin())
        amount = self._amounts[leaving] / direction[leaving]
        row = self._inverse[leaving] / direction[leaving]
        self._inverse -= np.outer(direction, row)
        self._inverse[leaving] = row
        self._amounts -= direction * amount
        self._amounts[leaving], self._brings[leaving] = amount, brings
        return True
