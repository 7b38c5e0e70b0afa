# SPDX-License-Identifier: Apache-2.0
"""SGLang's HiCacheNixl with NIXL's POSIX plugin: two files a page (K and V) in 256 directories
made once, written under their final names without a temp, by libaio or io_uring from one
submitter, up to 64 in flight (nixl_posix.c).

Four clients: each engine buffered, and with O_DIRECT where the page's size allows it. Any error is
a miss; a short read is not noticed.

Under strace, start: 256 times stat and mkdir. put: stat; two opens O_RDWR|O_CREAT; one io_submit
(io_uring_enter) of both; io_getevents (io_uring_enter); two closes. get: the same with O_RDWR.
clear: walk and unlink."""

import ctypes
import mmap
import os

import numpy

import library
from client import Client


class Transfer(ctypes.Structure):
    _fields_ = [("fd", ctypes.c_int32), ("write", ctypes.c_int32), ("buffer", ctypes.c_void_p),
                ("bytes", ctypes.c_uint64), ("result", ctypes.c_int64)]


def pool_memory(size):
    """Memory of the engine's host pool: aligned to a page, as O_DIRECT wants it."""
    return numpy.frombuffer(mmap.mmap(-1, size), numpy.uint8)


class NixlPosix(Client):
    """All of it but the engine that moves the bytes."""

    direct_publish = True
    model, rank, ranks = "meta-llama-Llama-3.1-8B-Instruct", 0, 1
    limits = {"kill-daemon": "it does not notice a short read: what a dying daemon left of a page"}
    engine = None  # a function of nixl_posix.c
    direct = False

    def start(self):
        for first in range(256):
            os.makedirs(os.path.join(self.root, f"{first:02x}"), exist_ok=True)

    def files(self, key):
        stem = os.path.join(self.root, key[:2], f"{key}_{self.model}_{self.rank}_{self.ranks}")
        return [f"{stem}_k", f"{stem}_v"]

    def parts(self, size):
        return [(size + 1) // 2, size // 2]

    # transfers

    def _split(self, page):
        k_bytes = self.parts(page.size)[0]
        return [page[:k_bytes], page[k_bytes:]]

    def _open(self, operation, path, size):
        flags = os.O_RDWR | os.O_CREAT if operation == "put" else os.O_RDWR
        if self.direct and size % mmap.PAGESIZE == 0:
            flags |= os.O_DIRECT
        try:
            return os.open(path, flags, 0o644)
        except OSError as error:
            self.note(operation, error)
            return None

    def _run(self, operation, transfers):
        if not transfers:
            return []
        array = (Transfer * len(transfers))(*transfers)
        error = getattr(library.load("nixl_posix"), self.engine)(array, ctypes.c_uint(len(array)))
        for transfer in array:
            result = error if error < 0 else transfer.result
            if result < 0:
                self.note(operation, OSError(-result, os.strerror(-result)))
        return [error >= 0 and transfer.result >= 0 for transfer in array]

    def _transfer(self, operation, keys, pages):
        """Moves all files of these pages in one request. Which pages were moved without an
        error."""
        files = [file for key, page in zip(keys, pages)
                 for file in zip(self.files(key), self._split(page))]
        descriptors = [self._open(operation, path, memory.size) for path, memory in files]
        try:
            opened = [i for i, descriptor in enumerate(descriptors) if descriptor is not None]
            moved = dict(zip(opened, self._run(operation, [
                Transfer(descriptors[i], operation == "put", files[i][1].ctypes.data,
                         files[i][1].size, 0) for i in opened])))
        finally:
            self._close(operation, [d for d in descriptors if d is not None])
        return [all(moved.get(2 * i + half) for half in (0, 1)) for i in range(len(keys))]

    def _close(self, operation, descriptors):
        for descriptor in descriptors:
            try:
                os.close(descriptor)
            except OSError as error:
                self.note(operation, error)

    # pages

    def write_many(self, pages):
        memory = []
        for _, payload in pages:
            page = pool_memory(len(payload))
            page[:] = payload
            memory.append(page)
        return self._transfer("put", [key for key, _ in pages], memory)

    def write(self, key, payload):
        return self.write_many([(key, payload)])[0]

    def get_many(self, keys, size):
        pages = [pool_memory(size) for _ in keys]
        moved = self._transfer("get", keys, pages)
        return [page if whole else None for page, whole in zip(pages, moved)]

    def get(self, key, size):
        return self.get_many([key], size)[0]

    def exists(self, key):
        return all(os.path.exists(path) for path in self.files(key))

    def _walk(self):
        for directory, _, names in os.walk(self.root):
            for name in names:
                yield os.path.join(directory, name)

    def list(self):
        names = {os.path.basename(path) for path in self._walk()}
        return {name.split("_", 1)[0] for name in names
                if name.endswith("_k") and f"{name[:-1]}v" in names}

    def delete(self, key):
        for path in self.files(key):
            self._unlink("delete", path)

    def clear(self):
        for path in self._walk():
            self._unlink("clear", path)

    def _unlink(self, operation, path):
        try:
            os.unlink(path)
        except OSError as error:
            self.note(operation, error)


class NixlAio(NixlPosix):
    name = "sglang-nixl-libaio"
    engine = "nixl_run_aio"


class NixlAioDirect(NixlAio):
    name = "sglang-nixl-libaio-direct"
    direct = True


class NixlUring(NixlPosix):
    name = "sglang-nixl-uring"
    engine = "nixl_run_uring"


class NixlUringDirect(NixlUring):
    name = "sglang-nixl-uring-direct"
    direct = True
