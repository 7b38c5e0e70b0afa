# SPDX-License-Identifier: Apache-2.0
"""The command line of `run`: one job a client, some at a time, and the tables of what they saw."""

import argparse
import concurrent.futures
import json
import os
import signal
import subprocess
import sys
import time

import catalog
import faults
import job
import library
import trace_calls

JOB_SECONDS = 1800
LIBRARIES = ("nixl_posix", "kill_writer", "disk_error")


def parse(text):
    parser = argparse.ArgumentParser(description=text,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("list", "matrix", "faults", "all", "strace", "job"))
    parser.add_argument("--quick", action="store_true", help="fewer sizes, threads and engines")
    parser.add_argument("--client", action="append", metavar="NAME")
    parser.add_argument("--fault", action="append", choices=[f.name for f in faults.FAULTS])
    parser.add_argument("--sizes", type=lambda s: tuple(int(n) for n in s.split(",")),
                        metavar="N,N", help="page sizes, of " + ", ".join(map(str, job.SIZES)))
    parser.add_argument("--engine", choices=("uring", "posix"), action="append", dest="engines",
                        help="of the daemon, for the faults; both without --quick")
    parser.add_argument("--jobs", type=int, default=3, help="clients at a time (3)")
    logs = os.environ.get("CPL3_TEST_LOGS", "build/reports/clients")
    parser.add_argument("--logs", default=logs, help="where logs of what failed are kept")
    parser.add_argument("--what", choices=("matrix", "faults", "all"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    names = catalog.clients()
    unknown = set(options.client or ()) - set(names)
    if unknown:
        parser.error(f"no client is called {', '.join(unknown)}: {', '.join(names)}")
    if options.sizes and set(options.sizes) - set(job.SIZES):
        parser.error(f"--sizes: of {job.SIZES}")
    options.client = options.client or list(names)
    options.engines = options.engines or (["auto"] if options.quick else ["uring", "posix"])
    options.logs = os.path.abspath(options.logs)
    return options


class Jobs:
    """Runs one job a client; they are ended when this process is told to end."""

    def __init__(self, options):
        self._options = options
        self._running = set()
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))

    def _run(self, client):
        started = time.monotonic()
        process = subprocess.Popen(self._command(client), stdout=subprocess.PIPE, text=True,
                                   stdin=subprocess.DEVNULL, start_new_session=True,
                                   env=dict(os.environ, LD_PRELOAD=library.path("kill_writer")))
        self._running.add(process)
        try:
            output, _ = process.communicate(timeout=JOB_SECONDS)
        except subprocess.TimeoutExpired:
            process.terminate()
            output, _ = process.communicate()
        self._running.discard(process)
        try:
            cells = json.loads(output)
        except ValueError:
            cells = [{"table": "jobs", "client": client, "column": "job", "status": "FAIL",
                      "text": f"ended with status {process.returncode}: {output[-500:]}"}]
        failed = [c for c in cells if c["status"] == "FAIL"]
        print(f"{client}: {len(cells)} cells, {len(failed)} failed, "
              f"{time.monotonic() - started:.1f} s", flush=True)
        for cell in failed:
            print(f"  {cell['column']}: {cell['text'].splitlines()[0]}", flush=True)
        return cells

    def _command(self, client):
        o = self._options
        command = [sys.executable, sys.argv[0], "job", "--what", o.command, "--client", client,
                   "--logs", o.logs]
        command += ["--quick"] * o.quick
        command += [word for f in o.fault or () for word in ("--fault", f)]
        command += [word for e in o.engines for word in ("--engine", e) if e != "auto"] \
            if o.engines != ["auto"] else []
        if o.sizes:
            command += ["--sizes", ",".join(map(str, o.sizes))]
        return command

    def run(self):
        pool = concurrent.futures.ThreadPoolExecutor(self._options.jobs)
        try:
            futures = [pool.submit(self._run, client) for client in self._options.client]
            return [cell for future in futures for cell in future.result()]
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list(self._running):
                process.terminate()


def worst(cells):
    """What one field of a table says of several cells."""
    for status in ("FAIL", "limit"):
        if any(cell["status"] == status for cell in cells):
            return status
    counts = (map(int, cell["text"].split("/")) for cell in cells if cell["text"])
    sums = [sum(numbers) for numbers in zip(*counts)]
    return "ok" + (" " + "/".join(map(str, sums)) if sums else "")


def print_table(title, cells):
    """Rows: clients. Columns: the first word of the cells' column."""
    print(f"\n{title}")
    columns = list(dict.fromkeys(cell["column"].split()[0] for cell in cells))
    rows = [[""] + columns]
    for client in dict.fromkeys(cell["client"] for cell in cells):
        fields = [[c for c in cells if c["client"] == client and c["column"].split()[0] == column]
                  for column in columns]
        rows.append([client] + [worst(field) if field else "-" for field in fields])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(field.ljust(width) for field, width in zip(row, widths)).rstrip())


def print_reasons(heading, reasons):
    """reasons: (client, text, column); columns of the same text stand together."""
    columns = {}
    for client, text, column in reasons:
        columns.setdefault((client, text), {})[column] = True
    if columns:
        print(f"\n{heading}")
    for (client, text), where in columns.items():
        print(f"  {client} ({', '.join(where)}): {text}")


def report(cells, quick):
    """The tables, what is wrong, and the totals. The exit code."""
    modes = "2 threads and 2 processes" if quick else "1 and 16 threads, 2 processes"
    titles = {"matrix": f"Client x page bytes; {modes}, on the disk and on the mount:",
              "faults": "Client x fault; ok hits/misses/clean errors:"}
    for table, title in titles.items():
        chosen = [cell for cell in cells if cell["table"] == table]
        if chosen:
            print_table(title, chosen)
    print_reasons("Limits of the clients themselves:", (
        (c["client"], c["text"].split("\n")[0], c["column"].split()[0])
        for c in cells if c["status"] == "limit"))
    print_reasons("Failed:", ((c["client"], c["text"].replace("\n", "\n    "), c["column"])
                                  for c in cells if c["status"] == "FAIL"))
    counts = {s: sum(cell["status"] == s for cell in cells) for s in ("ok", "limit", "FAIL")}
    print(f"\nclients: {len(cells)} cells, {counts['ok']} ok, {counts['limit']} limits, "
          f"{counts['FAIL']} failed")
    return 1 if counts["FAIL"] or not cells else 0


def main(text):
    options = parse(text)
    missing = [library.path(name) for name in LIBRARIES if not os.path.exists(library.path(name))]
    if options.command == "list":
        for name, client in catalog.clients().items():
            print(f"{name:28} {client.__module__}.py")
        print("faults:", ", ".join(fault.name for fault in faults.FAULTS))
        return 0
    for path in [library.daemon(), *missing]:
        if not os.path.exists(path):
            print(f"run: {path} is not there: make build-clients first", file=sys.stderr)
            return 2
    if options.command == "job":
        return job.main(options)
    if options.command == "strace":
        return trace_calls.main(options.client)
    return report(Jobs(options).run(), options.quick)
