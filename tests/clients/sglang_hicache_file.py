# SPDX-License-Identifier: Apache-2.0
"""SGLang's HiCacheFile: one flat directory, one file a page, numpy's tofile into a temp and
rename.

It catches FileNotFoundError only, at get: a short read or any other errno ends the engine's
prefetch thread for good.

Under strace, put: stat; open O_TRUNC 0666; fstat; TCGETS; lseek; dup; lseeks; write on the dup
(what is no multiple of 4096 in two: stdio writes whole blocks first); close; lseeks; close; rename.
get: open; fstat; one read; close. v2 scans the directory where v1 stats; clear: scan, stat, unlink."""

import os
import threading
import uuid

import numpy

from client import Client


class HiCacheFile(Client):
    name = "sglang-hicache-file"
    model, rank, ranks = "meta-llama-Llama-3.1-8B-Instruct", 0, 1

    def start(self):
        os.makedirs(self.root, exist_ok=True)

    def _path(self, key):
        return os.path.join(self.root, f"{key}_{self.model}_{self.rank}_{self.ranks}.bin")

    def files(self, key):
        return [self._path(key)]

    def write(self, key, payload):
        final = self._path(key)
        temp = f"{final}.tmp.{os.getpid()}.{threading.get_ident()}.{uuid.uuid4().hex}"
        try:
            numpy.asarray(payload).tofile(temp)
            os.replace(temp, final)
            return True
        except OSError as error:
            self.note("put", error)
            try:
                os.unlink(temp)
            except FileNotFoundError:
                pass
            return False

    def exists(self, key):
        return os.path.exists(self._path(key))

    def get(self, key, size):
        page = bytearray(size)
        try:
            with open(self._path(key), "rb", buffering=0) as file:
                if file.readinto(page) != size:
                    raise IOError(f"short read of {key}")
        except FileNotFoundError as error:
            self.note("get", error)
            return None
        return page

    def list(self):
        with os.scandir(self.root) as entries:
            return {e.name.split("_", 1)[0] for e in entries if e.name.endswith(".bin")}

    def delete(self, key):
        try:
            os.unlink(self._path(key))
        except FileNotFoundError as error:
            self.note("delete", error)

    def clear(self):
        for name in os.listdir(self.root):
            path = os.path.join(self.root, name)
            if os.path.isfile(path):
                os.unlink(path)


class HiCacheFileV2(HiCacheFile):
    """The second interface: batches of pages, each a set of files, one a pool of the engine's
    memory. Which pages exist is looked up in a scan of the whole directory, once a batch. Pages
    are read straight into the memory of the pools."""

    name = "sglang-hicache-file-v2"
    pool = "indexer"  # its files carry it as a suffix of the hash; those of the KV pool carry none

    def files(self, key):
        return [self._path(key), self._path(f"{key}.{self.pool}")]

    def parts(self, size):
        pool_bytes = size // 8 // 4096 * 4096 or size // 8
        return [size - pool_bytes, pool_bytes]

    def write(self, key, payload):
        page = numpy.asarray(payload)
        split = self.parts(page.size)[0]
        stored = super().write(key, page[:split])
        return super().write(f"{key}.{self.pool}", page[split:]) and stored

    def _scan(self):
        with os.scandir(self.root) as entries:
            return {entry.name for entry in entries}

    def exists_many(self, keys):
        names = self._scan()
        return [all(os.path.basename(path) in names for path in self.files(key)) for key in keys]

    def exists(self, key):
        return self.exists_many([key])[0]

    def get(self, key, size):
        page = bytearray(size)
        split = self.parts(size)[0]
        memory = memoryview(page)
        whole = (self._read_into(key, memory[:split])
                 and self._read_into(f"{key}.{self.pool}", memory[split:]))
        return page if whole else None

    def _read_into(self, key, memory):
        try:
            with open(self._path(key), "rb", buffering=0) as file:
                if file.readinto(memory) != len(memory):
                    raise IOError(f"short read of {key}")
        except FileNotFoundError as error:
            self.note("get", error)
            return False
        return True

    def list(self):
        hashes = {name.split("_", 1)[0] for name in self._scan() if name.endswith(".bin")}
        return {h for h in hashes if f"{h}.{self.pool}" in hashes}

    def delete(self, key):
        super().delete(key)
        super().delete(f"{key}.{self.pool}")
