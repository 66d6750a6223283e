"""Serve the extender in a cluster: ``python -m extender``."""

from __future__ import annotations

import sys

from extender.app import Surroundings, create_app
from extender.errors import KubeUnreachable
from extender.kube import KubeClient
from extender.logs import set_up_logs
from extender.serving import server_for
from extender.settings import InvalidSettings, load_settings

_WRONG_SETTINGS = 2
_NO_CLUSTER = 3


def main() -> int:
    """Read the settings, connect to the API server of this pod's cluster and serve until told to stop."""
    try:
        settings = load_settings()
    except InvalidSettings as error:
        for problem in error.problems:
            print(f"settings: {problem}", file=sys.stderr)
        return _WRONG_SETTINGS
    set_up_logs(settings.log_level)
    try:
        kube = KubeClient.in_cluster() if not settings.api_server else KubeClient.from_url(settings.api_server)
    except KubeUnreachable as error:
        print(f"API server: {error}", file=sys.stderr)
        return _NO_CLUSTER
    server_for(create_app(settings, Surroundings(kube, kube)), settings).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
