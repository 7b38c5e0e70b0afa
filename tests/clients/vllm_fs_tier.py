# SPDX-License-Identifier: Apache-2.0
"""vLLM's fs tier: a probe whether O_DIRECT works, then O_DIRECT for every block whatever its size.

put: stat; mkdir; a temp by O_EXCL, one write, close, rename. get: open, one read (or readv), close; a failed or short
one removes the file. Look-ups are access(2), many in a row. It catches a file system that takes O_DIRECT at open and
refuses sizes or addresses at the write (no block would ever be stored), and short reads (they cost the page).

Under strace: so."""

import contextlib
import errno
import mmap
import os
import random
import threading

from block_path import BlockPath
from client import Client
from steps import aligned_copy, aligned_memory, clear_below, files_below, read_into, unlink_if_there


class VllmFsTier(Client):
    name = "vllm-fs-tier"
    limits = {"unaligned": "it writes by O_DIRECT whatever the size: a disk takes multiples of its blocks only"}

    def __init__(self, root):
        super().__init__(root)
        self._where = BlockPath(root)
        self._thread = threading.local()
        self._direct = 0

    def start(self):
        self._where.write_config()
        self._direct = os.O_DIRECT if self._probe_direct() else 0

    def _suffix(self):
        if not hasattr(self._thread, "suffix"):
            self._thread.suffix = f"_{random.SystemRandom().getrandbits(63)}.tmp"
        return self._thread.suffix

    def _probe_direct(self):
        path = os.path.join(self._where.base, f".o_direct_probe{self._suffix()}")
        try:
            fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_DIRECT, 0o644)
            try:
                os.write(fd, aligned_memory(mmap.PAGESIZE))
            finally:
                os.close(fd)
            return True
        except OSError:
            return False
        finally:
            with contextlib.suppress(OSError):
                os.unlink(path)

    def files(self, key):
        return [self._where.of(key)]

    def write(self, key, payload):
        final = self._where.of(key)
        temp = final + self._suffix()
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_TRUNC | self._direct
        try:
            os.makedirs(os.path.dirname(final), exist_ok=True)
            fd = os.open(temp, flags, 0o644)
            try:
                if os.write(fd, aligned_copy(payload)) != len(payload):
                    raise OSError(errno.EIO, "short write")
            finally:
                os.close(fd)
            os.replace(temp, final)
            return True
        except OSError as error:
            self.note("put", error)
            with contextlib.suppress(OSError):
                os.unlink(temp)
            return False

    def lookup(self, keys):
        """Which of them are there, as one batch."""
        return [os.access(self._where.of(key), os.F_OK) for key in keys]

    def exists(self, key):
        return self.lookup([key])[0]

    def _read(self, fd, page):
        return read_into(fd, page)

    def get(self, key, size):
        path = self._where.of(key)
        page = aligned_memory(size)
        try:
            fd = os.open(path, os.O_RDONLY | self._direct)
            try:
                if self._read(fd, page) < size:
                    raise OSError(errno.EIO, "short read")
            finally:
                os.close(fd)
            return page
        except OSError as error:
            self.note("get", error)
            with contextlib.suppress(OSError):
                os.unlink(path)
            return None

    def list(self):
        """The engine itself never scans; its operators and cleaners do."""
        return {os.path.basename(path)[:-4] for path in files_below(self.root)
                if path.endswith(".bin")}

    def delete(self, key):
        unlink_if_there(self._where.of(key))

    def clear(self):
        clear_below(self.root)


class VllmFsTierReadv(VllmFsTier):
    """Its versions without the C extension."""

    name = "vllm-fs-tier-readv"

    def _read(self, fd, page):
        return os.readv(fd, [page])
