# SPDX-License-Identifier: Apache-2.0
"""What every replayed client has in common.

A client here repeats what one file-based KV backend does to its directory: the same system calls,
in the same order, with the same sizes, on names of the same shape. It knows nothing of cpl3. One
object is one engine process's backend; its methods are called from many threads at once, as
engines do.

Two rules make a replay worth something: - It catches exactly the errors that its engine catches.
What escapes a method here would have killed the engine's I/O thread. - Every OSError that it does
catch is noted (`note`), so that the driver can tell a miss (ENOENT) from an error that the engine
happened to swallow. """

import errno
import threading


class Client:
    """One backend of one engine process. `root` is the directory that the engine was pointed
    at."""

    name = ""  # as in the table that is printed and in README
    direct_publish = False  # writes the final name, without a temp and rename
    index_in_memory = False  # a new process of it finds nothing of what is stored
    miss_limit = ""  # why even a plain miss of a page that it saw is too much for the client
    limits = {}  # fault name -> why the client itself cannot stand it, whatever the file system does

    def __init__(self, root):
        self.root = root
        self._noted = []
        self._noted_lock = threading.Lock()

    def start(self):
        """What the engine does to the directory when it starts: probes, mkdirs, a scan."""

    def stop(self):
        """Lets go of what start() took. The directory stays as it is."""

    def files(self, key):
        """Paths of the files that hold page `key` when it is stored, the payload's first."""
        raise NotImplementedError

    def parts(self, size):
        """Into how many bytes a page is split over several files, when it is: each file is
        published by itself."""
        return [size]

    def write(self, key, payload):
        """Stores `payload` (bytes-like) as page `key`, over an older one if there is one. An
        OSError that the engine reports as a failed store is noted and False returned; True:
        stored, as far as the engine knows."""
        raise NotImplementedError

    def put(self, key, payload):
        """As write(), but as the engine does it: most skip the write of a page that exists."""
        return True if self.exists(key) else self.write(key, payload)

    def exists(self, key):
        raise NotImplementedError

    def get(self, key, size):
        """Bytes of page `key`, which the engine expects to have `size` bytes; None is a miss."""
        raise NotImplementedError

    # Many pages in one call. Engines that have no such call go through the pages.

    def write_many(self, pages):
        """write() of each (key, payload): a list of its results."""
        return [self.write(key, payload) for key, payload in pages]

    def exists_many(self, keys):
        return [self.exists(key) for key in keys]

    def get_many(self, keys, size):
        return [self.get(key, size) for key in keys]

    def list(self):
        """Keys of all pages that the engine's own scan finds; None where it never scans."""
        return None

    def delete(self, key):
        """Removes one page; an absent one is no error."""
        raise NotImplementedError

    def clear(self):
        """Removes all pages in the way that the engine does it (most: scan and unlink)."""
        raise NotImplementedError

    def note(self, operation, error):
        """Notes an OSError that the engine catches. `operation`: put, get, exists, list, delete,
        clear."""
        with self._noted_lock:
            self._noted.append((operation, error.errno, threading.get_ident()))

    def noted(self, *operations, own=False):
        """Names of the errnos noted in these operations (all without one), and forgets them. own:
        by this thread only."""
        with self._noted_lock:
            taken = [n for n in self._noted if (not operations or n[0] in operations)
                     and (not own or n[2] == threading.get_ident())]
            self._noted = [n for n in self._noted if n not in taken]
        return sorted({errno.errorcode.get(number, str(number)) for _, number, _ in taken})
