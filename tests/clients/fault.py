# SPDX-License-Identifier: Apache-2.0
"""What the faults have in common: the engine that an actor holds, a fault's verdict over what that
engine saw, and the scene, a small store with the engines that play on it."""

import ctypes
import os
import random
import re
import threading
import time

import library
import observe
import page
from actor import Actor

STORM_SECONDS_MAX = 8
STORM_FAILED_GETS = 20
OPEN_ONLY = os.O_RDONLY | os.O_CLOEXEC
EXCUSABLE = re.compile(r": raises FileNotFoundError ENOENT$|: raises KeyError$|: miss ENODATA$"
                       r"|: exists is True after a miss$|: a miss is still listed$"
                       r"|^get of the page stored again: miss$")


class Engine:
    """In the actor: one client, asked for many pages at a time. Results are lists of observe's
    words."""

    def __init__(self, client_class, root):
        self._client = client_class(root)
        self._client.start()
        self._pins = {}

    def put(self, keys, version, size, over=False):
        return [observe.put(self._client, key, version, size, over) for key in keys]

    def timed_put(self, key, version, size):
        start = time.monotonic()
        return observe.put(self._client, key, version, size), time.monotonic() - start

    def get(self, keys, versions, size):
        return [observe.get(self._client, key, versions, size) for key in keys]

    def exists(self, keys):
        return [observe.exists(self._client, key) for key in keys]

    def listing(self):
        return observe.listing(self._client)

    def storm(self, keys, size, fresh):
        """Two threads store the `fresh` pages, two read the others, until these are no hits any
        more: all results."""
        end = time.monotonic() + STORM_SECONDS_MAX
        results = {"put": [], "get": []}
        rest = list(fresh)

        def write():
            while rest:
                results["put"].append(observe.put(self._client, rest.pop(), 1, size))

        def read(seed):
            choose = random.Random(seed).choice
            failed = 0
            while failed < STORM_FAILED_GETS and time.monotonic() < end:
                results["get"].append(observe.get(self._client, choose(keys), [1], size))
                failed += not results["get"][-1].startswith("hit")

        threads = [threading.Thread(target=write) for _ in range(2)]
        threads += [threading.Thread(target=read, args=(seed,)) for seed in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results

    # readers that stay

    def pin(self, keys):
        """Opens all files of these pages; those of which all files were there."""
        for key in keys:
            descriptors = []
            try:
                for path in self._client.files(key):
                    descriptors.append(os.open(path, OPEN_ONLY))
                self._pins[key] = descriptors
            except FileNotFoundError:
                for descriptor in descriptors:
                    os.close(descriptor)
        return [key for key in keys if key in self._pins]

    def pinned_bytes(self):
        """Reads a byte of each open file: a reader's page must not go away."""
        return sum(len(os.pread(fd, 1, 0)) for fds in self._pins.values() for fd in fds)

    def unpin(self):
        for descriptors in self._pins.values():
            for descriptor in descriptors:
                os.close(descriptor)
        self._pins = {}

    # to be killed in a write

    def points(self, key, version, size):
        """The points of one put at which it can be killed."""
        killer = library.load("kill_writer")
        killer.kill_writer_arm(os.fsencode(self._client.root), ctypes.c_long(-1))
        result = observe.put(self._client, key, version, size, over=True)
        points = killer.kill_writer_points()
        killer.kill_writer_arm(b"", ctypes.c_long(-1))
        return points, result

    def put_and_die(self, key, version, size, point):
        killer = library.load("kill_writer")
        killer.kill_writer_arm(os.fsencode(self._client.root), ctypes.c_long(point))
        return observe.put(self._client, key, version, size, over=True)


class Verdict:
    """What one fault did to one client. A wrong thing is one that must not be, whatever happens to
    the disk."""

    def __init__(self):
        self.hits = self.misses = self.errors = 0
        self.wrong = []
        self.excused = set()  # of the wrong: while the daemon dies, when even bytes may be wrong

    @property
    def excusable(self):
        """Whether a limit of the client is enough of a reason for all that was wrong: it may take
        what is gone for stored, and not survive that. All else is the file system's fault."""
        return all(what in self.excused or EXCUSABLE.search(what) for what in self.wrong)

    def _fail(self, what, result):
        self.wrong.append(f"{what}: {result}")

    def require(self, condition, what):
        if not condition:
            self.wrong.append(what)

    def gets(self, what, results, must=None, dying=False):
        """must: "hit" or "miss". dying: the daemon dies meanwhile, so any error is right, too."""
        for result in results:
            word = result.split()[0]
            if word == "hit" and must != "miss":
                self.hits += 1
            elif result == "miss" and must != "hit":
                self.misses += 1
            elif dying and not result.startswith(("WRONG", "hit")):
                self.errors += 1
            elif dying:
                self.dying(f"{what}: {result}")
            else:
                self._fail(what, result)

    def puts(self, what, results, may_fail=False, dying=False):
        """may_fail: an error of the file system is right; dying: any error is; else all must be
        stored."""
        for result in results:
            if dying or may_fail and " E" in result:
                self.errors += result != "stored"
            elif result != "stored":
                self._fail(what, result)

    def dying(self, what):
        """A client that took what the daemon's death left of a read for a page: only a limit of
        its own excuses that."""
        self.wrong.append(what)
        self.excused.add(what)

    def gone(self, what, engine, keys):
        """After the miss of a get: neither exists nor in the listing."""
        for result in engine.call("exists", keys):
            self.require(result == "False", f"{what}: exists is {result} after a miss")
        listed = engine.call("listing")
        self.require(listed is None or not listed & set(keys), f"{what}: a miss is still listed")


class Scene:
    """One fault's stage: the mounted store, emptied, and engines on it. keys: of this fault
    only."""

    def __init__(self, mount, client_class, size, fault):
        self.mount, self.client_class, self.size = mount, client_class, size
        self.verdict = Verdict()
        self._fault = fault
        self._engines = []

    def keys(self, count, purpose=""):
        return [page.key(self.client_class.name, self._fault, self.size, purpose, i)
                for i in range(count)]

    def engine(self):
        engine = Actor(Engine, self.client_class, self.mount.rank)
        self._engines.append(engine)
        return engine

    def paths(self, key):
        return self.client_class(self.mount.rank).files(key)

    def end(self):
        return all([engine.end() for engine in self._engines])
