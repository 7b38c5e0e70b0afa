# SPDX-License-Identifier: Apache-2.0
"""The matrix: each client does its whole life at each size, with threads and processes, once on
the plain disk and once on the mount. On both, what it stored it must get back; and all that it saw
must be the same on both.

A cell's engines are one or more processes (actors), each with one client and one or more threads;
a worker is one of these threads, with pages of its own. Workers go through the steps together.
Between the two acts the daemon is restarted with `load`, while the engines live on; the second act
is played by them and by a fresh client of the same directory."""

import collections
import dataclasses
import multiprocessing
import os
import threading

import observe
import page
from actor import Actor

STEP_SECONDS = 60
PAGES = {278: 12, 4096: 32, 70272: 8, 262144: 6, 4497408: 2, 33554432: 1}
SHARED_PAGES = 2
LARGE_BYTES = 16 << 20


@dataclasses.dataclass(frozen=True)
class Cell:
    client: type
    size: int
    threads: int
    processes: int

    @property
    def title(self):
        return f"{self.processes} processes" if self.processes > 1 else f"{self.threads} threads"

    @property
    def workers(self):
        return self.threads * self.processes

    def keys(self, worker):
        return [page.key(self.client.name, self.size, self.title, worker, i)
                for i in range(PAGES[self.size])]

    def all_keys(self):
        return {key for worker in range(self.workers) for key in self.keys(worker)}


class Seen:
    """What the workers saw: how often which result in which step; and what must never be."""

    def __init__(self):
        self.counts = collections.Counter()
        self.wrong = []
        self._lock = threading.Lock()

    def count(self, step, result):
        with self._lock:
            self.counts[step, result] += 1
        if result.startswith("WRONG"):
            self.fail(step, result)

    def expect(self, step, result, wanted):
        self.count(step, result)
        if result != wanted:
            self.fail(step, f"{result}, not {wanted}")

    def fail(self, step, what):
        with self._lock:
            self.wrong.append(f"{step}: {what}")


class Worker:
    """One thread of an engine, in one act."""

    def __init__(self, cell, client, index, seen, barrier, on_mount):
        self._cell, self._client, self._index = cell, client, index
        self._seen, self._barrier, self._on_mount = seen, barrier, on_mount
        self._keys = cell.keys(index)
        self._others = cell.keys((index + 1) % cell.workers)

    def _together(self):
        self._barrier.wait(STEP_SECONDS)

    def _get(self, step, key, version):
        result = observe.get(self._client, key, [version], self._cell.size)
        self._seen.expect(step, result, f"hit {version}")

    def _get_absent(self, step, key):
        """Some raise: no engine asks for a page that it does not believe to be there."""
        self._seen.count(step, observe.get(self._client, key, [1, 2], self._cell.size))

    def _list(self, step, wanted):
        keys = observe.listing(self._client)
        result = ("never" if keys is None else "complete" if keys == wanted else
                  f"{len(wanted - keys)} missing, {len(keys - wanted)} too many")
        self._seen.count(step, result)

    def _store(self):
        for step in ("put", "put again"):
            for key in self._keys:
                result = observe.put(self._client, key, 1, self._cell.size)
                self._seen.expect(step, result, "stored")

    def _look(self):
        absent = page.key("absent", self._index)
        for key in self._keys:
            self._seen.expect("exists", observe.exists(self._client, key), "True")
            self._get("get", key, 1)
        self._seen.expect("exists absent", observe.exists(self._client, absent), "False")
        self._get_absent("get absent", absent)
        for key in self._others if self._does_all() else ():
            self._seen.count("get another's",
                             observe.get(self._client, key, [1], self._cell.size))
        self._list("list", self._cell.all_keys())

    def _does_all(self):
        """With the largest pages only some workers overwrite and read those of others."""
        return self._cell.size < LARGE_BYTES or self._index % 4 == 0

    def _overwrite(self):
        size = self._cell.size
        if not self._does_all():
            return
        pages = [(key, page.payload(key, 2, size)) for key in self._keys[::2]]
        for stored in self._client.write_many(pages):
            self._seen.expect("overwrite", str(stored), "True")

    def _look_in_batches(self):
        found = self._client.exists_many(self._keys)
        got = self._client.get_many(self._keys, self._cell.size)
        for i, key in enumerate(self._keys):
            self._seen.expect("exists in a batch", str(bool(found[i])), "True")
            result = "miss" if got[i] is None else observe.judge(
                self._client, got[i], key, [self._version(i)], self._cell.size)
            self._seen.expect("get in a batch", result, f"hit {self._version(i)}")

    def _version(self, i):
        return 2 if i % 2 == 0 and self._does_all() else 1

    def _share(self):
        """All workers write the same pages, each its own version, and read them meanwhile: any
        version, but whole. Only on the mount: a plain directory shows half-written pages to
        clients that write under the final name."""
        size, versions = self._cell.size, range(10, 10 + self._cell.workers)
        keys = [page.key("shared", self._cell.client.name, size, self._cell.title, i)
                for i in range(SHARED_PAGES)]
        for key in keys:
            result = observe.put(self._client, key, versions[self._index], size, over=True)
            if result.startswith("raises"):
                self._seen.fail("put of a shared page", result)
            result = observe.get(self._client, key, versions, size)
            if not result.startswith(("hit", "miss")) or result.startswith("miss E"):
                self._seen.fail("get of a shared page", result)
        self._together()
        for key in keys:
            result = observe.get(self._client, key, versions, size)
            if not result.startswith("hit"):
                self._seen.fail("get of a shared page at rest", result)
        self._together()
        for key in keys:
            self._client.delete(key)
        self._client.noted()

    def _delete(self, key):
        self._client.delete(key)
        self._seen.expect("exists after delete", observe.exists(self._client, key), "False")
        self._get_absent("get after delete", key)
        self._client.delete(key)

    def first_act(self):
        self._store()
        self._together()
        self._look()
        self._together()
        self._overwrite()
        self._together()
        self._look_in_batches()
        self._together()
        if self._on_mount and self._cell.size < LARGE_BYTES:
            self._share()
            self._together()
        if len(self._keys) > 1:
            self._delete(self._keys[-1])

    def second_act(self, fresh):
        """fresh: a client that was made after the restart."""
        rest = self._keys[:-1] if len(self._keys) > 1 else self._keys
        for i, key in enumerate(rest):
            for path in self._client.files(key):
                self._seen.expect("stored", str(os.path.exists(path)), "True")
            self._get("get after restart", key, self._version(i))
            if self._does_all():
                result = observe.get(fresh, key, [self._version(i)], self._cell.size)
                self._seen.count("get by a new engine", result)
        self._together()
        self._delete(rest[0])
        self._together()
        if self._index == 0:
            self._client.clear()
        self._together()
        self._list("list after clear", set())
        for key in rest:
            self._get_absent("get after clear", key)
        if self._index == 0:
            files = sum(len(names) for _, _, names in os.walk(self._client.root))
            self._seen.count("files after clear", str(files))


class Engine:
    """What an actor of the matrix holds: one client and its threads."""

    def __init__(self, cell, root, process, barrier, on_mount):
        self._cell, self._root, self._process = cell, root, process
        self._barrier, self._on_mount = barrier, on_mount
        self._client = cell.client(root)
        self._client.start()

    def _play(self, act):
        seen = Seen()

        def run(thread):
            index = self._process * self._cell.threads + thread
            try:
                act(Worker(self._cell, self._client, index, seen, self._barrier, self._on_mount))
            except threading.BrokenBarrierError:
                seen.fail("worker", "others failed or hang")
            except Exception as error:
                seen.fail("worker", f"{observe.raised(error)}: {error}")
                self._barrier.abort()

        threads = [threading.Thread(target=run, args=(i,)) for i in range(self._cell.threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for operation in ("exists", "list", "delete", "clear"):  # the others' are in their results
            names = " ".join(self._client.noted(operation))
            seen.count(f"noted at {operation}", names or "nothing")
        return seen.counts, seen.wrong

    def first_act(self):
        return self._play(Worker.first_act)

    def second_act(self):
        fresh = self._cell.client(self._root)
        fresh.start()
        return self._play(lambda worker: worker.second_act(fresh))


class Stage:
    """A cell on one file system: its engines, and what they saw."""

    def __init__(self, cell, top, on_mount):
        root = os.path.join(top, cell.client.name, str(cell.size), cell.title.replace(" ", "-"))
        os.makedirs(root)
        barrier = multiprocessing.get_context("fork").Barrier(cell.workers)
        self.cell, self.on_mount = cell, on_mount
        self.counts, self.wrong = collections.Counter(), []
        self._engines = [Actor(Engine, cell, root, process, barrier, on_mount)
                         for process in range(cell.processes)]

    def play(self, act):
        for engine in self._engines:
            engine.send(act)
        for engine in self._engines:
            counts, wrong = engine.receive(5 * STEP_SECONDS)
            self.counts += counts
            self.wrong += wrong

    def end(self):
        for engine in self._engines:
            engine.end()


def differences(plain, mount):
    """How two stages of a cell differ in what was seen."""
    found = []
    for step in sorted({step for step, _ in plain.counts + mount.counts}):
        seen = [{result: n for (s, result), n in stage.counts.items() if s == step}
                for stage in (plain, mount)]
        if seen[0] != seen[1]:
            found.append(f"{step}: {seen[0]} on the disk, {seen[1]} on the mount")
    return found
