"""Fixtures around the stub driver."""

import pytest

from tests.nvml.driver import Driver, compile_stub, compiler


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
