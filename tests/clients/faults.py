# SPDX-License-Identifier: Apache-2.0
"""Seven things that go wrong, done to each client (disk errors and flips apart, so eight columns).
A client may see a miss, or a clean error at write, close or fsync: never wrong bytes, a short
read, EIO or ESTALE at a get, or a hang."""

import dataclasses
import os
import signal
import typing

import fault
import page
from actor import Died, Hang
from mounted import MIB, wait_until

FILL_BATCH = 16
LATE_PAGES = 12  # with all others of that fault far fewer than the store takes
FULL_AFTER_LOST = 8  # pages in a row, evicted before they could be opened
PUT_SECONDS = 6.5  # a close waits 5 s at most


# evicted between exists and get

def evict(scene):
    engine, reader = scene.engine(), scene.engine()
    victim = scene.keys(1, "victim")
    scene.verdict.puts("put", engine.call("put", victim, 1, scene.size))
    scene.verdict.require(engine.call("exists", victim) == ["True"], "exists before the eviction")
    paths, others = scene.paths(victim[0]), scene.keys(3 * capacity(scene), "others")
    for first in range(0, len(others), FILL_BATCH):
        engine.send("put", others[first:first + FILL_BATCH], 1, scene.size)
        reader.send("get", others[max(0, first - FILL_BATCH):first], [1], scene.size)
        scene.verdict.puts("put meanwhile", engine.receive())
        scene.verdict.gets("get meanwhile", reader.receive())
        if not any(os.path.exists(path) for path in paths):
            break
    scene.verdict.require(not os.path.exists(paths[0]), "the victim was never evicted")
    scene.verdict.gets("get of the evicted", engine.call("get", victim, [1], scene.size), "miss")
    scene.verdict.gone("evicted", engine, victim)
    scene.verdict.puts("put again", engine.call("put", victim, 1, scene.size))
    scene.verdict.gets("get of the page stored again",
                       engine.call("get", victim, [1], scene.size), "hit")


def capacity(scene):
    """Pages of this size that the store has room for, and some more."""
    return store_bytes(scene.size) // max(scene.size, 8192) + FILL_BATCH


# flipped bytes

def flip_payload(scene):
    first = scene.client_class("").parts(scene.size)[0]
    flip(scene, [lambda start, slot, bytes_, at=at: start + at
                 for at in (0, first // 2, first - 1)])


def flip_header(scene):
    """Magic, hash, sequence and checksum in the last 64 bytes of the slot."""
    flip(scene, [lambda start, slot, bytes_, at=at: (slot + 1) * bytes_ - 64 + at
                 for at in (1, 20, 50, 61)])


def flip(scene, offsets):
    """Each offset twice: while the page is in use, when its bytes may still be had from memory,
    and while nothing is mounted, when only the disk has them."""
    engine = scene.engine()
    warm, cold = scene.keys(len(offsets), "warm"), scene.keys(len(offsets), "cold")
    good = scene.keys(2, "good")
    scene.verdict.puts("put", engine.call("put", warm + cold + good, 1, scene.size))
    scene.mount.control("commit")
    for key, offset in zip(warm, offsets):
        flip_one(scene, key, offset)
    scene.verdict.gets("get of a flipped page", engine.call("get", warm, [1], scene.size))
    scene.mount.stop()
    for key, offset in zip(cold, offsets):
        flip_one(scene, key, offset)
    scene.mount.start("load")
    flipped = warm + cold
    scene.verdict.gets("get of a flipped page after load",
                       engine.call("get", flipped, [1], scene.size), "miss")
    scene.verdict.gone("flipped", engine, flipped)
    scene.verdict.gets("get of a good page", engine.call("get", good, [1], scene.size), "hit")
    scene.verdict.puts("put again", engine.call("put", flipped, 1, scene.size))
    scene.verdict.gets("get of the page stored again",
                       engine.call("get", flipped, [1], scene.size), "hit")


def flip_one(scene, key, offset):
    """offset(start of the payload, slot, slot bytes): where in the slab."""
    needle = page.payload(key, 1, scene.size)[:page.FIRST_BYTES].tobytes()
    found = 0
    for path, slot_bytes in scene.mount.slabs():
        with open(path, "r+b") as slab:
            content = slab.read()
            start = content.find(needle)
            while start >= 0:
                at = offset(start, start // slot_bytes, slot_bytes)
                slab.seek(at)
                slab.write(bytes([content[at] ^ 0x40]))
                found += 1
                start = content.find(needle, start + 1)  # an older copy
            slab.flush()
            os.fsync(slab.fileno())
    scene.verdict.require(found > 0, f"page {key[:8]} is in no slab")


# a writer killed half way

def kill_writer(scene):
    """Killed in every call that carries payload, and before each close and rename: a name that was
    not there stays a miss, an older page stays whole."""
    observer = scene.engine()
    spare = scene.keys(1, "spare")[0]
    points, result = observer.call("points", spare, 1, scene.size)
    scene.verdict.puts("put", [result])
    scene.verdict.require(points > 0, "no call of it can be killed")
    fresh, older = scene.keys(points, "fresh"), scene.keys(points, "older")
    scene.verdict.puts("put", observer.call("put", older, 1, scene.size))
    for point in range(points):
        for key, version in ((fresh[point], 1), (older[point], 2)):
            writer = scene.engine()
            try:
                result = writer.call("put_and_die", key, version, scene.size, point)
                scene.verdict.require(False, f"point {point}: not killed, but {result}")
            except Died as died:
                scene.verdict.require(died.status == -signal.SIGKILL, f"point {point}: {died}")
    after = scene.engine()
    for engine in (observer, after):
        seen = engine.call("get", fresh, [1], scene.size)
        scene.verdict.gets("get of a page whose writer was killed", seen)
        scene.verdict.gone("killed", engine, [k for k, s in zip(fresh, seen) if s == "miss"])
        scene.verdict.gets("get of an older page whose writer was killed",
                           observer.call("get", older, [1, 2], scene.size), "hit")
    scene.verdict.puts("put again", after.call("put", fresh, 1, scene.size))
    scene.verdict.gets("get of the page stored again",
                       after.call("get", fresh, [1], scene.size), "hit")


# the daemon killed

def kill_daemon(scene):
    engine, worker = scene.engine(), scene.engine()
    durable, late = scene.keys(8, "durable"), scene.keys(LATE_PAGES, "late")
    scene.verdict.puts("put", engine.call("put", durable, 1, scene.size))
    scene.verdict.require(scene.mount.control("commit") == 0, "commit")
    scene.verdict.puts("put", worker.call("put", durable, 1, scene.size))
    before = scene.mount.counter("publishes")
    worker.send("storm", durable, scene.size, late)
    moved = wait_until(lambda: scene.mount.counter("publishes") >= before + LATE_PAGES // 2, 10)
    scene.verdict.require(moved, "too little was stored while the daemon lived")
    scene.mount.kill()
    try:
        seen = worker.receive(fault.STORM_SECONDS_MAX + 4)
        scene.verdict.gets("get while the daemon dies", seen["get"], dying=True)
        scene.verdict.puts("put while the daemon dies", seen["put"], dying=True)
    except (Died, Hang) as end:
        scene.verdict.dying(f"get while the daemon dies: {end}")
        worker.end()
    scene.mount.start("load")
    engines = [engine]
    if not scene.client_class.index_in_memory:
        engines.append(scene.engine())
    for each in engines:
        scene.verdict.gets("get of a durable page",
                           each.call("get", durable, [1], scene.size), "hit")
        scene.verdict.gets("get of a late page", each.call("get", late, [1], scene.size))
    scene.verdict.puts("put again", engine.call("put", late[:4], 1, scene.size))
    scene.verdict.gets("get of the page stored again",
                       engine.call("get", late[:4], [1], scene.size), "hit")


# the disk fails

def disk_read(scene):
    engine, errors = scene.engine(), scene.mount.errors
    once, always, good = scene.keys(2, "once"), scene.keys(2, "always"), scene.keys(2, "good")
    scene.verdict.puts("put", engine.call("put", once + always + good, 1, scene.size))
    scene.mount.stop()
    scene.mount.start("load")
    for key in once:
        errors.order("reads", 1)
        scene.verdict.gets("get, one read fails", engine.call("get", [key], [1], scene.size))
        errors.order("reads", 0)
        scene.verdict.gets("get afterwards", engine.call("get", [key], [1], scene.size))
    errors.order("reads", errors.ALWAYS)
    for _ in range(3):
        scene.verdict.gets("get, all reads fail",
                           engine.call("get", always, [1], scene.size), "miss")
    scene.verdict.require(errors.failed("reads") > 0, "no read was made to fail")
    errors.order("reads", 0)
    scene.verdict.gets("get afterwards", engine.call("get", always, [1], scene.size))
    scene.verdict.gets("get of a good page", engine.call("get", good, [1], scene.size), "hit")
    scene.verdict.puts("put again", engine.call("put", once + always, 1, scene.size))
    scene.verdict.gets("get of the page stored again",
                       engine.call("get", once + always, [1], scene.size), "hit")


def disk_write(scene):
    engine, errors = scene.engine(), scene.mount.errors
    older, fresh, synced = scene.keys(4, "older"), scene.keys(4, "fresh"), scene.keys(4, "synced")
    scene.verdict.puts("put", engine.call("put", older, 1, scene.size))
    scene.mount.control("commit")
    for kind, keys in (("writes", fresh), ("syncs", synced)):
        before = errors.failed(kind)
        errors.order(kind, errors.ALWAYS)
        scene.verdict.puts("put", engine.call("put", keys, 1, scene.size), may_fail=True)
        scene.verdict.puts("put over an older page",
                           engine.call("put", older, 2, scene.size, True), may_fail=True)
        scene.mount.control("commit")
        scene.verdict.require(errors.failed(kind) > before, f"none of the {kind} was made to fail")
        scene.verdict.gets("get while the disk fails",
                           engine.call("get", keys + older, [1, 2], scene.size))
        errors.order(kind, 0)
        scene.verdict.gets("get afterwards", engine.call("get", keys + older, [1, 2], scene.size))
        everything = keys + older
        scene.verdict.puts("put again", engine.call("put", everything, 1, scene.size, True))
        scene.verdict.require(scene.mount.control("commit") == 0, "commit when the disk is well")
        scene.verdict.gets("get of the page stored again",
                           engine.call("get", everything, [1], scene.size), "hit")
    # Slots that failed are not used again, so that some pages may have been evicted.
    everything = older + fresh + synced
    kept = [key for key, result in zip(everything, engine.call("get", everything, [1], scene.size))
            if result.startswith("hit")]
    scene.mount.stop()
    scene.mount.start("load")
    scene.verdict.gets("get after a restart", engine.call("get", kept, [1], scene.size), "hit")


# a store full of pages that are being read

def pinned(scene):
    engine, reader, *others = [scene.engine() for _ in range(4)]
    refused, held, lost = scene.mount.counter("no_space"), [], 0
    for key in scene.keys(2 * capacity(scene), "page"):
        put_in_time(scene, [engine], [key])
        pinned_now = reader.call("pin", [key])
        held += pinned_now
        lost = 0 if pinned_now else lost + 1
        if scene.mount.counter("no_space") > refused or lost == FULL_AFTER_LOST:
            break
    else:
        scene.verdict.require(False, "the store was never full")
    more = scene.keys(3, "more")
    put_in_time(scene, [engine, *others], more)
    scene.verdict.gets("get of an unsure page", engine.call("get", more, [1], scene.size))
    files = sum(len(scene.paths(key)) for key in held)
    scene.verdict.require(reader.call("pinned_bytes") == files, "an open page went away")
    scene.verdict.gets("get of a page that is being read",
                       engine.call("get", held, [1], scene.size), "hit")
    reader.call("unpin")
    after = scene.keys(3, "after")
    stored = wait_until(lambda: engine.call("put", after[:1], 1, scene.size, True) == ["stored"]
                        and engine.call("get", after[:1], [1], scene.size) == ["hit 1"], 5)
    scene.verdict.require(stored, "nothing can be stored when the readers are gone")
    scene.verdict.puts("put when the readers are gone",
                       engine.call("put", after[1:], 1, scene.size))
    scene.verdict.gets("get of what was stored then",
                       engine.call("get", after, [1], scene.size), "hit")


def put_in_time(scene, engines, keys):
    """A page by each engine, at once."""
    for engine, key in zip(engines, keys):
        engine.send("timed_put", key, 1, scene.size)
    answers = [engine.receive() for engine in engines]
    results = [result for result, _ in answers]
    slowest = max(seconds for _, seconds in answers)
    scene.verdict.puts("put into a full store", results, may_fail=True)
    scene.verdict.require(slowest < PUT_SECONDS, f"a put takes {slowest:.1f} s")
    return results


@dataclasses.dataclass(frozen=True)
class Fault:
    name: str
    play: typing.Callable
    limits: tuple  # words in Client.limits that excuse a client, beside its name and "evict"
    inline: bool = True  # also for pages that the index holds, not a slab


FAULTS = (
    Fault("evict", evict, ()),
    Fault("flip-payload", flip_payload, ("corrupt",), inline=False),
    Fault("flip-header", flip_header, ("corrupt",), inline=False),
    Fault("kill-writer", kill_writer, ()),
    Fault("kill-daemon", kill_daemon, ()),
    Fault("disk-read", disk_read, ("corrupt",), inline=False),
    Fault("disk-write", disk_write, ("corrupt",), inline=False),
    Fault("pinned", pinned, (), inline=False),
)


def store_bytes(size):
    """A store that holds some dozens of such pages, and not many more."""
    return max(16 * MIB, 32 * size)
