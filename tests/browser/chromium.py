"""Debian's Chromium, driven by Selenium; a machine without it skips, CI does not."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from selenium.common.exceptions import WebDriverException
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.wait import WebDriverWait

WAIT_S = 30.0
_CALL_S = 60
_ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--use-gl=angle",
    "--use-angle=swiftshader",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
    "--no-first-run",
    "--no-proxy-server",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    "--hide-scrollbars",
)
"""As root, without a sandbox, a GPU or a large /dev/shm; no name resolves, so no request can leave the machine."""


def found(name: str) -> str:
    """Return the path of a program of the Debian packages chromium and chromium-driver; skip without, fail in CI."""
    path = shutil.which(name)
    if path is None and os.environ.get("CI"):
        pytest.fail(f"{name} is missing; `apt-get install chromium chromium-driver` brings it")
    if path is None:
        pytest.skip(f"needs {name}, from the Debian packages chromium and chromium-driver")
    return path


@contextmanager
def chromium() -> Iterator[Chrome]:
    """Start a browser that keeps what the page logs; it ends with the block."""
    options = ChromeOptions()
    options.binary_location = found("chromium")
    for argument in _ARGUMENTS:
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = Service(found("chromedriver"))
    browser = Chrome(options=options, service=service)
    browser.command_executor.client_config.timeout = _CALL_S
    try:
        yield browser
    finally:
        browser.quit()


def wait_for(browser: Chrome, script: str, wait_s: float = WAIT_S) -> object:
    """Return what a JavaScript expression gives once it is truthy; fail with what the page logged."""
    try:
        return WebDriverWait(browser, wait_s, poll_frequency=0.05).until(
            lambda driver: driver.execute_script(f"return {script}")
        )
    except WebDriverException as error:
        pytest.fail(f"{script}: never within {wait_s:g} s ({type(error).__name__}); log: {browser.get_log('browser')}")
