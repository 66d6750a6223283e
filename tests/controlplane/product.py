"""The extender as tests run it against a control plane: a process of its own that can be killed at any moment."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx2

from tests.controlplane.process import Process

_READY_S = 90.0  # importing takes long where all cores are busy
_ANSWER_S = 2.0


class ExtenderProcess(Process):
    """An extender that serves on 127.0.0.1:`port`; `command` and `environment` decide everything else.

    As a context manager it is started, waited for until `/readyz` answers 200, and stopped at the end.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], port: int, log: Path) -> None:
        super().__init__("extender", command, log, environment)
        self.url = f"http://127.0.0.1:{port}"

    def __enter__(self) -> Self:
        self.start()
        self.wait_ready()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def is_ready(self) -> bool:
        """Tell whether `/readyz` answers 200 now."""
        return self._status("/readyz") == httpx2.codes.OK

    def is_serving(self) -> bool:
        """Tell whether `/healthz` answers 200 now."""
        return self._status("/healthz") == httpx2.codes.OK

    def wait_ready(self, *, within_s: float = _READY_S) -> None:
        """Wait until the extender is ready. Raises ProcessDied or TimeoutError, with the tail of its output."""
        self.wait_until(self.is_ready, within_s=within_s)

    def wait_serving(self, *, within_s: float = _READY_S) -> None:
        """Wait until the extender answers at all, ready or not."""
        self.wait_until(self.is_serving, within_s=within_s)

    def _status(self, path: str) -> int | None:
        try:
            return httpx2.get(self.url + path, timeout=_ANSWER_S, trust_env=False).status_code
        except httpx2.TransportError:
            return None
