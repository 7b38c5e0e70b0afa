# SPDX-License-Identifier: Apache-2.0
"""LMCache's L2 adapters `fs` (Python) and `fs_native` (C++): bare page bytes in names of 117 bytes and more.

put: skipped if the name exists; open the temp (one for all processes), write until all is written, close, rename.
get: read until all is read; too few bytes are a miss, logged. They catch short writes and reads, and a bad page whose
name stays: it would never be stored again, since the put is skipped.

Under strace: so; fs alone has fstat, TCGETS and lseek after each open."""

import errno
import os

from client import Client
from steps import read_into, unlink_if_there


class L2Fs(Client):
    name = "lmcache-l2-fs"
    model, kv_rank = "meta-llama-SEP-Llama-3.1-8B-Instruct-FP8", 0x01000100

    def start(self):
        os.makedirs(self.root, exist_ok=True)

    def _path(self, key):
        return os.path.join(self.root, f"{self.model}@{self.kv_rank:#010x}@{key}.data")

    def files(self, key):
        return [self._path(key)]

    def _store(self, temp, payload):
        with open(temp, "wb") as file:
            file.write(payload)

    def _load(self, path, page):
        with open(path, "rb") as file:
            return read_until(file.readinto, page)

    def write(self, key, payload):
        final = self._path(key)
        temp = final.removesuffix(".data") + ".tmp"
        try:
            self._store(temp, payload)
            os.replace(temp, final)
            return True
        except OSError as error:
            self.note("put", error)
            if os.path.exists(temp):
                unlink_if_there(temp)
            return False

    def exists(self, key):
        return os.path.exists(self._path(key))

    def get(self, key, size):
        page = bytearray(size)
        try:
            if self._load(self._path(key), page) != size:
                raise OSError(errno.EIO, "too few bytes")
            return page
        except OSError as error:
            self.note("get", error)
            return None

    def list(self):
        keys = set()
        with os.scandir(self.root) as entries:
            for entry in entries:
                parts = entry.name.removesuffix(".data").split("@")
                if entry.name.endswith(".data") and len(parts) == 3:
                    keys.add(parts[2])
        return keys

    def delete(self, key):
        unlink_if_there(self._path(key))

    def clear(self):
        for key in self.list():
            self.delete(key)


class L2FsNative(L2Fs):
    name = "lmcache-l2-fs-native"

    def _store(self, temp, payload):
        fd = os.open(temp, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644)
        try:
            rest = memoryview(payload).cast("B")
            while rest:
                rest = rest[os.write(fd, rest):]
        finally:
            os.close(fd)

    def _load(self, path, page):
        fd = os.open(path, os.O_RDONLY)
        try:
            return read_until(lambda rest: read_into(fd, rest), page)
        finally:
            os.close(fd)


def read_until(read, page):
    """Reads until the page is full or the file at its end; the bytes read."""
    total = 0
    while total < len(page):
        got = read(memoryview(page)[total:])
        if not got:
            break
        total += got
    return total
