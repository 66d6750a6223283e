"""Gathers who claims which device outside NVML: kubelet's pod-resources, asked in a thread, and the MPS daemons."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from node_agent.mps import MpsWatch
from node_agent.pod_resources import PodResourcesError, list_allocatable, list_given, plugin_resources
from node_agent.readings import Claims
from node_agent.report import Mode, PluginResource

logger = logging.getLogger(__name__)

ASK_EVERY_S = 15.0
"""The API is rate limited and can be slow (node-side.md 3.7: 10 to 30 s)."""


class ClaimsKeeper:
    """Answers at once with what was heard last; the slow asking happens elsewhere."""

    def __init__(self, socket_path: str, mps: MpsWatch) -> None:
        self._socket_path = socket_path
        self._mps = mps
        self._plugin: tuple[PluginResource, ...] = ()
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._keep_asking, name="claims", daemon=True)

    def start(self) -> None:
        """Begin asking."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; a call under way is given its timeout."""
        self._is_stopping.set()
        if self._thread.is_alive():
            self._thread.join(6.0)

    def claims(self) -> Claims:
        """Return what is known now."""
        plugin = self._plugin
        return Claims(
            plugin=plugin,
            plugin_uuids=frozenset(uuid for resource in plugin for uuid in resource.uuids),
            modes=dict.fromkeys(self._mps.uuids(), Mode.MPS),
            not_ready=self._mps.not_ready(),
        )

    def ask(self) -> None:
        """Ask kubelet and the daemons once; a kubelet that does not answer leaves the last answer standing."""
        self._mps.step()
        if not Path(self._socket_path).exists():
            self._plugin = ()
            return
        try:
            self._plugin = plugin_resources(list_allocatable(self._socket_path), list_given(self._socket_path))
        except PodResourcesError as problem:
            logger.warning("pod resources: %s", problem)

    def _keep_asking(self) -> None:
        while not self._is_stopping.is_set():
            try:
                self.ask()
            except Exception:
                logger.exception("claims could not be gathered")
            self._is_stopping.wait(ASK_EVERY_S)
