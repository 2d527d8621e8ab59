"""The controller's process: `python -m controllers.main --fabric FABRIC.json --port TCPPORT ...`

Listens on 127.0.0.1 for the fabric's switches.  Prints one JSON line when every switch is programmed,
{"programmed": switches, "flows": total}, or {"error": text} and ends with exit code 1.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import signal
from pathlib import Path
from typing import Any

from controllers.routing.routes import ROUTINGS, Router, RoutingError
from topologies.graph.fabric import Fabric
from topologies.ranks.multipath import Hashing

HOST = "127.0.0.1"
_PATIENCE_S = 3600  # with a switch that does not read: a busy machine may keep Open vSwitch from it for long


def main(argv: list[str] | None = None) -> None:
    """Run until a signal ends it.  The switches keep their flows then."""
    gc.set_threshold(100_000)  # most of what is made is imported, and stays
    options = _parser().parse_args(argv)
    logging.basicConfig(
        filename=options.log, level=logging.INFO, format="%(asctime)s.%(msecs)03d %(message)s", datefmt="%H:%M:%S"
    )
    for noisy in ("os_ken", "ryu", "ofp_event"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    # The library's threads would outlive an ordinary exit, and there is nothing to clean up.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))

    from controllers.app import Settings  # imports the OpenFlow library
    from controllers.apps import AppError, find_apps
    from controllers.report import fail, fail_app

    try:
        fabric = Fabric.from_dict(json.loads(options.fabric.read_text()))
        settings = Settings(
            fabric,
            Router(
                fabric,
                options.routing,
                dateline=options.dateline,
                cable_bps=options.cable_bps,
                hashing=Hashing(options.hash_seed, options.hash_dest_qp),
            ),
            options.dpid_base,
            options.fabricd,
            options.ovs,
            tuple(find_apps(options.app)),
        )
    except AppError as error:
        fail_app(error)
        return
    except (OSError, ValueError, KeyError, TypeError) as error:
        what = error.what if isinstance(error, RoutingError) else f"not a fabric: {error!r}"
        fail(f"{options.fabric}: {what}")
        return
    try:
        serve(settings, options.port)
    except AppError as error:
        fail_app(error)
        return
    fail(f"cannot listen on {HOST}:{options.port}; is the port in use?")


def serve(settings: Any, port: int) -> None:
    """Run the application and the user's; returns only if listening fails.  Raises AppError."""
    from controllers.apps import Railbed, blame, import_app
    from controllers.openflow.compat import LIBRARY, app_manager, cfg, hub

    arguments = ["--ofp-listen-host", HOST, "--ofp-tcp-listen-port", str(port)]
    cfg.CONF(args=arguments, project=LIBRARY, default_config_files=[])
    cfg.CONF.set_override("socket_timeout", _PATIENCE_S)
    manager = app_manager.AppManager.get_instance()
    Railbed.fabric, Railbed.dpid_base = settings.fabric, settings.dpid_base
    # Ours is loaded last: it asks the others for their part before any of them runs.
    manager.load_apps([*(import_app(path) for path in settings.apps), "controllers.app"])
    contexts = manager.create_contexts()
    try:
        threads = manager.instantiate_apps(settings=settings, **contexts)
    except Exception as error:
        if (blamed := blame(settings.apps, error)) is None:
            raise
        raise blamed from error
    hub.joinall(threads)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="controllers.main", description="Route one fabric's switches.")
    parser.add_argument("--fabric", type=Path, required=True, metavar="FILE", help="the fabric, as JSON")
    parser.add_argument("--port", type=int, required=True, help="TCP port to listen on")
    parser.add_argument(
        "--dpid-base", type=lambda text: int(text, 0), required=True, metavar="INT", help="high bits of datapath ids"
    )
    parser.add_argument("--fabricd", metavar="SOCKET", help="fabricd's control socket")
    parser.add_argument("--ovs", type=Path, required=True, metavar="SOCKET", help="ovs-vswitchd's control socket")
    parser.add_argument("--routing", choices=list(ROUTINGS), default="ecmp")
    parser.add_argument(
        "--cable-bps",
        type=float,
        metavar="RATE",
        help="adaptive: ports weigh by rates, that of cables that have none of their own being this",
    )
    parser.add_argument("--hash-seed", type=int, metavar="INT", help="ecmp: of all switches' hashes")
    parser.add_argument(
        "--hash-dest-qp", action="store_true", help="ecmp: chips hash by the destination's queue pair, too"
    )
    parser.add_argument("--dateline", action="store_true", help="torus, ring: a second class for what wraps around")
    parser.add_argument(
        "--app",
        action="append",
        default=[],
        metavar="FILE",
        help="an application of your own (docs/controller-apps.md)",
    )
    parser.add_argument("--log", metavar="FILE", help="log there instead of on standard error")
    return parser


if __name__ == "__main__":
    main()
