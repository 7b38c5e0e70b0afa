# SPDX-License-Identifier: Apache-2.0
"""LMCache's local disk backend: one flat directory, its index in memory, pages written straight to their final names.

statvfs at the start; put: open O_TRUNC, one write, close; get: open, fstat, read, close, byte counts ignored. The
O_DIRECT variant takes that path where the size is a multiple of f_bsize, and then opens without O_TRUNC. They catch a
wrong f_bsize, half-written pages under final names, and short reads, which they would hand on as a page.

Under strace: so; fstat, TCGETS and lseek follow each open, with O_DIRECT only fstat at get."""

import os

from client import Client
from steps import aligned_copy, aligned_memory, files_below, unlink_if_there

VANISHED = "its index is in memory: a page that the file system dropped is a KeyError in the engine"


class LocalDisk(Client):
    name = "lmcache-local-disk"
    direct_publish = True
    index_in_memory = True
    limits = {"kill-daemon": "it ignores byte counts: what a dying daemon left of a read is a page to it",
              "evict": VANISHED, "corrupt": VANISHED}
    use_direct = False
    model, world, worker, dtype = "meta-llama-Llama-3.1-8B-Instruct", 1, 0, "bfloat16"

    def __init__(self, root):
        super().__init__(root)
        self._block_bytes = 0
        self._index = {}

    def start(self):
        os.makedirs(self.root, exist_ok=True)
        self._block_bytes = os.statvfs(self.root).f_bsize

    def _path(self, key):
        return os.path.join(
            self.root, f"{self.model}@{self.world}@{self.worker}@{key}@{self.dtype}.pt")

    def files(self, key):
        return [self._path(key)]

    def _is_direct(self, size):
        return self.use_direct and size % self._block_bytes == 0

    def write(self, key, payload):
        try:
            if self._is_direct(len(payload)):
                fd = os.open(self._path(key), os.O_CREAT | os.O_WRONLY | os.O_DIRECT, 0o644)
                try:
                    os.write(fd, aligned_copy(payload))
                finally:
                    os.close(fd)
            else:
                with open(self._path(key), "wb") as file:
                    file.write(payload)
        except OSError as error:
            self.note("put", error)
            return False
        self._index[key] = len(payload)
        return True

    def exists(self, key):
        return key in self._index

    def get(self, key, size):
        if key not in self._index:
            return None
        page = aligned_memory(size)
        try:
            if self._is_direct(size):
                fd = os.open(self._path(key), os.O_RDONLY | os.O_DIRECT)
                with os.fdopen(fd, "rb", buffering=0) as file:
                    file.readinto(page)
            else:
                with open(self._path(key), "rb") as file:
                    file.readinto(page)
        except FileNotFoundError as error:
            self.note("get", error)
            self._index.pop(key, None)
        if key not in self._index:
            raise KeyError(key)
        return page

    def delete(self, key):
        self._index.pop(key, None)
        unlink_if_there(self._path(key))

    def clear(self):
        self._index.clear()
        for path in files_below(self.root):
            unlink_if_there(path)


class LocalDiskDirect(LocalDisk):
    name = "lmcache-local-disk-direct"
    use_direct = True
