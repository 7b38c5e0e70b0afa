# SPDX-License-Identifier: Apache-2.0
"""All cells of one client, in a process of its own that has kill_writer.c preloaded. The result is
a list of cells, as JSON on standard output: table, client, column, status (ok, limit, FAIL),
text."""

import json
import os
import shutil
import signal
import sys

import catalog
import fault
import faults
import matrix
from actor import Died, Failed, Hang
from mounted import MIB, Mount, MountError, die_with_parent

MATRIX_STORE = 4096 * MIB
MATRIX_MEMORY = 256 * MIB
LARGE_MEMORY = 2560 * MIB  # half of it for what 16 threads write at once: a large page each, or two
PROBLEMS = (Hang, Died, Failed, MountError, OSError)
MODES = ((1, 1), (16, 1), (1, 2))
QUICK_MODES = ((2, 1), (1, 2))
SIZES = tuple(matrix.PAGES)
QUICK_SIZES = (4096, 70272, 4497408)
FAULT_SIZES = (278, 70272, 262144, 4497408)
SECOND_ENGINE_SIZES = (262144,)  # the engines differ in slab I/O alone
QUICK_FAULT_SIZES = (262144,)
INLINE_BYTES_MAX = 4096
DIFFERENCES_SHOWN = 6


class Job:
    def __init__(self, client_class, options):
        self._client, self._options = client_class, options
        self.cells = []

    def _report(self, table, column, status, text=""):
        self.cells.append({"table": table, "client": self._client.name, "column": column,
                           "status": status, "text": text})

    def _keep_log(self, mount, name):
        os.makedirs(self._options.logs, exist_ok=True)
        target = os.path.join(self._options.logs, f"{self._client.name}-{name}.log")
        shutil.copyfile(mount.log, target)
        return target

    # matrix

    def matrix(self):
        modes = QUICK_MODES if self._options.quick else MODES
        sizes = self._options.sizes or (QUICK_SIZES if self._options.quick else SIZES)
        cells = [matrix.Cell(self._client, size, threads, processes)
                 for size in sizes for threads, processes in modes]
        memory = LARGE_MEMORY if max(sizes) >= matrix.LARGE_BYTES else MATRIX_MEMORY
        mount = Mount(MATRIX_STORE, memory, max_file_bytes=64 * MIB)
        stages, problems = [], {cell: [] for cell in cells}
        try:
            mount.start()
            for cell in cells:
                stages.append((matrix.Stage(cell, mount.plain, False),
                               matrix.Stage(cell, mount.rank, True)))
            self._act("first_act", stages, mount, problems)
            mount.stop()
            mount.start("load")
            self._act("second_act", stages, mount, problems)
            mount.stop()
        except PROBLEMS as problem:
            for cell in cells:
                problems[cell].append(f"the mount: {problem}")
        for plain, mounted in stages:
            self._compare(plain, mounted, problems[plain.cell])
        log = self._keep_log(mount, "matrix") if any(problems.values()) else ""
        mount.close()
        unaligned = self._client.limits.get("unaligned")
        for cell, found in problems.items():
            column, text = f"{cell.size} {cell.title}", "\n".join(found + [f"log: {log}"])
            if unaligned and cell.size % 4096 and all(w.startswith("on the disk") for w in found):
                self._report("matrix", column, "limit", f"{unaligned}; on the mount it is well")
            else:
                self._report("matrix", column, "FAIL" if found else "ok", text if found else "")

    def _act(self, act, stages, mount, problems):
        for stage in (stage for pair in stages for stage in pair):
            if problems[stage.cell]:
                continue
            try:
                stage.play(act)
            except PROBLEMS as problem:
                problems[stage.cell].append(f"{act} on {'mount' if stage.on_mount else 'disk'}: "
                                            f"{type(problem).__name__}: {problem}")
                if stage.on_mount and isinstance(problem, Hang):
                    mount.abort()

    @staticmethod
    def _compare(plain, mounted, problems):
        for stage, where in ((plain, "on the disk"), (mounted, "on the mount")):
            stage.end()
            for what in stage.wrong[:DIFFERENCES_SHOWN]:
                problems.append(f"{where}: {what}")
        if not problems:
            problems.extend(matrix.differences(plain, mounted)[:DIFFERENCES_SHOWN])

    # faults

    def faults(self):
        sizes = self._options.sizes or (QUICK_FAULT_SIZES if self._options.quick else FAULT_SIZES)
        for i, engine in enumerate(self._options.engines):
            for size in sizes if i == 0 or self._options.sizes else SECOND_ENGINE_SIZES:
                self._faults_of_size(engine, size)

    def _faults_of_size(self, engine, size):
        mount = None
        for each in faults.FAULTS:
            if self._options.fault and each.name not in self._options.fault:
                continue
            if size <= INLINE_BYTES_MAX and not each.inline:
                continue
            if mount is None:
                mount = Mount(faults.store_bytes(size), engine=engine)
                try:
                    mount.start()
                except PROBLEMS as problem:
                    self._report("faults", f"{each.name} {size} {engine}", "FAIL", str(problem))
                    break
            if not self._play(mount, each, size, engine):
                mount.close()
                mount = None
        if mount:
            mount.close()

    def _play(self, mount, each, size, engine):
        """False: the mount is not fit for the next fault."""
        scene = fault.Scene(mount, self._client, size, each.name)
        verdict, fit = scene.verdict, True
        try:
            mount.control("clear")
            each.play(scene)
        except PROBLEMS as problem:
            verdict.wrong.append(f"{type(problem).__name__}: {problem}")
            mount.abort()
            fit = False
        scene.end()
        words = (each.name, *each.limits, "evict")
        excuse = next((self._client.limits[w] for w in words if w in self._client.limits), None)
        column = f"{each.name} {size} {engine}"
        text = "\n".join(dict.fromkeys(verdict.wrong[:DIFFERENCES_SHOWN]))
        if not verdict.wrong and verdict.misses and self._client.miss_limit:
            self._report("faults", column, "limit", self._client.miss_limit)
        elif not verdict.wrong:
            text = f"{verdict.hits}/{verdict.misses}/{verdict.errors}"
            self._report("faults", column, "ok", text)
        elif excuse and fit and verdict.excusable:
            self._report("faults", column, "limit", f"{excuse}\n{text}")
        else:
            log = self._keep_log(mount, f"{each.name}-{size}-{engine}")
            self._report("faults", column, "FAIL", f"{text}\nlog: {log}")
        return fit and not verdict.wrong


def main(options):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    die_with_parent(signal.SIGTERM)
    job = Job(catalog.clients()[options.client[0]], options)
    if options.what in ("matrix", "all"):
        job.matrix()
    if options.what in ("faults", "all"):
        job.faults()
    json.dump(job.cells, sys.stdout)
    return 0
