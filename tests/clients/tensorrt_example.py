# SPDX-License-Identifier: Apache-2.0
"""TensorRT-LLM's connector example: torch.save and torch.load of `<int>.pt`, a zip archive under its final name.

put: stat; open O_TRUNC, then many small writes (a header, the page, a descriptor, the directory at the end), close.
get: many small reads at the tail, then the page. A miss at get raises. It catches a file that is published before its
last write: its directory, without which nothing in it can be read, comes last.

Under strace: so; 32 writes, and a seek before each read."""

import io
import os
import zipfile

from client import Client
from steps import unlink_if_there

GONE = "it raises when a page that it saw goes before it is read"
PAGE = "archive/data/0"


class TensorrtExample(Client):
    name = "tensorrt-example"
    direct_publish = True
    miss_limit = GONE
    limits = {"evict": GONE, "corrupt": GONE}

    def start(self):
        os.makedirs(self.root, exist_ok=True)

    def _path(self, key):
        return os.path.join(self.root, f"{int(key[:16], 16)}.pt")

    def files(self, key):
        return [self._path(key)]

    def write(self, key, payload):
        try:
            with Appender(self._path(key), "wb") as file, zipfile.ZipFile(file, "w") as archive:
                archive.writestr("archive/data.pkl", bytes(136))
                archive.writestr("archive/byteorder", b"little")
                archive.writestr(PAGE, memoryview(payload).cast("B"))
                archive.writestr("archive/version", b"3\n")
                archive.writestr("archive/.data/serialization_id", bytes(40))
            return True
        except OSError as error:
            self.note("put", error)
            return False

    def exists(self, key):
        return os.path.exists(self._path(key))

    def get(self, key, size):
        if not self.exists(key):
            return None
        with io.FileIO(self._path(key)) as file, zipfile.ZipFile(file) as archive:
            for name in archive.namelist():
                if name != PAGE:
                    archive.read(name)
            return archive.read(PAGE)

    def delete(self, key):
        unlink_if_there(self._path(key))

    def clear(self):
        for name in os.listdir(self.root):
            unlink_if_there(os.path.join(self.root, name))


class Appender(io.FileIO):
    """A file that is only appended to, as by torch's writer: each write is a write(2), nothing is written twice."""

    def seekable(self):
        return False

    def tell(self):
        raise io.UnsupportedOperation("tell")

    def write(self, data):
        view = memoryview(data)
        size = len(view)
        while view:
            view = view[super().write(view):]
        return size
