"""The list of a new holder: every page of it, bound pods only, and a broken object costs itself alone."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from extender.catchup import list_bound_pods
from extender.errors import KubeError, KubeUnreachable
from extender.objects import Pod


class Pages:
    """A list in pages; an exception in place of a page is raised."""

    def __init__(self, *pages: list[Any] | KubeError) -> None:
        self.pages = pages
        self.asked: list[str] = []

    def list_page(self, path: str, limit: int, continue_token: str) -> bytes:
        assert path == "/api/v1/pods"
        self.asked.append(continue_token)
        number = int(continue_token or 0)
        page = self.pages[number]
        if isinstance(page, KubeError):
            raise page
        following = str(number + 1) if number + 1 < len(self.pages) else ""
        return json.dumps({"metadata": {"resourceVersion": "7", "continue": following}, "items": page}).encode()

    def open_watch(self, path: str, resource_version: str, timeout_s: int, silence_s: float) -> Any:
        raise AssertionError


def pod(name: str, node: str = "") -> Any:
    return {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": {"nodeName": node}}


def listed(pages: Pages) -> list[str]:
    taken: list[Pod] = []
    count = asyncio.run(list_bound_pods(pages, taken.append))
    assert count == len(taken)
    return [each.metadata.name for each in taken]


def test_every_page_is_read_and_pods_without_a_node_are_left_out() -> None:
    pages = Pages([pod("a", "n1"), pod("b")], [pod("c", "n2")])
    assert listed(pages) == ["a", "c"]
    assert pages.asked == ["", "1"]


def test_broken_object_costs_itself_alone() -> None:
    assert listed(Pages([pod("a", "n1"), {"metadata": 5}, pod("c", "n2")])) == ["a", "c"]


def test_failing_page_is_the_callers_to_try_again() -> None:
    with pytest.raises(KubeUnreachable):
        listed(Pages([pod("a", "n1")], KubeUnreachable("gone")))
