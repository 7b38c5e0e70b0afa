# SPDX-License-Identifier: Apache-2.0
"""LMCache's fs:// connector: a 28-byte header before each page, a temp name that is the same in every process.

put: open temp, write 28 bytes, write the page, close, rename. get: open, fstat, ioctl, read(4096), read of the rest.
The shared temp is a real hazard: of two processes that store one page at a time one finds its temp renamed away
(ENOENT at its rename, a failed store). It catches contents mixed from two writers and files published with their
header only.

Under strace: so; fstat, TCGETS and lseek follow each open."""

import errno
import os
import pathlib
import struct

from client import Client
from steps import unlink_if_there

HEADER_BYTES = 28


class LmcacheFs(Client):
    name = "lmcache-fs"
    model, world, worker, dtype = "meta-llama-Llama-3.1-8B-Instruct", 1, 0, "bfloat16"

    def start(self):
        pathlib.Path(self.root).mkdir(parents=True, exist_ok=True)

    def _path(self, key):
        name = f"{self.model}@{self.world}@{self.worker}@{key}@{self.dtype}.data"
        return pathlib.Path(self.root) / name

    def _temp(self, final):
        return final.with_suffix(".tmp")

    def files(self, key):
        return [str(self._path(key))]

    def write(self, key, payload):
        final = self._path(key)
        temp = self._temp(final)
        size = len(payload)
        try:
            with open(temp, "wb") as file:
                file.write(struct.pack("<7i", size, 2, 1, 2, 32, 256, size // 16384))
                file.write(payload)
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
        try:
            with open(self._path(key), "rb") as file:
                header = bytearray(HEADER_BYTES)
                if file.readinto(header) != HEADER_BYTES:
                    raise OSError(errno.EIO, "short header")
                page = bytearray(struct.unpack_from("<i", header)[0])
                if file.readinto(page) != len(page):
                    raise OSError(errno.EIO, "short page")
                return page
        except OSError as error:
            self.note("get", error)
            return None

    def list(self):
        return {path.stem.split("@")[3] for path in pathlib.Path(self.root).glob("*.data")}

    def delete(self, key):
        try:
            os.remove(self._path(key))
        except OSError as error:
            self.note("delete", error)

    def clear(self):
        for path in pathlib.Path(self.root).glob("*.data"):
            unlink_if_there(path)


class LmcacheFsTempDirectory(LmcacheFs):
    """The same with its temps in a directory of their own: a rename across directories."""

    name = "lmcache-fs-tmpdir"

    def start(self):
        super().start()
        (pathlib.Path(self.root) / "tmp").mkdir(exist_ok=True)

    def _temp(self, final):
        return final.parent / "tmp" / final.name
