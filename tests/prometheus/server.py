"""A real Prometheus on loopback with our rules, and questions to it."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import yaml

_READY_S = 60.0
_ANSWER_S = 30.0


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Prometheus:
    """Scrapes each job's ports once a second; a context manager that ends it."""

    def __init__(self, binary: str, directory: Path, jobs: Mapping[str, Sequence[int]], rules: Sequence[Path]) -> None:
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(path) for path in rules],
            "scrape_configs": [
                {"job_name": job, "static_configs": [{"targets": [f"127.0.0.1:{port}" for port in ports]}]}
                for job, ports in jobs.items()
            ],
        }
        path = directory / "prometheus.yaml"
        path.write_text(yaml.safe_dump(config))
        [port] = free_ports(1)
        self._url = f"http://127.0.0.1:{port}"
        self._log = directory / "prometheus.log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [
                    binary,
                    f"--config.file={path}",
                    f"--storage.tsdb.path={directory / 'data'}",
                    f"--web.listen-address=127.0.0.1:{port}",
                ],
                stdout=log,
                stderr=log,
            )

    def __enter__(self) -> Self:
        deadline = time.monotonic() + _READY_S
        while not self._is_ready():
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.1)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(20)

    def query(self, expression: str) -> list[Any]:
        """Return what an instant query finds; AssertionError with Prometheus' words where it refuses the query."""
        return self._ask(f"query?{urllib.parse.urlencode({'query': expression})}")["result"]

    def rules(self) -> list[dict[str, Any]]:
        """Return every rule with its health."""
        return [rule for group in self._ask("rules")["groups"] for rule in group["rules"]]

    def targets(self) -> list[dict[str, Any]]:
        """Return every target with its health."""
        return self._ask("targets")["activeTargets"]

    def _ask(self, path: str) -> Any:
        try:
            with urllib.request.urlopen(f"{self._url}/api/v1/{path}", timeout=_ANSWER_S) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as refusal:
            raise AssertionError(f"{path}: {refusal.read().decode()}") from refusal

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._url}/-/ready", timeout=1) as answer:
                return answer.status == 200
        except OSError:
            return False
