"""A Dask cluster among the members of a room.

All connections are TLS with the credential of this machine in its room (CHEETAH_ROOM, or the only one that it knows), and
only examiners and analysts of the room take part.
"""

import argparse
import asyncio
import contextlib
import os
import signal
import sys

import distributed  # type: ignore[import-untyped,unused-ignore]

from cheetah.triage.workers.room_security import RoomSecurity, room_security

PORT = 8786
# Dask's status pages are unencrypted HTTP, so they are served on this machine only.
PAGES = "127.0.0.1:0"


def arguments() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    parser = argparse.ArgumentParser(prog="python3 -m cheetah.dask", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    scheduler = verbs.add_parser("scheduler", help="run the scheduler")
    scheduler.add_argument("--host", help="address at which to listen [default: every address]")
    scheduler.add_argument("--port", type=int, default=PORT, help=f"[default: {PORT}; 0: any]")
    scheduler.add_argument("--scheduler-file", metavar="FILE", help="file to write the address to, as JSON")
    worker = verbs.add_parser("worker", help="run workers, each a process with one thread")
    worker.add_argument("address", help="of the scheduler: tls://HOST:PORT")
    worker.add_argument("--nworkers", type=int, default=-1, metavar="N", help="[default: -1, one per processor]")
    return parser


async def run(given: argparse.Namespace, security: RoomSecurity) -> None:
    """Runs the scheduler or the workers until a signal ends this process."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with contextlib.AsyncExitStack() as stack:
        if given.verb == "scheduler":
            scheduler = distributed.Scheduler(
                protocol="tls", host=given.host, port=given.port, security=security, scheduler_file=given.scheduler_file,
                dashboard=False, dashboard_address=PAGES,
            )  # fmt: skip
            await stack.enter_async_context(scheduler)
            print(f"scheduler at {scheduler.address}", flush=True)
        else:
            workers = given.nworkers if given.nworkers > 0 else os.cpu_count() or 1
            nannies = [
                distributed.Nanny(given.address, nthreads=1, security=security, dashboard_address=PAGES)
                for _ in range(workers)
            ]
            await asyncio.gather(*(stack.enter_async_context(nanny) for nanny in nannies))
            print(f"{workers} workers of {given.address}", flush=True)
        await stop.wait()


def main() -> int:
    """Runs the command. Returns the exit code."""
    given = arguments().parse_args()
    try:
        asyncio.run(run(given, room_security()))
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
