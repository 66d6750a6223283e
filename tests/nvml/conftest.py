"""Fixtures around the stub driver."""

import pytest

from node_agent.supervisor import Supervisor
from tests.nvml.driver import TIMES, Driver, compile_stub, compiler


@pytest.fixture(scope="session")
def stub_library(tmp_path_factory):
    if compiler() is None:
        pytest.skip("no C compiler: the stub driver cannot be built")
    return compile_stub(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="session")
def old_stub_library(tmp_path_factory):
    if compiler() is None:
        pytest.skip("no C compiler: the stub driver cannot be built")
    return compile_stub(tmp_path_factory.mktemp("nvml-old"), "-DOLD_DRIVER")


@pytest.fixture
def driver(stub_library, tmp_path):
    return Driver(stub_library, tmp_path / "scenario.txt")


@pytest.fixture
def old_driver(old_stub_library, tmp_path):
    return Driver(old_stub_library, tmp_path / "scenario.txt")


@pytest.fixture
def supervise():
    """Start readers in processes of their own; they end with the test."""
    started = []

    def start(driver, times=TIMES, **environ):
        supervisor = Supervisor(times, environ={**driver.environ(), **environ})
        started.append(supervisor)
        return supervisor

    yield start
    for supervisor in started:
        supervisor.close()


@pytest.fixture
def sweep(driver, supervise):
    """Read the driver once in a process of its own."""
    return lambda: supervise(driver).read()
