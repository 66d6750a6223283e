"""Nothing that a test starts outlives the test run, and what dies says why."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.controlplane.api import wait_for
from tests.controlplane.loopback import free_ports
from tests.controlplane.process import Process, ProcessDied
from tests.controlplane.product import ExtenderProcess

SLEEP = (sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)")
READY_AFTER_THREE = """
    import http.server, sys
    class Handler(http.server.BaseHTTPRequestHandler):
        asked = 0
        def do_GET(self):
            Handler.asked += 1
            self.send_response(503 if Handler.asked < 3 else 200)
            self.end_headers()
    http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(") ")[2][0] != "Z"


def test_process_keeps_its_output_over_kills_and_restarts(tmp_path: Path) -> None:
    process = Process("sleeper", SLEEP, tmp_path / "log")
    process.start()
    first = process.pid
    wait_for("its first line", lambda: process.tail() == "up\n")
    process.restart()
    wait_for("its second line", lambda: process.tail() == "up\nup\n")
    assert process.is_running()
    assert process.pid != first
    process.stop()
    assert not process.is_running()
    assert not is_alive(process.pid)


def test_death_is_reported_with_the_last_output(tmp_path: Path) -> None:
    process = Process("failing", (sys.executable, "-c", "raise SystemExit('no port left')"), tmp_path / "log")
    process.start()
    with pytest.raises(ProcessDied, match="failing ended with 1; its last output:\nno port left"):
        process.wait_until(lambda: False, within_s=10)


def test_process_that_never_gets_ready_is_reported(tmp_path: Path) -> None:
    process = Process("sleeper", SLEEP, tmp_path / "log")
    process.start()
    with pytest.raises(TimeoutError, match="sleeper is not ready after 0 s"):
        process.wait_until(lambda: False, within_s=0.2)
    process.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux signals the death of a parent")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_process_dies_with_a_test_run_that_is_killed(tmp_path: Path, number: signal.Signals) -> None:
    run = f"""
        import time
        from pathlib import Path
        from tests.controlplane.process import Process
        process = Process("sleeper", {SLEEP!r}, Path({str(tmp_path / "log")!r}))
        process.start()
        print(process.pid, flush=True)
        time.sleep(60)
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(run)], stdout=subprocess.PIPE, text=True) as runner:
        assert runner.stdout is not None
        pid = int(runner.stdout.readline())
        wait_for("the program runs", lambda: (tmp_path / "log").read_text() == "up\n")
        assert is_alive(pid)
        runner.send_signal(number)
    wait_for("the program is gone", lambda: not is_alive(pid))


def test_extender_is_waited_for_until_it_is_ready(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    command = (sys.executable, "-c", textwrap.dedent(READY_AFTER_THREE), str(port))
    with ExtenderProcess(command, {"TANGRAM_TEST": "1"}, port, tmp_path / "log") as extender:
        assert extender.is_ready()
        extender.kill()
        assert not extender.is_ready()
        extender.start()
        extender.wait_ready()
    assert not extender.is_running()
