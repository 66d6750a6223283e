"""The live page: what it loads, what it is told, and what it may cost."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender import pages
from extender.holdings import PodIdentity
from extender.objects import Condition, PodStatus
from extender.pages.live import MAX_VIEWERS, LiveView, TooManyViewers
from extender.pages.picture import UNKNOWN, Painter
from extender.pages.waiting import in_words
from extender.viewers import HIDDEN
from node_agent.report import Health, Usage
from scoring.request import ContainerAsk, PodRequest
from tests.support.builders import A100_MIB, T4_MIB, bound, device, identity, node_facts, pod, report, store_with
from tests.support.harness import Harness, harness

pytestmark = pytest.mark.anyio

STATIC = Path(pages.__file__).parent / "static"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def bench(**values: object) -> Harness:
    return harness(
        {
            "a": [device("GPU-a", utilisation=0.25, used_mib=1024)],
            "b": [device("GPU-b", name="Tesla T4", total_mib=T4_MIB)],
        }
    )


def view_of(bench: Harness) -> LiveView:
    return bench.app._view


def column(cells: dict[str, str], name: str, dtype: str = "<u2") -> list[int]:
    return np.frombuffer(b64decode(cells[name]), dtype=dtype).tolist()


async def updates(view: LiveView, count: int) -> list[dict]:
    stream = view.updates()
    try:
        return [json.loads((await anext(stream)).removeprefix(b"data: ")) for _ in range(count)]
    finally:
        await stream.aclose()
        await view.stop()


class TestAssets:
    async def test_the_page_allows_nothing_from_elsewhere(self):
        answer = await bench().http.get("/")
        assert answer.status_code == 200
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy

    async def test_every_asset_that_the_page_names_is_served(self):
        http = bench().http
        page = (await http.get("/")).text
        names = re.findall(r'(?:src|href)="(/[^"]+)"', page)
        assert len(names) == 4
        for name in names:
            assert (await http.get(name)).status_code == 200

    @pytest.mark.parametrize("name", ["nothing.js", "..%2flive.py", "__init__.py"])
    async def test_nothing_but_assets_is_served(self, name):
        answer = await bench().http.get(f"/assets/{name}")
        assert answer.status_code == 404

    @pytest.mark.parametrize("path", sorted(STATIC.glob("*")), ids=lambda path: path.name)
    def test_no_asset_writes_html_or_asks_another_host(self, path):
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", text)
        assert not re.search(r"https?://", text)

    def test_the_page_has_neither_inline_script_nor_inline_style(self):
        page = (STATIC / "index.html").read_text(encoding="utf-8")
        assert not re.search(r"<script(?![^>]*src=)|<style|\sstyle=|\son\w+=", page)

    def test_every_module_that_is_imported_exists(self):
        for path in STATIC.glob("*.js"):
            for name in re.findall(r'from "\./([^"]+)"', path.read_text(encoding="utf-8")):
                assert (STATIC / name).is_file(), f"{path.name} imports {name}"


class TestUpdates:
    async def test_the_first_update_has_every_device_with_its_shares(self):
        made = bench()
        made.store.set_pod(bound("p", "GPU-a", memory_mib=A100_MIB // 4, compute_milli=300, node="a"))
        (first,) = await updates(view_of(made), 1)
        kinds, cells = first["layout"]["kinds"], first["cells"]
        assert first["layout"]["nodes"] == ["a", "b"]
        assert [kinds[kind]["product"] for kind in column(first["layout"], "kind_of")] == ["A100-SXM4-80GB", "T4"]
        assert column(cells, "compute") == [300, 0]
        assert column(cells, "memory") == [250, 0]
        assert column(cells, "load") == [250, 0]
        assert column(cells, "used") == [1024 * 1000 // A100_MIB, UNKNOWN]
        assert column(cells, "state") == [3, 3]
        assert column(cells, "counts") == [1, 0]
        assert (column(cells, "share_compute"), column(cells, "share_memory")) == ([300], [250])
        assert (column(cells, "share_space"), first["namespaces"]) == ([0], ["default"])

    async def test_later_updates_have_changed_devices_only(self):
        made = bench()
        stream = view_of(made).updates()
        await anext(stream)
        made.store.set_pod(bound("p", "GPU-b", memory_mib=T4_MIB // 2, compute_milli=500, node="b"))
        found = [json.loads((await anext(stream)).removeprefix(b"data: ")) for _ in range(2)]
        await stream.aclose()
        await view_of(made).stop()
        changed = [each["cells"] for each in found if "cells" in each]
        assert not any("layout" in each for each in found)
        assert [column(cells, "index", "<u4") for cells in changed] == [[1]]
        assert column(changed[0], "compute") == [500]

    async def test_who_may_not_see_names_sees_no_namespaces_either(self):
        made = bench()
        made.store.set_pod(bound("p", "GPU-a", memory_mib=A100_MIB // 4, compute_milli=300, node="a"))
        view = view_of(made)
        view.advance()
        told = json.loads(view._update(keeps_up=False, names=False).removeprefix(b"data: "))
        assert "namespaces" not in told
        assert "share_space" not in told["cells"]
        assert column(told["cells"], "share_compute") == [300]

    async def test_a_namespace_is_told_once_it_holds_a_share(self):
        made = bench()
        view = view_of(made)
        view.advance()
        who = PodIdentity("uid-q", "vision", "q")
        made.store.set_pod(bound("q", "GPU-b", memory_mib=1024, compute_milli=100, node="b", pod=who))
        view.advance()
        told = json.loads(view._update(keeps_up=True, names=True).removeprefix(b"data: "))
        assert told["namespaces"] == ["vision"]
        view.advance()
        assert b"namespaces" not in view._update(keeps_up=True, names=True)

    async def test_a_page_that_fell_behind_gets_everything(self):
        made = bench()
        view = view_of(made)
        stream = view.updates()
        await anext(stream)
        view.advance()
        view.advance()
        late = json.loads((await anext(stream)).removeprefix(b"data: "))
        await stream.aclose()
        await view.stop()
        assert "layout" in late

    async def test_a_new_node_brings_a_new_layout(self):
        made = bench()
        view = view_of(made)
        view.advance()
        made.store.set_node(node_facts("c"))
        made.store.apply_report(report("c", device("GPU-c")), made.clock.now())
        view.advance()
        assert view._changes is None
        assert b'"c"' in view._update(keeps_up=True, names=True)

    async def test_as_many_pages_as_allowed_and_no_more(self):
        made = bench()
        view = view_of(made)
        open_pages = [view.updates() for _ in range(MAX_VIEWERS)]
        for each in open_pages:
            await anext(each)
        with pytest.raises(TooManyViewers):
            view.updates()
        refused = await made.http.get("/v1/stream")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "10")
        await open_pages.pop().aclose()
        again = view.updates()
        assert await anext(again)
        for each in (*open_pages, again):
            await each.aclose()
        await view.stop()

    async def test_nothing_is_computed_while_nobody_looks(self):
        view = view_of(bench())
        await updates(view, 1)
        assert view._viewers == 0
        turn = view._turn
        assert view._ticker is None
        assert view._turn == turn

    async def test_broken_and_silent_devices_are_told_apart(self):
        made = harness(
            {
                "a": [device("GPU-0", health=Health.OUT, fault="XID 79"), device("GPU-1", health=Health.SUSPECT)],
                "b": [device("GPU-b")],
            }
        )
        made.clock.advance(60)
        made.store.apply_report(
            report("a", device("GPU-0", health=Health.OUT), device("GPU-1", health=Health.SUSPECT)), made.clock.now()
        )
        made.store.expire(made.clock.now())
        (first,) = await updates(view_of(made), 1)
        assert column(first["cells"], "state") == [1, 2, 0]
        assert (first["summary"]["out"], first["summary"]["stale"]) == (1, 1)


class TestLists:
    async def test_a_waiting_pod_is_shown_with_what_it_asks_and_why_it_waits(self):
        made = bench()
        hungry = pod("hungry", gpu=1, gpu_memory=200_000)
        made.app.pod_handler().on_set(hungry)
        await made.filter(hungry, ["a", "b"])
        made.clock.advance(7)
        (first,) = await updates(view_of(made), 1)
        (waiting,) = first["waiting"]
        assert waiting["pod"] == "default/hungry"
        assert waiting["for_s"] == 7
        assert waiting["asks"] == "200000 MiB of a GPU"
        assert waiting["why"] == "2 request is larger than any GPU of the node"
        assert first["decisions"][0]["pod"] == "default/hungry"
        assert first["decisions"][0]["reasons"] == [[2, "request is larger than any GPU of the node"]]

    async def test_kube_schedulers_own_words_are_shown_where_it_has_spoken(self):
        made = bench()
        made.app.pod_handler().on_set(pod("p", gpu=1, gpu_compute=50))
        words = "0/2 nodes are available: 2 Insufficient cpu."
        condition = Condition("PodScheduled", "False", "Unschedulable", words)
        told = msgspec.structs.replace(pod("p", gpu=1, gpu_compute=50), status=PodStatus(conditions=(condition,)))
        made.app.pod_handler().on_set(told)
        (first,) = await updates(view_of(made), 1)
        assert first["waiting"][0]["why"] == "2 Insufficient cpu."

    async def test_a_pod_that_nobody_has_tried_yet_has_no_reason(self):
        made = bench()
        made.app.pod_handler().on_set(pod("p", gpu=1, gpu_compute=50))
        (first,) = await updates(view_of(made), 1)
        assert first["waiting"][0]["why"] == ""

    async def test_a_pod_stops_waiting_when_it_is_placed_or_gone(self):
        made = bench()
        handler, waiting = made.app.pod_handler(), view_of(made).waiting
        for name in ("placed", "gone"):
            handler.on_set(pod(name, gpu=1, gpu_compute=50))
        assert len(waiting) == 2
        handler.on_set(pod("placed", gpu=1, gpu_compute=50, node="a"))
        waiting.on_gone("uid-gone")
        assert len(waiting) == 0

    async def test_a_bind_is_told_with_node_and_number_of_devices(self):
        made = bench()
        assert await made.run(pod("p", gpu=1, gpu_compute=50), ["a", "b"])
        (first,) = await updates(view_of(made), 1)
        told = first["decisions"][0]
        assert (told["verb"], told["devices"]) == ("bind", 1)
        assert told["node"] in {"a", "b"}

    @pytest.mark.parametrize(
        ("asks", "words"),
        [
            pytest.param([ContainerAsk("m", 1, None, 1000)], "a whole GPU", id="one device"),
            pytest.param([ContainerAsk("m", 8, None, 1000)], "8 whole GPUs", id="eight devices"),
            pytest.param([ContainerAsk("m", 1, 7700, 470)], "47 % and 7700 MiB of a GPU", id="a share"),
            pytest.param([ContainerAsk("m", 2, 100, None)], "100 MiB of each of 2 GPUs", id="shares of two"),
        ],
    )
    def test_asks_are_put_in_words(self, asks, words):
        assert in_words(PodRequest(tuple(asks))) == words


class TestDetails:
    async def test_a_node_shows_booked_beside_measured(self):
        made = bench()
        made.store.set_pod(bound("p", "GPU-a", memory_mib=8192, compute_milli=300, node="a"))
        usage = Usage(pod_uid="uid-p", uuid="GPU-a", memory_mib=9000, container="main", sm_ratio=0.2)
        held = device("GPU-a", utilisation=0.2, used_mib=9000, temperature_celsius=61)
        made.store.apply_report(report("a", held, usage=(usage,)), made.clock.now())
        found = (await made.http.get("/v1/live/nodes/a")).json()
        (shown,) = found["devices"]
        assert (shown["used_mib"], shown["utilisation"], shown["temperature_celsius"]) == (9000, 0.2, 61)
        (share,) = shown["shares"]
        assert (share["pod"], share["memory_mib"], share["used_mib"], share["used_sm"]) == (
            "default/p",
            8192,
            9000,
            0.2,
        )

    async def test_a_device_tells_its_last_hour_and_who_was_placed_there(self):
        made = bench()
        view = view_of(made)
        node = await made.run(pod("p", gpu=1, gpu_compute=50), ["a"])
        await view.traces.round()
        found = (await made.http.get(f"/v1/live/nodes/{node}")).json()
        past = found["history"]["GPU-a"]
        assert [sample["compute"] for sample in past["trace"]] == [0.5]
        assert [each["pod"] for each in past["placed"]] == ["default/p"]
        assert [each["pod"] for each in view.node("a", names=False)["history"]["GPU-a"]["placed"]] == [HIDDEN]

    async def test_an_unknown_node_is_named_in_the_refusal(self):
        answer = await bench().http.get("/v1/live/nodes/nowhere")
        assert answer.status_code == 404
        assert "nowhere" in answer.json()["error"]


class TestLaws:
    """A picture made from the one before equals one painted anew, whatever happened in between."""

    @settings(max_examples=40, deadline=None)
    @given(
        st.lists(
            st.tuples(
                st.sampled_from(["bind", "free", "load"]), st.integers(0, 5), st.integers(0, 2), st.integers(1, 300)
            ),
            max_size=25,
        )
    )
    def test_looking_at_changes_only_misses_none(self, steps):
        held = [device(f"GPU-{number}") for number in range(3)]
        store, painter = store_with(*held), Painter()
        painter.paint(store.snapshot(), store.ledger, store.nodes())
        for now, (step, who, slot, milli) in enumerate(steps, start=1001):
            match step:
                case "bind" if not store.ledger.is_gone(f"uid-{who}"):
                    store.set_pod(bound(f"p{who}", f"GPU-{slot}", 100, milli, pod=identity(f"p{who}", f"uid-{who}")))
                case "free":
                    store.release(f"uid-{who}")
                case "load":
                    changed = [device(f"GPU-{number}", utilisation=milli / 1000, used_mib=milli) for number in range(3)]
                    store.apply_report(report("n1", *changed), float(now))
            seen = painter.paint(store.snapshot(), store.ledger, store.nodes())
            anew = Painter().paint(store.snapshot(), store.ledger, store.nodes())
            assert seen.shares == anew.shares
            for name, expected in anew.columns.items():
                assert np.array_equal(seen.columns[name], expected), name
