import pytest

from node_agent.mps import MpsDevice, MpsWatch, parse_mps_devices
from node_agent.report import Mode

# Speaks the daemon's commands and keeps its state in the pipe directory, as the real one does.
STAND_IN = """#!/bin/sh
dir="$CUDA_MPS_PIPE_DIRECTORY"
if [ "$1" = "-d" ]; then
  [ -e "$dir/refuse" ] && { echo "cannot start"; exit 1; }
  echo "$CUDA_VISIBLE_DEVICES" > "$dir/alive"; exit 0
fi
[ -e "$dir/alive" ] || { echo "Cannot find MPS control daemon process"; exit 1; }
while read -r line; do
  echo "$line" >> "$dir/heard"
  case "$line" in
    get_server_list) echo ;;
    quit) rm "$dir/alive" ;;
    set_default_*) ;;
    *) echo "unknown command"; exit 1 ;;
  esac
done
"""


@pytest.fixture
def control(tmp_path):
    path = tmp_path / "nvidia-cuda-mps-control"
    path.write_text(STAND_IN)
    path.chmod(0o755)
    return str(path)


class Clock:
    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def watch(tmp_path, control, clock):
    devices = [MpsDevice("GPU-a", 4096, 25), MpsDevice("GPU-b")]
    return MpsWatch(tmp_path / "mps", control, devices, clock)


def heard(watch, uuid):
    return (watch.pipe_directory(uuid) / "heard").read_text().split("\n")


def test_nothing_is_ready_before_the_daemons_answer(watch):
    assert watch.not_ready() == {"GPU-a", "GPU-b"}


def test_daemons_are_started_on_their_device_with_its_defaults(watch):
    watch.step()
    assert watch.not_ready() == frozenset()
    assert (watch.pipe_directory("GPU-a") / "alive").read_text() == "GPU-a\n"
    assert "set_default_device_pinned_mem_limit 0 4096M" in heard(watch, "GPU-a")
    assert "set_default_active_thread_percentage 25" in heard(watch, "GPU-a")
    assert not any(line.startswith("set_default") for line in heard(watch, "GPU-b"))


def test_daemon_that_lives_is_taken_over_after_a_restart_of_ours(watch, tmp_path, control, clock):
    watch.step()
    again = MpsWatch(tmp_path / "mps", control, [MpsDevice("GPU-a", 4096, 25)], clock)
    again.step()
    assert again.not_ready() == frozenset()
    assert heard(watch, "GPU-a").count("set_default_active_thread_percentage 25") == 1


def test_daemon_that_died_is_noticed_and_started_again(watch, clock):
    watch.step()
    (watch.pipe_directory("GPU-a") / "alive").unlink()
    (watch.pipe_directory("GPU-a") / "refuse").touch()
    clock.now_s = 11
    watch.step()
    assert watch.not_ready() == {"GPU-a"}
    (watch.pipe_directory("GPU-a") / "refuse").unlink()
    clock.now_s = 12
    watch.step()
    assert watch.not_ready() == {"GPU-a"}, "a pause comes before the next try"
    clock.now_s = 22
    watch.step()
    assert watch.not_ready() == frozenset()


def test_driver_without_the_binary_leaves_the_devices_not_ready(tmp_path, clock):
    watch = MpsWatch(tmp_path, str(tmp_path / "absent"), [MpsDevice("GPU-a")], clock)
    watch.step()
    assert watch.not_ready() == {"GPU-a"}


def test_close_asks_the_daemons_to_quit(watch):
    watch.step()
    watch.close()
    assert not (watch.pipe_directory("GPU-a") / "alive").exists()


def test_setting_is_read():
    assert parse_mps_devices("GPU-a=4096:25, GPU-b ,,GPU-c=512") == [
        MpsDevice("GPU-a", 4096, 25),
        MpsDevice("GPU-b"),
        MpsDevice("GPU-c", 512),
    ]
    assert parse_mps_devices("") == []


@pytest.mark.parametrize("text", ["0", "GPU-a=x", "GPU-a=1:0", "GPU-a=1:101", "GPU-a=-5"])
def test_setting_that_cannot_be_read_is_refused(text):
    with pytest.raises(ValueError, match="mps_devices"):
        parse_mps_devices(text)


def test_claims_carry_the_mode(watch):
    from node_agent.claims import ClaimsKeeper

    watch.step()
    claims = ClaimsKeeper("/nonexistent", watch).claims()
    assert claims.modes == {"GPU-a": Mode.MPS, "GPU-b": Mode.MPS}
    assert claims.not_ready == frozenset()
