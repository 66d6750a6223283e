"""What is asked of a device on the slower cadences: its health counters, its temperature, power and energy."""

from __future__ import annotations

from msgspec.structs import replace

from node_agent.nvml import Nvml
from node_agent.nvml_asker import Handle
from node_agent.readings import Counters, DeviceReading


def counters_of(nvml: Nvml, handle: Handle) -> Counters:
    """Return what health is judged by; absent where the product or the driver does not tell."""
    correctable, uncorrectable, pending, failed = nvml.remapped_rows(handle).value or (None, None, None, None)
    return Counters(
        ecc_corrected_volatile=nvml.ecc_errors(handle, uncorrected=False, aggregate=False).value,
        ecc_uncorrected_volatile=nvml.ecc_errors(handle, uncorrected=True, aggregate=False).value,
        ecc_corrected_aggregate=nvml.ecc_errors(handle, uncorrected=False, aggregate=True).value,
        ecc_uncorrected_aggregate=nvml.ecc_errors(handle, uncorrected=True, aggregate=True).value,
        remapped_correctable=correctable,
        remapped_uncorrectable=uncorrectable,
        remap_pending=pending,
        remap_failed=failed,
        retired_pending=nvml.retired_pending(handle).value,
        retired_pages=nvml.retired_pages(handle).value,
        recovery_action=nvml.recovery_action(handle).value,
        clocks_event_reasons=nvml.clocks_event_reasons(handle).value,
        fabric_state=(nvml.fabric_state(handle).value or (None, ""))[0],
        energy_mj=nvml.energy_mj(handle).value,
    )


def with_power(nvml: Nvml, handle: Handle, before: DeviceReading) -> DeviceReading:
    """Return a reading with temperature, power and energy of now."""
    return replace(
        before,
        temperature_celsius=nvml.temperature_celsius(handle).value,
        power_watts=nvml.power_watts(handle).value,
        counters=replace(before.counters, energy_mj=nvml.energy_mj(handle).value),
    )
