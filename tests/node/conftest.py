"""The product on a node of its own, once for the whole run; whatever uses it carries the marker `node`."""

import os
from collections.abc import Iterator

import pytest

from tests.node import bringup
from tests.node.pods import Workload
from tests.node.product import Product

_ORDER = {  # the fault's quiet minutes pass while other tests run, and what is known of it ends with a reboot
    "test_fault_is_told_to_its_pods_and_keeps_new_ones_away": -1,
    "test_faulty_device_comes_back_by_rule": 1,
    "test_node_that_reboots_brings_pods_back_on_their_devices": 2,
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test that needs the node, before `-m` selects by marker."""
    for item in items:
        if "product" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.node)
    places = [place for place, item in enumerate(items) if item.get_closest_marker("node")]
    ours = sorted((items[place] for place in places), key=lambda item: _ORDER.get(item.name, 0))
    for place, item in zip(places, ours, strict=True):
        items[place] = item


@pytest.fixture(scope="session")
def product(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """The product as the chart installs it, on a real node; skipped, saying why, where the machine cannot carry one."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    assert capture is not None
    with capture.global_and_fixture_disabled():
        reason = bringup.missing()
    if reason and os.environ.get("CI"):
        pytest.fail(reason)
    if reason:
        pytest.skip(reason)
    with bringup.product_on_a_node(tmp_path_factory.mktemp("node")) as found:
        yield found


@pytest.fixture
def workload(product: Product) -> Iterator[Workload]:
    """Pods of one test; when it ends they are gone and nobody holds anything."""
    found = Workload(product)
    yield found
    found.clear()
