# SPDX-License-Identifier: Apache-2.0
"""vLLM's ExampleConnector (once SharedStorageConnector): a directory a page, a safetensors file a layer in it.

put: mkdir `<md5>`; per layer a temp O_RDWR|O_EXCL 0600, ftruncate to the end first, writes of at most 1 MiB, rename
while it is open, close. get: mmap MAP_PRIVATE. A hit is a stat of the *directory*. It catches a rename or an
ftruncate that publishes zeros, and names that are hashes and directories at once.

Under strace: so; mmap dups the descriptor."""

import contextlib
import hashlib
import json
import mmap
import os
import random
import string
import struct

from client import Client
from steps import unlink_if_there

GONE = "it takes the directory for a hit: a page that went out of a directory that stays raises"
LAYERS = 2
WRITE_BYTES = 1 << 20


class VllmExampleConnector(Client):
    name = "vllm-example-connector"
    limits = {"evict": GONE, "corrupt": GONE,
              "kill-daemon": "it reads by a mapping: SIGBUS when the daemon dies meanwhile"}

    def start(self):
        os.makedirs(self.root, exist_ok=True)

    def _directory(self, key):
        return os.path.join(self.root, hashlib.md5(key.encode()).hexdigest())

    def files(self, key):
        return [os.path.join(self._directory(key), f"model.layers.{layer}.self_attn.attn.safetensors")
                for layer in range(LAYERS)]

    def parts(self, size):
        return [len(piece) for piece in split(bytes(size))]

    def write(self, key, payload):
        pieces = split(memoryview(payload).cast("B"))
        try:
            os.makedirs(self._directory(key), exist_ok=True)
            for path, piece in zip(self.files(key), pieces):
                save(path, piece)
            return True
        except OSError as error:
            self.note("put", error)
            return False

    def exists(self, key):
        return os.path.exists(self._directory(key))

    def get(self, key, size):
        if not self.exists(key):
            return None
        return b"".join(load(path) for path in self.files(key))

    def delete(self, key):
        """The engine never removes anything: this is its operator's rm -r."""
        for path in self.files(key):
            unlink_if_there(path)
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(self._directory(key))

    def clear(self):
        with os.scandir(self.root) as entries:
            directories = [e.path for e in entries if e.is_dir()]
        for directory in directories:
            with contextlib.suppress(FileNotFoundError):
                for name in os.listdir(directory):
                    unlink_if_there(os.path.join(directory, name))
                os.rmdir(directory)


def split(payload):
    """The page as its layers have it; the last layer takes what does not divide."""
    share = len(payload) // LAYERS
    return [payload[i * share:(i + 1) * share if i < LAYERS - 1 else len(payload)]
            for i in range(LAYERS)]


def save(path, piece):
    tensor = {"kv_cache": {"dtype": "U8", "shape": [len(piece)], "data_offsets": [0, len(piece)]}}
    text = json.dumps(tensor, separators=(",", ":")).encode()
    text = text.ljust(-(-len(text) // 8) * 8)
    content = memoryview(struct.pack("<Q", len(text)) + text + bytes(piece))
    letters = "".join(random.SystemRandom().choices(string.ascii_letters + string.digits, k=6))
    temp = os.path.join(os.path.dirname(path), ".tmp" + letters)
    fd = os.open(temp, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.ftruncate(fd, len(content))
        while content:
            content = content[os.write(fd, content[:WRITE_BYTES]):]
        os.rename(temp, path)
    except OSError:
        unlink_if_there(temp)
        raise
    finally:
        os.close(fd)


def load(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        mapped = mmap.mmap(fd, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
    finally:
        os.close(fd)
    with mapped:
        begin = 8 + struct.unpack_from("<Q", mapped)[0]
        size = json.loads(mapped[8:begin])["kv_cache"]["shape"][0]
        return mapped[begin:begin + size]
