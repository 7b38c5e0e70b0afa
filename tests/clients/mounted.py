# SPDX-License-Identifier: Apache-2.0
"""A mount for the clients: a store and a mountpoint in a temp directory, the daemon in the
foreground with its log in a file, and the ways to end it. Nothing is left behind: what is open at
the end of the process is closed then, also after a signal, and the daemon dies with the process
that started it. Needs root, as mounting does."""

import atexit
import contextlib
import ctypes
import errno
import os
import shutil
import signal
import struct
import subprocess
import tempfile
import time

import library

START_SECONDS = 20
MNT_FORCE, MNT_DETACH = 1, 2
PR_SET_PDEATHSIG = 1
MIB = 1 << 20

_libc = ctypes.CDLL(None, use_errno=True)


class MountError(Exception):
    """The daemon did not do what any test may take for granted."""


def die_with_parent(by=signal.SIGKILL):
    _libc.prctl(PR_SET_PDEATHSIG, by)


def wait_until(condition, seconds):
    """The condition's last value, true or not after the deadline."""
    end = time.monotonic() + seconds
    while not (value := condition()) and time.monotonic() < end:
        time.sleep(0.002)
    return value


def _umount(point, flags=0):
    """0 or the errno."""
    return 0 if _libc.umount2(os.fsencode(point), flags) == 0 else ctypes.get_errno()


class Mount:
    def __init__(self, size_bytes, memory_bytes=128 * MIB, engine="auto", max_file_bytes=None):
        """engine: auto, uring or posix. max_file_bytes: None is the daemon's choice."""
        self.base = os.path.realpath(tempfile.mkdtemp(prefix="cpl3-clients-"))
        self.store, self.point, self.log = (
            os.path.join(self.base, name) for name in ("store", "mnt", "daemon.log"))
        self.rank = os.path.join(self.point, "rank0")
        self.plain = os.path.join(self.base, "plain")  # on the same disk, without cpl3
        for directory in (self.point, self.plain):
            os.mkdir(directory)
        self.errors = DiskErrors(os.path.join(self.base, "errors"))
        self._options = f"rank=0,size={size_bytes},memory={memory_bytes},engine={engine}"
        if max_file_bytes:
            self._options += f",max_file={max_file_bytes}"
        self._daemon = None
        self._owner = os.getpid()
        atexit.register(self.close)

    def start(self, cold_start="clear"):
        environment = dict(os.environ, LD_PRELOAD=library.path("disk_error"),
                           CPL3_DISK_ERROR=self.errors.path)
        asan = environment.get("ASAN_OPTIONS", "")
        environment["ASAN_OPTIONS"] = f"{asan}:verify_asan_link_order=0"
        with open(self.log, "ab") as log:
            self._daemon = subprocess.Popen(
                [library.daemon(), self.store, self.point, "-f", "-o",
                 f"{self._options},cold_start={cold_start}"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment,
                preexec_fn=die_with_parent)
        wait_until(lambda: self._serves() or self._daemon.poll() is not None, START_SECONDS)
        if self._daemon.poll() is not None or not self._serves():
            raise MountError(f"the daemon does not serve: {self.log_tail()}")

    def _serves(self):
        """statvfs is answered by the daemon; a dead earlier mount of this path refuses it. By a
        descriptor, since that one may be replaced at any moment."""
        try:
            point = os.open(self.point, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            os.fstatvfs(point)
            return os.fstat(point).st_dev != os.stat(self.base).st_dev
        except OSError:
            return False
        finally:
            os.close(point)

    def stop(self):
        """umount: the daemon exits 0."""
        result = wait_until(lambda: _umount(self.point) in (0, errno.EINVAL), START_SECONDS)
        if not result:
            raise MountError(f"umount: {os.strerror(_umount(self.point))}")
        self._reap(0)

    def kill(self):
        """kill -9. The dead mount stays in the mount table, as it would."""
        if self._daemon:
            self._daemon.kill()
        self._reap(-signal.SIGKILL)

    def _reap(self, wanted):
        if not self._daemon:
            raise MountError("the daemon was ended, since a client hung")
        try:
            status = self._daemon.wait(START_SECONDS)
        except subprocess.TimeoutExpired:
            raise MountError("the daemon does not end") from None
        self._daemon = None
        if status != wanted:
            raise MountError(f"the daemon's exit status is {status}: {self.log_tail()}")

    def abort(self):
        """Ends all requests with an error, and the daemon: nothing hangs any more."""
        _umount(self.point, MNT_FORCE)
        if self._daemon:
            self._daemon.kill()
            self._daemon.wait()
            self._daemon = None

    def close(self):
        if self._owner != os.getpid() or not os.path.isdir(self.base):
            return
        if self._daemon and not wait_until(lambda: _umount(self.point) == 0, 2):
            self.abort()
        if self._daemon:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._daemon.wait(START_SECONDS)
            self.abort()
        _umount(self.point, MNT_DETACH)
        wait_until(self._remove, START_SECONDS)
        atexit.unregister(self.close)

    def _remove(self):
        shutil.rmtree(self.base, ignore_errors=True)
        return not os.path.exists(self.base)

    # talking to it

    def control(self, command):
        """0 or the errno."""
        try:
            with open(os.path.join(self.point, ".cpl3", "control"), "wb", buffering=0) as control:
                control.write(command.encode())
            return 0
        except OSError as error:
            return error.errno

    def counter(self, name):
        with open(os.path.join(self.point, ".cpl3", "stats"), encoding="ascii") as stats:
            for line in stats:
                if line.startswith(f"rank0.{name} "):
                    return int(line.split()[1])
        raise MountError(f"no counter {name}")

    def slabs(self):
        """(path, slot bytes) of each slab file."""
        directory = os.path.join(self.store, "rank0")
        return [(os.path.join(directory, name), int(name[:-5].rsplit("-", 1)[1]))
                for name in os.listdir(directory) if name.endswith(".slab")]

    def log_tail(self):
        with open(self.log, encoding="utf-8", errors="replace") as log:
            return log.read()[-2000:]


class DiskErrors:
    """Orders to disk_error.c in the daemon: three kinds of call, each with how many are to fail
    and how many did."""

    KINDS = ("reads", "writes", "syncs")
    ALWAYS = 2**64 - 1

    def __init__(self, path):
        self.path = path
        with open(path, "wb") as file:
            file.write(bytes(16 * len(self.KINDS)))

    def order(self, kind, count):
        """The next `count` calls fail."""
        with open(self.path, "r+b") as file:
            file.seek(16 * self.KINDS.index(kind))
            file.write(struct.pack("<Q", count))

    def failed(self, kind):
        with open(self.path, "rb") as file:
            file.seek(16 * self.KINDS.index(kind) + 8)
            return struct.unpack("<Q", file.read(8))[0]
