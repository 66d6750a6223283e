"""The live page in a real browser: fast on a large fleet, moving by itself, filtered, and safe with hostile names."""

from __future__ import annotations

import json
import os
from urllib.parse import urlsplit

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.select import Select

from extender.app import Extender
from extender.decisions import Decision, Verb
from node_agent.report import Health
from tests.browser.chromium import wait_for
from tests.browser.conftest import LARGE, SMALL, show_as
from tests.browser.served import DEVICES, PRODUCTS, TEAMS, ServedFleet, hold, node_devices
from tests.support.builders import device, node_facts, pod, report

pytestmark = pytest.mark.browser

SHOWN_WITHIN_MS = 2000.0
OPENINGS = 5
OVERLOADED = 2.0
"""Processes a core beyond which a missed bound says more of the machine than of the page."""
DEVICES_SHOWN = "document.getElementById('board').dataset.devices"
WAITING = "document.getElementById('waiting').innerText"
PICKED = "document.getElementById('picked').textContent"
SCRIPT = "<img src=x onerror=document.title='hacked'><script>document.title='hacked'</script>"


def open_page(browser: Chrome, fleet: ServedFleet, devices: int = SMALL * DEVICES) -> None:
    browser.get(fleet.url)
    wait_for(browser, f"{DEVICES_SHOWN} === '{devices}'")


def text_of(browser: Chrome, name: str) -> str:
    return str(browser.execute_script("return document.getElementById(arguments[0]).innerText", name))


def choose(browser: Chrome, name: str, words: str) -> None:
    Select(browser.find_element(By.ID, name)).select_by_visible_text(words)


def press(browser: Chrome, *keys: str) -> None:
    browser.find_element(By.ID, "board").send_keys(*keys)


def shown_after_ms(browser: Chrome, fleet: ServedFleet) -> float:
    """Return the time from the opening of the page until the whole fleet is drawn."""
    open_page(browser, fleet, LARGE * DEVICES)
    return float(browser.execute_script("return performance.getEntriesByName('fleet-shown')[0].startTime"))


@pytest.mark.slow
def test_five_thousand_nodes_of_eight_devices_are_shown_within_two_seconds(browser, large):
    """The best of a few openings: what else a machine does meanwhile is not the page's doing."""
    times: list[float] = []
    while len(times) < OPENINGS and min(times, default=SHOWN_WITHIN_MS) >= SHOWN_WITHIN_MS:
        times.append(shown_after_ms(browser, large))
    print(f"fleet of {LARGE * DEVICES} devices shown after {', '.join(f'{each:.0f}' for each in times)} ms")
    if min(times) >= SHOWN_WITHIN_MS and os.getloadavg()[0] > OVERLOADED * (os.cpu_count() or 1):
        pytest.skip(f"{os.getloadavg()[0]:.0f} processes want {os.cpu_count()} cores; shown after {min(times):.0f} ms")
    assert min(times) < SHOWN_WITHIN_MS
    pixels = browser.execute_script(
        "const board = document.getElementById('board'); const found = new Set();"
        "const { data } = board.getContext('2d').getImageData(0, 0, board.width, Math.min(board.height, 600));"
        "for (let i = 0; i < data.length; i += 4) found.add((data[i] << 16) | (data[i + 1] << 8) | data[i + 2]);"
        "return found.size"
    )
    assert pixels > len(TEAMS), "the map is drawn in the colours of many pods"


class TestUpdates:
    def test_a_new_pod_and_a_new_node_appear_without_a_reload(self, browser, small):
        open_page(browser, small)
        browser.execute_script("window.notReloaded = true")
        before = text_of(browser, "pods")
        small.change(lambda app: hold(app, "node-0000", node_devices("node-0000", 0)[1], "late", "vision"))
        wait_for(browser, f"document.getElementById('pods').textContent !== {json.dumps(before)}")
        small.change(lambda app: _add_node(app, "node-9999"))
        wait_for(browser, f"{DEVICES_SHOWN} === '{SMALL * DEVICES + 1}'")
        assert browser.execute_script("return window.notReloaded")

    def test_a_lost_connection_is_said_and_a_filter_outlives_new_updates(self, browser, small):
        open_page(browser, small)
        choose(browser, "product", "T4")
        wait_for(browser, f"{DEVICES_SHOWN} === '{SMALL // len(PRODUCTS) * DEVICES}'")
        small.change(lambda app: _add_node(app, "node-9999"))
        wait_for(browser, f"document.getElementById('devices').textContent === '{SMALL * DEVICES + 1}'")
        assert browser.execute_script(f"return {DEVICES_SHOWN}") == str(SMALL // len(PRODUCTS) * DEVICES)
        small.stop()
        wait_for(browser, "document.getElementById('connection').dataset.state === 'lost'")
        browser.get_log("browser")


class TestFilters:
    def test_type(self, browser, small):
        open_page(browser, small)
        choose(browser, "product", "H200")
        count = SMALL // len(PRODUCTS) * DEVICES
        wait_for(browser, f"{DEVICES_SHOWN} === '{count}'")
        assert text_of(browser, "matching") == f"{count} of {SMALL * DEVICES} GPUs"

    def test_health_follows_what_happens(self, browser, small):
        open_page(browser, small)
        choose(browser, "health", "out of use")
        wait_for(browser, f"{DEVICES_SHOWN} === '2'")
        small.change(lambda app: _break(app, "node-0001", 1))
        wait_for(browser, f"{DEVICES_SHOWN} === '3'")

    def test_namespace_of_a_pod_that_holds_a_share(self, browser, small):
        open_page(browser, small)
        choose(browser, "namespace", "robots")
        nodes = len(range(TEAMS.index("robots"), SMALL, len(TEAMS)))
        wait_for(browser, f"{DEVICES_SHOWN} === '{nodes * DEVICES // 2}'")

    def test_all_together_may_match_nothing_and_are_taken_back(self, browser, small):
        open_page(browser, small)
        choose(browser, "product", "T4")
        choose(browser, "health", "suspect")
        wait_for(browser, f"{DEVICES_SHOWN} === '0'")
        assert text_of(browser, "empty") == "No GPU matches."
        browser.find_element(By.ID, "clear").click()
        wait_for(browser, f"{DEVICES_SHOWN} === '{SMALL * DEVICES}'")

    def test_waiting_pods_and_decisions_follow_the_namespace(self, browser, small):
        small.change(lambda app: app.pod_handler().on_set(pod("stuck", namespace="lonely", gpu=1, gpu_memory=200_000)))
        small.change(lambda app: app.pod_handler().on_set(pod("stays", namespace="robots", gpu=1, gpu_memory=200_000)))
        open_page(browser, small)
        wait_for(browser, f"{WAITING}.includes('lonely/stuck') && {WAITING}.includes('robots/stays')")
        choose(browser, "namespace", "lonely")
        wait_for(browser, f"{WAITING}.includes('lonely/stuck') && !{WAITING}.includes('robots/stays')")
        choose(browser, "namespace", "speech")
        wait_for(browser, f"{WAITING} === 'No pod of this namespace waits.'")


class TestDevice:
    def test_keyboard_walks_the_map_and_shows_shares_and_history(self, browser, small):
        small.change(_remember)
        open_page(browser, small)
        press(browser, Keys.HOME)
        wait_for(browser, f"/V100.* on node-0001,/.test({PICKED})")

        wait_for(browser, "document.querySelector('#details .trace polyline.load') !== null")
        drawn = browser.execute_script("return document.querySelector('#details polyline.load').getBBox().width")
        assert drawn > 300
        details = text_of(browser, "details")
        assert "speech/job-1-0" in details
        assert "Placed here last" in details
        press(browser, Keys.ARROW_RIGHT)
        wait_for(browser, "document.getElementById('details').innerText.includes('GPU-node-0001-1')")
        press(browser, Keys.ARROW_DOWN)
        wait_for(browser, "!document.getElementById('details').innerText.includes('GPU-node-0001-')")
        press(browser, Keys.END, Keys.ARROW_LEFT)
        wait_for(browser, "document.getElementById('picked').textContent.startsWith('B200')")

    def test_every_control_is_reached_with_the_tab_key(self, browser, small):
        open_page(browser, small)
        reached = set()
        for _ in range(11):
            browser.switch_to.active_element.send_keys(Keys.TAB)
            reached.add(
                browser.execute_script("return document.activeElement.id || document.activeElement.dataset.mode")
            )
        assert reached >= {"theme", "compute", "memory", "product", "health", "namespace", "board"}


class TestHostileNames:
    def test_scripts_in_names_are_shown_as_text(self, browser, small):
        small.change(_be_hostile)
        open_page(browser, small, SMALL * DEVICES + 1)
        wait_for(browser, f"{WAITING}.includes('default/')")
        assert SCRIPT in text_of(browser, "waiting")
        choose(browser, "namespace", SCRIPT)
        wait_for(browser, f"{DEVICES_SHOWN} === '1'")
        press(browser, Keys.HOME)
        wait_for(browser, "document.getElementById('details').innerText.includes('fault ')")
        assert SCRIPT in text_of(browser, "details")
        assert SCRIPT in text_of(browser, "decisions")
        assert browser.execute_script("return document.querySelectorAll('img, main script').length") == 0
        assert browser.title.startswith("Tangram")

    def test_the_policy_stops_a_script_even_where_one_got_in(self, browser, small):
        open_page(browser, small)
        browser.execute_script("document.body.insertAdjacentHTML('beforeend', arguments[0])", SCRIPT)
        wait_for(browser, "document.querySelectorAll('img').length === 1")
        assert browser.title.startswith("Tangram")
        assert any("Content Security Policy" in entry["message"] for entry in browser.get_log("browser"))


def test_nothing_is_asked_of_any_other_host(browser, small):
    browser.get_log("performance")
    open_page(browser, small)
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [each["params"]["request"]["url"] for each in events if each["method"] == "Network.requestWillBeSent"]
    assert len(asked) > len(("page", "style", "script"))
    assert {urlsplit(url).netloc for url in asked} == {urlsplit(small.url).netloc}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_light_or_dark_as_the_person_likes_it(browser, small, scheme):
    show_as(browser, 1400, 900, scheme)
    open_page(browser, small)
    assert (_ground(browser) > 128) == (scheme == "light")


def test_a_theme_that_was_chosen_outlives_the_page_and_the_system(browser, small):
    show_as(browser, 1400, 900, "light")
    open_page(browser, small)
    try:
        choose(browser, "theme", "dark")
        assert _ground(browser) < 128
        open_page(browser, small)
        assert _ground(browser) < 128
        assert Select(browser.find_element(By.ID, "theme")).first_selected_option.text == "dark"
        choose(browser, "theme", "system")
        assert _ground(browser) > 128
    finally:
        browser.execute_script("localStorage.clear()")


@pytest.mark.parametrize("width", [320, 390])
def test_a_phone_shows_all_of_it_without_scrolling_sideways(browser, small, width):
    show_as(browser, width, 800, "light", scale=2)
    small.change(_remember)
    open_page(browser, small)
    press(browser, Keys.HOME)
    wait_for(browser, "document.querySelector('#details table') !== null")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    for name in ("summary", "filters", "board", "details", "waiting", "decisions"):
        assert browser.find_element(By.ID, name).is_displayed(), name


def _ground(browser: Chrome) -> float:
    """Return how light the page's ground is, 0 to 255."""
    ground = str(browser.execute_script("return getComputedStyle(document.body).backgroundColor"))
    return sum(int(part) for part in ground.removeprefix("rgb(").rstrip(")").split(",")) / 3


def _add_node(app: Extender, name: str) -> None:
    app.services.store.set_node(node_facts(name))
    app.services.store.apply_report(report(name, device(f"GPU-{name}")), app.services.clock.now())


def _break(app: Extender, node: str, number: int) -> None:
    first, *others = node_devices(node, number)
    broken = device(first.uuid, name=first.name, health=Health.OUT, fault="XID 79: GPU has fallen off the bus")
    app.services.store.apply_report(report(node, broken, *others), app.services.clock.now())


def _remember(app: Extender) -> None:
    """Give the first device half an hour of history, and a pod that was placed there."""
    clock = iter(range(1_790_000_000, 1_790_001_800, 60))
    app._view.traces._wall = lambda: float(next(clock))
    app._view.traces._samples.clear()
    for _ in range(30):
        with pytest.raises(StopIteration):
            app._view.traces.round().send(None)
    uuid = node_devices("node-0001", 1)[0].uuid
    app.services.decisions.note(
        Decision(
            Verb.BIND, 1_790_000_900.0, "uid", "speech", "job-1-0", "bound", 1, 1.0, node="node-0001", devices=(uuid,)
        )
    )


def _be_hostile(app: Extender) -> None:
    """Names that no API server would take: what the page does must not rest on somebody else's checks."""
    app.services.store.set_node(node_facts(SCRIPT))
    held = device("GPU-evil", health=Health.SUSPECT, fault=f"fault {SCRIPT}")
    app.services.store.apply_report(report(SCRIPT, held), app.services.clock.now())
    hold(app, SCRIPT, held, SCRIPT, SCRIPT)
    app.pod_handler().on_set(pod(SCRIPT, gpu=1, gpu_memory=200_000))
    app.services.decisions.note(
        Decision(Verb.BIND, 0.0, "uid", SCRIPT, SCRIPT, "bound", 1, 1.0, node=SCRIPT, devices=("GPU-evil",))
    )
