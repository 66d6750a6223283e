"""The commands and their options; what each does is in a module of its own, imported when it runs."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from extender.cli.arguments import Access, Output, hoisted
from extender.cli.problems import CliProblem

app = typer.Typer(
    name="tangram",
    help="Ask and operate Tangram, the GPU sharing of this cluster.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
explain_app = typer.Typer(no_args_is_help=True, help="Tell why a pod is where it is, or nowhere.")
policy_app = typer.Typer(no_args_is_help=True, help="Policies: weights of what makes a node better.")
app.add_typer(explain_app, name="explain")
app.add_typer(policy_app, name="policy")
mix_app = typer.Typer(no_args_is_help=True, help="The mix of request shapes that placement plans for.")
app.add_typer(mix_app, name="mix")

Namespace = Annotated[str, typer.Option("--namespace", "-n", help="Namespace of the pod.")]


class Order(StrEnum):
    """What ``top`` sorts by."""

    NODE = "node"
    BOOKED = "booked"
    USED = "used"
    FREE = "free"


def run() -> None:
    """Run the command line of this process and exit; ``kubectl-tangram`` is shown as ``kubectl tangram``."""
    name = Path(sys.argv[0]).name
    try:
        app(args=hoisted(sys.argv[1:]), prog_name="kubectl tangram" if name.startswith("kubectl") else "tangram")
    except CliProblem as problem:
        sys.stderr.write(f"tangram: {problem}\n")
        sys.exit(problem.status)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


@app.callback()
def everywhere(
    context: typer.Context,
    url: Annotated[str, typer.Option(envvar="TANGRAM_URL", help="Address of an extender's people port.")] = "",
    token: Annotated[str, typer.Option(envvar="TANGRAM_TOKEN", help="Bearer token that may see pod names.")] = "",
    ca: Annotated[str, typer.Option(envvar="TANGRAM_CA", help="File with the authority of its certificate.")] = "",
    kubeconfig: Annotated[str, typer.Option(help="Kubeconfig for the port-forward, and for cordon.")] = "",
    kube_context: Annotated[str, typer.Option("--context", help="Context of the kubeconfig.")] = "",
    api_server: Annotated[str, typer.Option(help="Plain address of the API server instead, for trials.")] = "",
    system_namespace: Annotated[str, typer.Option(help="Where Tangram is installed.")] = "tangram-system",
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print.")] = Output.TEXT,
) -> None:
    """Options that stand anywhere on the line."""
    context.obj = Access(url, token, ca, kubeconfig, kube_context, api_server, system_namespace, output)


@explain_app.command("pod")
def explain_pod(
    context: typer.Context,
    name: str,
    namespace: Namespace = "default",
    attempts: Annotated[int, typer.Option(min=1, max=500, help="Attempts to show, newest first.")] = 20,
) -> None:
    """Tell why a pod is where it is or nowhere: in words, in numbers, now and at each attempt."""
    from extender.cli.explain import explain

    explain(context.obj, namespace, name, attempts)


@app.command("why-not")
def why_not(context: typer.Context, node: str, pod: str, namespace: Namespace = "default") -> None:
    """Tell how one node fares for a pod, device by device."""
    from extender.cli.explain import why_not as tell

    tell(context.obj, node, namespace, pod)


@app.command()
def top(
    context: typer.Context,
    sort: Annotated[Order, typer.Option(help="What comes first.")] = Order.NODE,
    node: Annotated[str, typer.Option(help="Only this node.")] = "",
) -> None:
    """List devices, booked beside measured."""
    from extender.cli.top import top as list_devices

    list_devices(context.obj, str(sort), node)


@app.command()
def usage(
    context: typer.Context,
    idle_minutes: Annotated[float, typer.Option(min=0, help="Pods idle for at least so long.")] = 60.0,
) -> None:
    """List pods that leave booked GPUs idle, pods that use more than booked, and GPU hours by namespace."""
    from extender.cli.top import usage as list_usage

    list_usage(context.obj, idle_minutes)


@app.command()
def audit(context: typer.Context) -> None:
    """Compare books, annotations and measurements; exit 1 where they differ."""
    from extender.cli.audit import audit as compare

    compare(context.obj)


@policy_app.command("check")
def policy_check(context: typer.Context, file: Path) -> None:
    """Check policies in a file, alone or in the extender's settings; exit 1 where they cannot be used."""
    from extender.cli.policy import check

    check(file, context.obj.output)


@mix_app.command("export")
def mix_export(context: typer.Context) -> None:
    """Print what the extender has learned, as a file for the setting mix_file."""
    from extender.cli.mix import export_mix

    export_mix(context.obj)


@mix_app.command("check")
def mix_check(context: typer.Context, file: Path) -> None:
    """Say what is wrong with a file for the setting mix_file, or what it holds; without a cluster."""
    from extender.cli.mix import check_mix

    check_mix(file, context.obj.output)


@policy_app.command("list")
def policy_list(context: typer.Context) -> None:
    """List the policies of the running extender."""
    from extender.cli.policy import list_policies

    list_policies(context.obj)


@app.command()
def cordon(context: typer.Context, uuid: str, node: Annotated[str, typer.Option(help="Its node.")] = "") -> None:
    """Give a device to no new pods; pods on it stay."""
    from extender.cli.cordon import cordon as change

    change(context.obj, uuid, node, cordon=True)


@app.command()
def uncordon(context: typer.Context, uuid: str, node: Annotated[str, typer.Option(help="Its node.")] = "") -> None:
    """Give a device to new pods again."""
    from extender.cli.cordon import cordon as change

    change(context.obj, uuid, node, cordon=False)


@app.command()
def report(
    context: typer.Context,
    file: Annotated[Path, typer.Option("--file", "-f", help="Where to write it.")] = Path("tangram-report.tar.gz"),
) -> None:
    """Write a support bundle: state, decisions, metrics, audit and versions of one extender."""
    from extender.cli.report import report as bundle

    bundle(context.obj, file)


@app.command()
def serve() -> None:
    """Serve the extender, as in a cluster; settings come from TANGRAM_... and TANGRAM_CONFIG."""
    from extender.cli.serve import serve as serve_extender

    raise typer.Exit(serve_extender())


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def simulate(context: typer.Context) -> None:
    """Run the product on a simulated cluster; takes --for SECONDS, --seed and --port."""
    from extender.cli.serve import simulate as simulate_cluster

    raise typer.Exit(simulate_cluster(context.args))
