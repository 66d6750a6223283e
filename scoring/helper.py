"""What a helper must do that works evaluations out in numpy's place; the only one so far is ``native``.

A policy carries its helper, so that whoever scores by the policy uses it without knowing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from scoring.fleet import BoolArray, ByteArray, Fleet, FloatArray, IntArray
from scoring.outlook import Outlook
from scoring.request import PodRequest

Weights = tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Question:
    """How the nodes of a fleet fare for a request of one container; ``weights`` are a policy's, in its order."""

    request: PodRequest
    fleet: Fleet
    weights: Weights
    outlook: Outlook


class Lasting(Protocol):
    """The columns of ``standing.Standing``, contiguous."""

    @property
    def code(self) -> ByteArray:
        """Shape (nodes,)."""

    @property
    def reason(self) -> ByteArray:
        """Shape (nodes,)."""

    @property
    def fits(self) -> BoolArray:
        """Shape (width, nodes)."""

    @property
    def value(self) -> FloatArray:
        """Shape (width, nodes)."""

    @property
    def rest_milli(self) -> npt.NDArray[np.int16]:
        """Shape (width, nodes)."""

    @property
    def left_milli(self) -> npt.NDArray[np.int16]:
        """Shape (width, nodes)."""


class Helper(Protocol):
    """Equal to numpy to the last bit, wherever ``can_do`` says so."""

    def can_do(self, question: Question) -> bool:
        """Return whether all that the question needs is known here."""

    def stand(self, question: Question, rows: npt.NDArray[np.intp], into: Lasting) -> None:
        """Write the lasting part of these rows into columns; every other row stays as it is."""

    def scores(self, question: Question, lasting: Lasting, load_value: FloatArray) -> FloatArray:
        """Return the score of every node for an ask of one device, 0 where it does not fit."""

    def values(self, question: Question, lasting: Lasting, load_value: FloatArray) -> FloatArray:
        """Return the value of every device; where the ask does not fit it means nothing."""

    def write_load(self, fleet: Fleet, rows: npt.NDArray[np.intp], into: FloatArray) -> None:
        """Write the value of the load of every device of these rows (``policies.load``)."""

    def levels(
        self, score: FloatArray, order: npt.NDArray[np.uint32], rows: npt.NDArray[np.intp], top: int
    ) -> IntArray:
        """Return the levels of these rows, on all of which a pod fits (``pipeline.levels``)."""
