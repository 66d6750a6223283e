"""Fixtures that start a real control plane; whatever uses them carries the marker `controlplane`."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.controlplane.build import Binaries, GoMissing, binaries
from tests.controlplane.plane import ControlPlane
from tests.controlplane.scheduler import plain_configuration

PlaneFactory = Callable[..., ControlPlane]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test that needs the built programs, before `-m` selects by marker."""
    for item in items:
        if "control_plane_binaries" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.controlplane)


@pytest.fixture(scope="session")
def control_plane_binaries(pytestconfig: pytest.Config) -> Binaries:
    """Build what the tests start, or take it from the cache; progress is shown while it lasts."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    try:
        if capture is None:
            return binaries()
        with capture.global_and_fixture_disabled():
            return binaries()
    except GoMissing as missing:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def start_control_plane(
    control_plane_binaries: Binaries, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PlaneFactory]:
    """Start control planes without a scheduler, with the keyword arguments of ControlPlane; all end with the module."""
    with ExitStack() as started:

        def start(**settings: object) -> ControlPlane:
            directory: Path = tmp_path_factory.mktemp("controlplane")
            plane = ControlPlane(control_plane_binaries, directory, **settings)  # type: ignore[arg-type]
            return started.enter_context(plane)

        yield start


@pytest.fixture(scope="module")
def control_plane(start_control_plane: PlaneFactory) -> ControlPlane:
    """One control plane for the module, with the stock scheduler for pods that name none."""
    plane = start_control_plane()
    plane.start_scheduler(plain_configuration())
    return plane
