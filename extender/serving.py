"""How the application is served: one process, one worker (several would be several books).

Idle connections are kept longer than kube-scheduler's client keeps them (90 s): a request that meets a closing
connection is not repeated and costs its pod a back-off (extender-protocol.md section 7.3).
"""

from __future__ import annotations

import uvicorn

from extender.app import Extender
from extender.at_once import served_at_once
from extender.settings import Settings

KEEP_ALIVE_S = 120
SHUTDOWN_S = 5
"""How long answers under way, and live pages, may take when the process is told to stop."""

BACKLOG = 8192


def server_for(app: Extender, settings: Settings) -> uvicorn.Server:
    """Return the server, not started yet."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            host=settings.host,
            port=settings.port,
            loop="uvloop",
            http=served_at_once(app.at_once),
            ws="none",
            workers=1,
            backlog=BACKLOG,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=SHUTDOWN_S,
            access_log=False,
            log_level="warning",
            server_header=False,
            date_header=False,
        )
    )
