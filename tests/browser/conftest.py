"""One browser and one fleet for all tests of the page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from selenium.webdriver import Chrome

from tests.browser.chromium import chromium
from tests.browser.served import ServedFleet, fill_fleet

LARGE = 5000
SMALL = 24


@pytest.fixture(scope="session")
def window() -> Iterator[Chrome]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def browser(window: Chrome) -> Iterator[Chrome]:
    """A blank page in a desktop's window with a light theme; what the page logs as an error fails the test."""
    show_as(window, 1400, 900, "light")
    window.get_log("browser")
    yield window
    leave(window)


@pytest.fixture(scope="session")
def large(window: Chrome) -> Iterator[ServedFleet]:
    fleet = ServedFleet(lambda app: fill_fleet(app, LARGE))
    yield fleet
    fleet.stop()


@pytest.fixture
def small(browser: Chrome) -> Iterator[ServedFleet]:
    fleet = ServedFleet(lambda app: fill_fleet(app, SMALL))
    yield fleet
    try:
        leave(browser)
    finally:
        fleet.stop()


def leave(browser: Chrome) -> None:
    """Close the page; what it logged as an error fails the test."""
    logged = [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    browser.get("about:blank")
    assert not logged


def show_as(browser: Chrome, width: int, height: int, scheme: str, *, scale: float = 1) -> None:
    """Give the page a screen of this size, and a person who likes it light or dark."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
