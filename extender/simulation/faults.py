"""Faults that the simulated API server shows on demand, so that tests see what a bad network and a bad server do."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum


class FaultKind(StrEnum):
    """What goes wrong with a call.

    ``DELAY``       it is carried out after ``seconds``
    ``REFUSE``      it is not carried out; the answer is ``status``
    ``DROP``        it is not carried out, and the connection is cut
    ``LOSE_ANSWER`` it is carried out, and the connection is cut before the answer
    ``SILENCE``     no answer comes; the connection stays open (a watch: headers, then nothing)
    ``CUT``         a watch ends as soon as it began
    """

    DELAY = "delay"
    REFUSE = "refuse"
    DROP = "drop"
    LOSE_ANSWER = "lose_answer"
    SILENCE = "silence"
    CUT = "cut"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault for calls of one verb on a resource (plural).

    Verbs are list, watch, get, create, update, patch, delete and bind; ``seconds`` is 0 or more.
    """

    verb: str
    resource: str
    kind: FaultKind
    status: int = 500
    seconds: float = 0.0


class Faults:
    """The faults in force, and how many calls of each verb and resource came; safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: list[tuple[Fault, int | None]] = []
        self._calls: Counter[tuple[str, str]] = Counter()

    def add(self, fault: Fault, times: int | None = 1) -> None:
        """Put a fault in force for so many calls; None for all until ``clear``. Earlier ones are used up first."""
        with self._lock:
            self._faults.append((fault, times))

    def clear(self) -> None:
        """End all faults."""
        with self._lock:
            self._faults.clear()

    def calls(self, verb: str, resource: str) -> int:
        """Return how many such calls came, faulty ones included."""
        with self._lock:
            return self._calls[verb, resource]

    def meet(self, verb: str, resource: str) -> Fault | None:
        """Count a call and return the fault that it meets."""
        with self._lock:
            self._calls[verb, resource] += 1
            for index, (fault, times) in enumerate(self._faults):
                if (fault.verb, fault.resource) != (verb, resource):
                    continue
                if times == 1:
                    del self._faults[index]
                elif times is not None:
                    self._faults[index] = (fault, times - 1)
                return fault
        return None
