"""Questions about a device's health, temperature and power (node-side.md 1.5, Health)."""

from __future__ import annotations

from typing import Any, cast

from node_agent.nvml_asker import Asker, Handle
from node_agent.nvml_decode import field_value, mapped
from node_agent.nvml_outcome import FUNCTION_NOT_FOUND, KINDS, SUCCESS, Kind, Outcome

_FIELD_RECOVERY_ACTION = 230


class HealthQuestions(Asker):
    """What can be asked of a physical device."""

    def ecc_errors(self, handle: Handle, *, uncorrected: bool, aggregate: bool) -> Outcome[int]:
        """Ask for ECC errors since driver load, or over the board's life (``aggregate``)."""
        return self.ask("nvmlDeviceGetTotalEccErrors", handle, int(uncorrected), int(aggregate))

    def remapped_rows(self, handle: Handle) -> Outcome[tuple[int, int, bool, bool]]:
        """Ask for (rows after correctable errors, after uncorrectable ones, pending, failed), Ampere and later."""
        answer = self.ask("nvmlDeviceGetRemappedRows", handle)
        return mapped(answer, lambda rows: (int(rows[0]), int(rows[1]), bool(rows[2]), bool(rows[3])))

    def retired_pending(self, handle: Handle) -> Outcome[bool]:
        """Ask whether a page retirement waits for a reset, Kepler to Turing."""
        return mapped(self.ask("nvmlDeviceGetRetiredPagesPendingStatus", handle), bool)

    def retired_pages(self, handle: Handle) -> Outcome[int]:
        """Ask for the number of retired pages, both causes."""
        counts = [mapped(self.ask("nvmlDeviceGetRetiredPages", handle, cause), len) for cause in (0, 1)]
        if any(each.kind is not Kind.VALUE for each in counts):
            return next(each for each in counts if each.kind is not Kind.VALUE)
        return Outcome(Kind.VALUE, sum(each.value or 0 for each in counts))

    def recovery_action(self, handle: Handle) -> Outcome[int]:
        """Ask what the device waits for: 0 nothing, else see health_rules (field 230, recent drivers)."""
        outcome = self.ask("nvmlDeviceGetFieldValues", handle, [_FIELD_RECOVERY_ACTION])
        if outcome.kind is not Kind.VALUE or outcome.value is None:
            return cast("Outcome[int]", outcome)
        field = cast("Any", outcome.value)[0]
        if field.nvmlReturn != SUCCESS:
            return Outcome(KINDS.get(field.nvmlReturn, Kind.UNSUPPORTED), code=field.nvmlReturn)
        return Outcome(Kind.VALUE, field_value(field))

    def clocks_event_reasons(self, handle: Handle) -> Outcome[int]:
        """Ask for the bits that say why clocks are held down; the name before R535 was another."""
        outcome = self.ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
        if outcome.code == FUNCTION_NOT_FOUND:
            return self.ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        return outcome

    def temperature_celsius(self, handle: Handle) -> Outcome[int]:
        """Ask for the temperature of the chip."""
        return self.ask("nvmlDeviceGetTemperature", handle, 0)

    def power_watts(self, handle: Handle) -> Outcome[float]:
        """Ask for the power drawn."""
        return mapped(self.ask("nvmlDeviceGetPowerUsage", handle), lambda milliwatts: milliwatts / 1000)

    def power_limit_watts(self, handle: Handle) -> Outcome[float]:
        """Ask for the limit in force."""
        return mapped(self.ask("nvmlDeviceGetEnforcedPowerLimit", handle), lambda milliwatts: milliwatts / 1000)

    def energy_mj(self, handle: Handle) -> Outcome[int]:
        """Ask for millijoules since driver load or reset, Volta and later."""
        return self.ask("nvmlDeviceGetTotalEnergyConsumption", handle)
