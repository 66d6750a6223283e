from __future__ import annotations

import sqlite3
import time
from dataclasses import replace

import msgspec
import pytest

from extender.history import DELETED, History, HistoryUnavailable
from extender.history_file import ATTEMPTS_A_POD, EXPLANATIONS_A_POD, MEMORY, Attempt, Bounds, Explanation, HistoryFile

DAY_S = 86_400.0
NOW = 1_000_000_000.0


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def _attempt(name: str = "p", at: float = NOW, **values) -> Attempt:
    defaults = {"pod_uid": f"uid-{name}", "verb": "filter", "outcome": "refused", "reasons": {"NoDevices": 3}}
    return Attempt("ml", name, first_at=at, last_at=at, **{**defaults, **values})


def _explanation(at: float = NOW, body: bytes = b'{"x":1}') -> Explanation:
    return Explanation("ml", "p", "uid-p", at, msgspec.Raw(body))


class TestFile:
    def test_attempts_come_back_as_they_went_in(self):
        file = HistoryFile(MEMORY, Bounds(), "replica-0")
        attempt = _attempt(nodes_in=9, nodes_out=1, node="n1", message="m", devices=("GPU-0", "GPU-1"), policy="spread")
        file.write([attempt], NOW)
        assert file.attempts("ml", "p", 10) == (replace(attempt, replica="replica-0"),)

    def test_equal_outcomes_in_a_row_are_one_attempt(self):
        file = HistoryFile(MEMORY, Bounds())
        file.write([_attempt(at=NOW + second) for second in range(50)], NOW)
        (only,) = file.attempts("ml", "p", 10)
        assert (only.times, only.first_at, only.last_at) == (50, NOW, NOW + 49)

    def test_another_count_is_another_attempt(self):
        file = HistoryFile(MEMORY, Bounds())
        file.write([_attempt(), _attempt(at=NOW + 1, reasons={"NoDevices": 4}), _attempt(at=NOW + 2)], NOW)
        assert [each.reasons["NoDevices"] for each in file.attempts("ml", "p", 10)] == [3, 4, 3]

    def test_pods_of_one_name_are_told_apart(self):
        file = HistoryFile(MEMORY, Bounds())
        file.write([_attempt(), _attempt(pod_uid="uid-new", at=NOW + 1)], NOW)
        assert [each.pod_uid for each in file.attempts("ml", "p", 10)] == ["uid-new", "uid-p"]

    def test_what_is_older_than_its_days_goes(self):
        file = HistoryFile(MEMORY, Bounds(days=2))
        file.write([_attempt("old"), _explanation()], NOW)
        file.write([_attempt("new", NOW + 3 * DAY_S)], NOW + 3 * DAY_S)
        assert file.attempts("ml", "old", 10) == ()
        assert file.explanations("ml", "p") == ()
        assert file.since() == NOW + 3 * DAY_S

    def test_file_stays_within_its_size_and_keeps_the_newest(self, tmp_path):
        path = tmp_path / "history.db"
        file = HistoryFile(str(path), Bounds(megabytes=1))
        for number in range(120):
            file.write([_attempt(f"p{number}-{each}", NOW + number, message="x" * 500) for each in range(50)], NOW)
        assert path.stat().st_size <= 2**20
        assert file.attempts("ml", "p119-49", 1)
        assert not file.attempts("ml", "p0-0", 1)
        file.close()

    def test_rows_of_one_pod_are_bounded(self):
        file = HistoryFile(MEMORY, Bounds())
        file.write([_attempt(at=NOW + each, nodes_in=each) for each in range(ATTEMPTS_A_POD + 20)], NOW)
        file.write([_explanation(NOW + each) for each in range(EXPLANATIONS_A_POD + 3)], NOW)
        assert len(file.attempts("ml", "p", 2 * ATTEMPTS_A_POD)) == ATTEMPTS_A_POD
        assert file.explanations("ml", "p")[0].at == NOW + EXPLANATIONS_A_POD + 2

    def test_damaged_file_is_put_aside(self, tmp_path):
        path = tmp_path / "history.db"
        path.write_bytes(b"not a database, but long enough to be taken for one" * 100)
        file = HistoryFile(str(path), Bounds())
        file.write([_attempt()], NOW)
        assert file.attempts("ml", "p", 1)
        assert (tmp_path / "history.db.broken").exists()
        file.close()

    def test_explanation_comes_back_as_it_was(self):
        file = HistoryFile(MEMORY, Bounds(), "r")
        file.write([_explanation(body=b'{"a":[1,2]}')], NOW)
        assert bytes(file.explanations("ml", "p")[0].body) == b'{"a":[1,2]}'


@pytest.fixture
def histories():
    made: list[History] = []

    def make(path: str = "", **values) -> History:
        history = History(path, Bounds(), "replica-0", lambda: NOW, **values)
        made.append(history)
        return history

    yield make
    for history in made:
        history.stop()


@pytest.mark.anyio
class TestThread:
    async def test_what_is_noted_is_found(self, histories, tmp_path):
        history = histories(str(tmp_path / "h.db"))
        history.start()
        history.note(_attempt())
        found = await history.of_pod("ml", "p")
        assert [each.outcome for each in found.attempts] == ["refused"]
        assert found.kept.is_durable

    async def test_a_file_outlives_its_process(self, histories, tmp_path):
        first = histories(str(tmp_path / "h.db"))
        first.start()
        first.note(_attempt())
        first.stop()
        second = histories(str(tmp_path / "h.db"))
        second.start()
        assert (await second.of_pod("ml", "p")).attempts

    async def test_memory_says_that_it_ends_with_the_process(self, histories):
        history = histories()
        history.start()
        kept = (await history.of_pod("ml", "p")).kept
        assert not kept.is_durable
        assert "end with its process" in kept.note

    async def test_full_disk_costs_explanations_only_and_is_counted(self, histories):
        """/dev/full answers every write with ENOSPC; SQLite refuses to make its file there."""
        history = histories("/dev/full")
        history.start()
        history.note(_attempt())
        with pytest.raises(HistoryUnavailable):
            await history.of_pod("ml", "p")
        assert sum(history.lost.values()) == 1

    async def test_full_file_is_counted_and_leaves_what_was_there(self, histories, tmp_path):
        history = histories(str(tmp_path / "h.db"))
        history.start()
        history.note(_attempt())
        await history.of_pod("ml", "p")
        history._file._base.execute("PRAGMA max_page_count = 1")
        for number in range(400):
            history.note(_attempt(f"q{number}", message="x" * 2000))
        assert (await history.of_pod("ml", "p")).attempts
        assert history.lost["SQLITE_FULL"] == 400
        assert history.trouble

    async def test_locked_file_is_counted_and_kept_again_once_free(self, histories, tmp_path):
        path = str(tmp_path / "h.db")
        history = histories(path, again_s=0.0)
        history.start()
        history.note(_attempt("before"))
        await history.of_pod("ml", "before")
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        history.note(_attempt("during"))
        await history.of_pod("ml", "before")
        other.execute("ROLLBACK")
        other.close()
        assert sum(history.lost.values()) == 1
        history.note(_attempt("after"))
        found = await history.of_pod("ml", "after")
        assert len(found.attempts) == 1
        assert found.kept.trouble == ""

    async def test_noting_never_waits_and_counts_what_the_queue_cannot_hold(self, histories, monkeypatch):
        monkeypatch.setattr("extender.history._QUEUED", 10)
        history = histories()
        began = time.monotonic()
        for _ in range(1000):
            history.note(_attempt())
        assert time.monotonic() - began < 0.5
        assert history.lost["queue-full"] == 990

    async def test_without_its_thread_it_says_so(self, histories):
        with pytest.raises(HistoryUnavailable, match="not running"):
            await histories().of_pod("ml", "p")


@pytest.mark.anyio
async def test_file_that_is_deleted_while_it_is_written_to_is_begun_anew(tmp_path):
    path = tmp_path / "history.db"
    history = History(str(path), Bounds(), "replica-0")
    history.start()
    history.note(_attempt("before"))
    assert (await history.of_pod("ml", "before")).attempts
    for file in tmp_path.iterdir():
        file.unlink()
    history.note(_attempt("after"))
    told = await history.of_pod("ml", "after")
    history.stop()
    assert [each.name for each in told.attempts] == ["after"]
    assert told.kept.lost == {DELETED: 1}
    assert HistoryFile(str(path), Bounds()).attempts("ml", "after", 10)
