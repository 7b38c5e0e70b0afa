# SPDX-License-Identifier: Apache-2.0
"""LMCache's GDS backend without GPUDirect (its POSIX fallback): pages written and read through mappings, two files a
page.

put: write a 4096-byte header, close; reopen O_RDWR, ftruncate, mmap MAP_SHARED, close, store into it, munmap, rename;
then the header again as `.metadata`. get: mmap MAP_PRIVATE|MAP_POPULATE. Start: a scan three levels deep that reads
each `.metadata` with O_NOATIME. It catches pages published before munmap has written them back, and lost shared
mappings.

Under strace: so; mmap dups the descriptor, and both are closed before the pages are
written back."""

import errno
import json
import mmap
import os
import struct
import urllib.parse
import uuid

from client import Client
from steps import clear_below, unlink_if_there

STAYS = "the .metadata of a page that went looks like the page to it, so that it is not stored again"
HEADER_BYTES = 4096
DATA, METADATA = ".kvcache.safetensors", ".metadata"


class LmcacheGds(Client):
    name = "lmcache-gds"
    limits = {"evict": STAYS, "corrupt": STAYS,
              "kill-daemon": "it reads by MAP_POPULATE: SIGBUS when the daemon dies meanwhile, or a "
                             "loop in the kernel until the engine is killed",
              "pinned": "nobody tells a mapping that there was no room: it finds its header only, a miss"}
    model, world, worker, dtype = "meta-llama/Llama-3.1-8B-Instruct", 1, 0, "bfloat16"

    def __init__(self, root):
        super().__init__(root)
        self._sizes = {}  # pages that this process stored or found
        self._made = set()  # directories that it made once and never makes again

    def start(self):
        os.makedirs(self.root, exist_ok=True)
        self._sizes.update(self._scan())

    def _path(self, key):
        text = f"{self.model}@{self.world}@{self.worker}@{key}@{self.dtype}"
        return os.path.join(self.root, key[:2], key[2:4], urllib.parse.quote(text, safe="") + DATA)

    def files(self, key):
        return [self._path(key), self._path(key) + METADATA]

    def write(self, key, payload):
        path = self._path(key)
        temp = ".tmp" + uuid.uuid4().hex[:8]
        header = pack_header(len(payload))
        try:
            directory = os.path.dirname(path)
            if directory not in self._made:
                os.makedirs(directory, exist_ok=True)
                self._made.add(directory)
            store_mapped(path + temp, header, payload)
            os.rename(path + temp, path)
            self._sizes[key] = len(payload)
            with open(path + METADATA + temp, "wb") as file:
                file.write(header)
            os.rename(path + METADATA + temp, path + METADATA)
            return True
        except OSError as error:
            self.note("put", error)
            self._sizes.pop(key, None)
            return False

    def exists(self, key):
        if key in self._sizes:
            return True
        metadata = self._path(key) + METADATA
        if not os.path.exists(metadata):
            return False
        try:
            self._sizes[key] = read_size(metadata)
            return True
        except OSError as error:
            self.note("exists", error)
            return False

    def get(self, key, size):
        if not self.exists(key):
            return None
        try:
            return load_mapped(self._path(key), size)
        except (OSError, ValueError) as error:
            if isinstance(error, OSError):
                self.note("get", error)
            self._sizes.pop(key, None)
            return None

    def _scan(self):
        """A `.metadata` that cannot be read ends it: what comes after is found only when it is asked for."""
        found = {}
        try:
            for path in metadata_below(self.root):
                found[urllib.parse.unquote(os.path.basename(path)).split("@")[3]] = read_size(path)
        except OSError as error:
            self.note("list", error)
        return found

    def list(self):
        return set(self._scan())

    def delete(self, key):
        """The engine never removes anything: this is its operator."""
        self._sizes.pop(key, None)
        for path in self.files(key):
            unlink_if_there(path)

    def clear(self):
        self._sizes.clear()
        clear_below(self.root)


def metadata_below(root):
    for first in directories(root):
        for second in directories(first.path):
            with os.scandir(second.path) as files:
                for file in files:
                    if file.is_file() and file.name.endswith(DATA + METADATA):
                        yield file.path


def directories(path):
    with os.scandir(path) as entries:
        return [e for e in entries if e.is_dir() and len(e.name) == 2]


def pack_header(size):
    tensor = {"dtype": "BF16", "shape": [2, 32, 256, size // 32768], "data_offsets": [0, size],
              "fmt": 2, "__metadata__": {"lmcache_version": "1"}}
    text = json.dumps({"kvcache": tensor}).encode()
    return struct.pack("<Q", HEADER_BYTES - 8) + text.ljust(HEADER_BYTES - 8)


def read_size(path):
    """The page's size by its `.metadata`."""
    fd = os.open(path, os.O_RDONLY | os.O_NOATIME)
    try:
        header = os.read(fd, HEADER_BYTES)
    finally:
        os.close(fd)
    return json.loads(header[8:])["kvcache"]["data_offsets"][1]


def store_mapped(temp, header, payload):
    with open(temp, "wb") as file:
        file.write(header)
    fd = os.open(temp, os.O_RDWR)
    try:
        size = HEADER_BYTES + len(payload)
        os.ftruncate(fd, size)
        mapped = mmap.mmap(fd, size, prot=mmap.PROT_WRITE, flags=mmap.MAP_SHARED)
    finally:
        os.close(fd)
    mapped[HEADER_BYTES:] = memoryview(payload).cast("B")
    mapped.close()


def load_mapped(path, size):
    fd = os.open(path, os.O_RDONLY)
    try:
        if os.fstat(fd).st_size < HEADER_BYTES + size:
            raise OSError(errno.ENODATA, "too small")
        mapped = mmap.mmap(fd, os.fstat(fd).st_size, prot=mmap.PROT_READ,
                           flags=mmap.MAP_PRIVATE | mmap.MAP_POPULATE)
    finally:
        os.close(fd)
    page = mapped[HEADER_BYTES:HEADER_BYTES + size]
    mapped.close()
    return page
