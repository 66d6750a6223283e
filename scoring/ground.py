"""One request before one fleet: everything that placing looks at and never changes, worked out once."""

from __future__ import annotations

from dataclasses import dataclass

from scoring.candidates import Candidates
from scoring.eligibility import Eligible, eligible
from scoring.fleet import BoolArray, Fleet, IntArray
from scoring.needs import Need, need_of, remainder_milli
from scoring.outlook import Outlook
from scoring.registry import Policy
from scoring.request import ContainerAsk, PodRequest


@dataclass(frozen=True, slots=True)
class Ground:
    """What is asked, of what, and by which preference.

    ``needs``                   one for each ask, in the request's order
    ``free_mib``, ``free_milli``  of every device: capacity less what is booked and what foreign processes hold
    """

    request: PodRequest
    fleet: Fleet
    policy: Policy
    outlook: Outlook
    eligible: Eligible
    needs: tuple[Need, ...]
    free_mib: IntArray
    free_milli: IntArray

    @property
    def asks(self) -> tuple[ContainerAsk, ...]:
        """Return what each container asks."""
        return self.request.containers

    def fits(self, at: int, free_mib: IntArray, free_milli: IntArray) -> BoolArray:
        """Return the devices that can take one share of an ask, given what is free."""
        return self.eligible.usable & self.needs[at].within(free_mib, free_milli)

    def candidates(self, at: int, fits: BoolArray, free_mib: IntArray, free_milli: IntArray) -> Candidates:
        """Return the view of one ask for the scorers, given where it fits and what is free."""
        need, fleet = self.needs[at], self.fleet
        unbooked_mib = free_mib + fleet.foreign_mib
        rest = remainder_milli(fleet, unbooked_mib, free_milli)
        left = remainder_milli(fleet, unbooked_mib - need.mib, free_milli - need.milli)
        return Candidates(self.request, self.asks[at], fleet, self.outlook, need, fits, rest, left)


def survey(request: PodRequest, fleet: Fleet, policy: Policy, outlook: Outlook) -> Ground:
    """Return the ground of a request that asks for at least one device."""
    if not request.containers:
        msg = "a request without devices has no ground to survey"
        raise ValueError(msg)
    return Ground(
        request=request,
        fleet=fleet,
        policy=policy,
        outlook=outlook,
        eligible=eligible(request, fleet),
        needs=tuple(need_of(request, ask, fleet) for ask in request.containers),
        free_mib=fleet.capacity_mib - fleet.booked_mib - fleet.foreign_mib,
        free_milli=fleet.capacity_milli - fleet.booked_milli,
    )
