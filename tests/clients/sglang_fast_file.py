# SPDX-License-Identifier: Apache-2.0
"""SGLang's fast_file: a directory a namespace, one writev of the page's layers into an exclusive
temp, replace.

At get the file's size must be the page's; then one readv. Any OSError is a miss.

Under strace, put: stat; open O_EXCL 0600; one writev; close; rename. get: open; fstat; one readv;
close."""

import errno
import hashlib
import os
import uuid

import numpy

from client import Client

LAYERS = 32


class FastFile(Client):
    name = "sglang-fast-file"

    def __init__(self, root):
        super().__init__(root)
        digest = hashlib.sha256(b"meta-llama-Llama-3.1-8B-Instruct/0/1").hexdigest()
        self._namespace = os.path.join(root, f"namespace-{digest[:24]}")

    def start(self):
        os.makedirs(self._namespace, exist_ok=True)

    def files(self, key):
        return [os.path.join(self._namespace, key)]

    def write(self, key, payload):
        final = self.files(key)[0]
        temp = f"{final}.{uuid.uuid4().hex}.tmp"
        try:
            descriptor = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                self._write_layers(descriptor, numpy.asarray(payload))
            finally:
                os.close(descriptor)
            os.replace(temp, final)
            return True
        except OSError as error:
            self.note("put", error)
            try:
                os.unlink(temp)
            except OSError:
                pass  # the engine leaves it there
            return False

    @staticmethod
    def _write_layers(descriptor, page):
        layers = [memoryview(layer) for layer in numpy.array_split(page, LAYERS)]
        written = os.writev(descriptor, layers)
        if written != page.size:
            raise OSError(errno.EIO, "short write")

    def exists(self, key):
        try:
            os.path.getsize(self.files(key)[0])
            return True
        except OSError as error:
            self.note("exists", error)
            return False

    def get(self, key, size):
        page = numpy.empty(size, numpy.uint8)
        try:
            descriptor = os.open(self.files(key)[0], os.O_RDONLY | os.O_CLOEXEC)
            try:
                if os.fstat(descriptor).st_size != size:
                    raise OSError(errno.EIO, "size differs")
                layers = [memoryview(layer) for layer in numpy.array_split(page, LAYERS)]
                if os.readv(descriptor, layers) != size:
                    raise OSError(errno.EIO, "short read")
            finally:
                os.close(descriptor)
        except OSError as error:
            self.note("get", error)
            return None
        return page

    def list(self):
        with os.scandir(self._namespace) as entries:
            return {entry.name for entry in entries if not entry.name.endswith(".tmp")}

    def delete(self, key):
        try:
            os.unlink(self.files(key)[0])
        except OSError as error:
            self.note("delete", error)

    def clear(self):
        for name in os.listdir(self._namespace):
            try:
                os.unlink(os.path.join(self._namespace, name))
            except OSError as error:
                self.note("clear", error)
