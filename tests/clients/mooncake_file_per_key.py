# SPDX-License-Identifier: Apache-2.0
"""Mooncake's file-per-key backend: two directory levels of letters a to p, the final name written in place.

put: mkdir, open the final name O_TRUNC, pwritev until all is written, close. get: open, preadv. Start: a recursive
scan with a stat each, and statvfs. It catches half-written pages under final names, and vectored I/O that comes back
short.

Under strace: so, as pwritev2 and preadv2 with flags 0."""

import errno
import os

from client import Client
from steps import clear_below, files_below, unlink_if_there

VECTOR_BYTES = 1 << 20


class MooncakeFilePerKey(Client):
    name = "mooncake-file-per-key"
    direct_publish = True

    def __init__(self, root):
        super().__init__(root)
        self.free_bytes = 0

    def start(self):
        os.makedirs(self.root, exist_ok=True)
        for path in files_below(self.root):
            os.stat(path)
        disk = os.statvfs(self.root)
        self.free_bytes = disk.f_bavail * disk.f_frsize

    def _path(self, key):
        letters = (chr(ord("a") + int(digit, 16)) for digit in key[:2])
        return os.path.join(self.root, *letters, key)

    def files(self, key):
        return [self._path(key)]

    def write(self, key, payload):
        path = self._path(key)
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            try:
                write_all(fd, memoryview(payload).cast("B"))
            finally:
                os.close(fd)
            return True
        except OSError as error:
            self.note("put", error)
            unlink_if_there(path)
            return False

    def exists(self, key):
        return os.path.exists(self._path(key))

    def get(self, key, size):
        page = bytearray(size)
        try:
            fd = os.open(self._path(key), os.O_RDONLY)
            try:
                if os.preadv(fd, vector(memoryview(page)), 0) != size:
                    raise OSError(errno.EIO, "short read")
            finally:
                os.close(fd)
            return page
        except OSError as error:
            self.note("get", error)
            return None

    def list(self):
        return {os.path.basename(path) for path in files_below(self.root)}

    def delete(self, key):
        unlink_if_there(self._path(key))

    def clear(self):
        clear_below(self.root)


def vector(view):
    return [view[at:at + VECTOR_BYTES] for at in range(0, len(view), VECTOR_BYTES)]


def write_all(fd, view):
    done = 0
    while done < len(view):
        done += os.pwritev(fd, vector(view[done:]), done)
