# SPDX-License-Identifier: Apache-2.0
"""llm-d's fs connector: four directory levels, and a rename before the close.

put: open probe; if the block is there, utimensat(atime now) and done; else mkdir, open a temp O_TRUNC, one writev,
rename, then close. get: open, seek to the end, read the tail. A get that fails leaves the engine with what its buffer
held. It catches a name that appears before its bytes, a rename that loses the open writer, and a touch that is
refused.

Under strace: so, with a stat before the mkdirs."""

import ctypes
import errno
import os
import random
import threading

from block_path import BlockPath
from client import Client
from steps import clear_below, files_below, read_into, unlink_if_there

AT_FDCWD, UTIME_NOW, UTIME_OMIT = -100, (1 << 30) - 1, (1 << 30) - 2

_libc = ctypes.CDLL(None, use_errno=True)


class LlmdFs(Client):
    name = "llmd-fs"
    miss_limit = "it does not look at a failed read: the engine goes on with what its buffer held"
    limits = {"kill-daemon": "a read that fails leaves the engine with what its buffer held"}

    def __init__(self, root):
        super().__init__(root)
        self._where = BlockPath(root)
        self._thread = threading.local()

    def start(self):
        self._where.write_config()

    def files(self, key):
        return [self._where.of(key)]

    def _temp(self, final):
        if not hasattr(self._thread, "suffix"):
            self._thread.suffix = f"_{random.SystemRandom().getrandbits(32)}.tmp"
        return final + self._thread.suffix

    def put(self, key, payload):
        path = self._where.of(key)
        try:
            os.close(os.open(path, os.O_RDONLY))
        except OSError:
            return self.write(key, payload)
        try:
            touch(path)
        except OSError as error:
            self.note("put", error)
        return True

    def write(self, key, payload):
        final = self._where.of(key)
        temp = self._temp(final)
        try:
            os.makedirs(os.path.dirname(final), exist_ok=True)
            fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
            try:
                if os.writev(fd, [payload]) != len(payload):
                    raise OSError(errno.EIO, "short write")
                os.rename(temp, final)
            finally:
                os.close(fd)
            return True
        except OSError as error:
            self.note("put", error)
            unlink_if_there(temp)
            return False

    def exists(self, key):
        return os.path.exists(self._where.of(key))

    def get(self, key, size):
        page = bytearray(size)
        try:
            fd = os.open(self._where.of(key), os.O_RDONLY)
        except OSError as error:
            self.note("get", error)
            return None
        try:
            os.lseek(fd, os.lseek(fd, 0, os.SEEK_END) - size, os.SEEK_SET)
            read_into(fd, page)
        except OSError as error:
            self.note("get", error)
        finally:
            os.close(fd)
        return page

    def list(self):
        return {os.path.basename(path)[:-4] for path in files_below(self.root)
                if path.endswith(".bin")}

    def delete(self, key):
        unlink_if_there(self._where.of(key))

    def clear(self):
        clear_below(self.root)


def touch(path):
    """utimensat with UTIME_NOW and UTIME_OMIT, which os.utime cannot say."""
    times = (ctypes.c_long * 4)(0, UTIME_NOW, 0, UTIME_OMIT)
    if _libc.utimensat(AT_FDCWD, os.fsencode(path), times, 0) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)
