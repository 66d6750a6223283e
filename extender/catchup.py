"""Reads every pod that is bound, consistently, before a new holder of the lease writes anything.

The watch may lag behind what the holder before wrote; this list may not. What a watch told meanwhile is newer than a
page of this list: a pod that ended stays ended (the ledger remembers), one that is bound is never unbound.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from extender.objects import Pod
from extender.reflection import DECODE_ERRORS, PODS, ListWatch, read_page

_LOG = structlog.get_logger(__name__)
_PAGE_OBJECTS = 250


async def list_bound_pods(source: ListWatch, take: Callable[[Pod], None]) -> int:
    """Hand every bound pod of a list that begins now to ``take``, and return how many; raises KubeError.

    Pages are read in a thread and taken in on the loop. An object that cannot be read is skipped and logged.
    """
    count, token = 0, ""
    while True:
        body = await asyncio.to_thread(source.list_page, PODS.path, _PAGE_OBJECTS, token)
        page = read_page(body)
        for raw in page.items or ():
            pod = _pod(raw)
            if pod is not None and pod.spec.node_name:
                take(pod)
                count += 1
        token = page.metadata.continue_token
        if not token:
            return count


def _pod(raw: bytes) -> Pod | None:
    try:
        return PODS.decoder.decode(raw)
    except DECODE_ERRORS as error:
        _LOG.warning("pod_unreadable", error=str(error))
        return None
