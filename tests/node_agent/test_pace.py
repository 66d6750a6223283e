from hypothesis import given
from hypothesis import strategies as st

from node_agent.pace import Pace, PaceTimes
from node_agent.report import Device, Health, PluginResource, Report
from node_agent.significance import matters

TIMES = PaceTimes(heartbeat_s=15, gap_s=1, backoff_first_s=0.5, backoff_limit_s=30, first_s=2, jitter=0.1)


class TestPace:
    """Rule: news waits for the gap, silence for the jittered heartbeat, everything for the backoff."""

    def test_first_push_is_spread_over_the_first_span(self):
        assert [Pace(TIMES, lambda draw=draw: draw, 100).due_s(is_urgent=False) for draw in (0.0, 0.5)] == [100, 101]

    def test_after_success_news_waits_for_the_gap_and_the_heartbeat_is_jittered(self):
        pace = Pace(TIMES, lambda: 0.0, 0)
        pace.succeeded(10)
        assert (pace.due_s(is_urgent=True), pace.due_s(is_urgent=False)) == (11, 10 + 15 * 0.9)

    @given(st.lists(st.floats(0, 1), min_size=1, max_size=40))
    def test_backoff_is_within_a_span_that_doubles_up_to_the_limit(self, draws):
        for number, draw in enumerate(draws):
            pace = Pace(TIMES, lambda draw=draw: draw, 0)
            for _ in range(number + 1):
                pace.failed(50)
            span_s = min(30, 0.5 * 2**number)
            assert 50 <= pace.due_s(is_urgent=True) <= 50 + span_s
            assert pace.due_s(is_urgent=True) == pace.due_s(is_urgent=False)

    def test_success_ends_the_backoff(self):
        pace = Pace(TIMES, lambda: 1.0, 0)
        for _ in range(9):
            pace.failed(0)
        pace.succeeded(0)
        pace.failed(0)
        assert pace.due_s(is_urgent=True) == 0.5

    def test_asked_heartbeat_is_kept_within_limits(self):
        pace = Pace(TIMES, lambda: 0.5, 0)
        for asked_s, kept_s in ((0, 1), (-5, 1), (60, 60), (1e9, 300)):
            pace.set_heartbeat(asked_s)
            pace.succeeded(0)
            assert pace.due_s(is_urgent=False) == kept_s


def told(**fields):
    device = {"uuid": "GPU-a", "utilisation": 0.3, "total_mib": 1000, **fields}
    return Report(version=1, node="n", agent_run="r", sequence=1, devices=(Device(**device),))


class TestMatters:
    def test_first_report_matters(self):
        assert matters(None, told())

    def test_an_equal_report_does_not(self):
        assert not matters(told(), told())

    def test_what_the_device_is_matters(self):
        for fields in ({"health": Health.OUT}, {"total_mib": 999}, {"mode_ready": False}, {"uuid": "GPU-b"}):
            assert matters(told(), told(**fields))

    def test_foreign_memory_matters_when_it_appears_goes_or_moves(self):
        assert matters(told(), told(foreign_mib=1))
        assert matters(told(foreign_mib=1), told())
        assert not matters(told(foreign_mib=1000), told(foreign_mib=1127))
        assert matters(told(foreign_mib=1000), told(foreign_mib=1128))

    def test_load_matters_when_it_crosses_a_step_by_more_than_noise(self):
        assert not matters(told(utilisation=0.49), told(utilisation=0.51))
        assert not matters(told(utilisation=0.26), told(utilisation=0.49))
        assert matters(told(utilisation=0.45), told(utilisation=0.6))
        assert matters(told(utilisation=None), told(utilisation=0.6))

    def test_temperature_waits_for_the_heartbeat(self):
        assert not matters(told(temperature_celsius=40), told(temperature_celsius=80))

    def test_what_the_plugin_handed_out_matters(self):
        before, after = (
            Report(
                version=1,
                node="n",
                agent_run="r",
                sequence=1,
                plugin=(PluginResource(resource="nvidia.com/gpu", replicas=8, used=used),),
            )
            for used in (0, 1)
        )
        assert matters(before, after)
