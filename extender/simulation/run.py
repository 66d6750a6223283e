"""``make run``: the product on an in-memory cluster, busy with the production trace; needs Python and nothing else.

The extender and the agents run as processes of their own, as they do in a cluster. This process is everything around
them: the API server, kube-scheduler, kubelets, users. It prints the address of the live page at once, then how it goes,
and last, where FOR is set, one line of JSON. It fails where a device was given away twice or the extender went down.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing

from extender.simulation.apiserver import SimulatedApiServer
from extender.simulation.apiserving import ServedApiServer
from extender.simulation.cluster import Cluster
from extender.simulation.fleet import SimulatedHost, node_object, simulated_hosts
from extender.simulation.leash import Child
from extender.simulation.options import InvalidOption, Options, read_options
from extender.simulation.product import EXTENDER_URL, Product, ProductFailed
from extender.simulation.trace import load_nodes

_WRONG_USAGE = 2
_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, and return the exit status: 0, 1 where something was wrong, 2 for options that cannot be used."""
    try:
        options = read_options(sys.argv[1:] if arguments is None else arguments, os.environ)
    except InvalidOption as problem:
        print(problem, file=sys.stderr)
        return _WRONG_USAGE
    print(f"Live page: http://127.0.0.1:{options.port}/", flush=True)
    try:
        return _simulate(options, time.monotonic())
    except ProductFailed as problem:
        print(problem, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return _INTERRUPTED


def _simulate(options: Options, began: float) -> int:
    """Bring the cluster up in the order in which one comes up; take it down in reverse."""
    with ExitStack() as stack:
        api_url = stack.enter_context(ServedApiServer(SimulatedApiServer())).url
        hosts = simulated_hosts(load_nodes())
        _register(api_url, hosts)
        product = Product(options.port, api_url)
        stack.callback(product.stop)
        agents = Child("extender.simulation.agents", {EXTENDER_URL: product.url})
        stack.callback(agents.stop)
        # Imported here because it takes seconds, which the product needs to start as well.
        from extender.simulation.world import live

        product.wait_until_ready()
        print(
            f"ready after {time.monotonic() - began:.1f} s" + ("" if options.for_s else ", Ctrl-C ends it"), flush=True
        )
        return asyncio.run(live(options, api_url, product, hosts))


def _register(api_url: str, hosts: Sequence[SimulatedHost]) -> None:
    with closing(Cluster(api_url)) as cluster:
        for host in hosts:
            cluster.create_node(node_object(host))


if __name__ == "__main__":
    sys.exit(main())
