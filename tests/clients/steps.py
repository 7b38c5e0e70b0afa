# SPDX-License-Identifier: Apache-2.0
"""Steps that several clients share: page-aligned memory as O_DIRECT wants it, read(2) into memory that is already
there (Python has no such call), and removing files that somebody else may have removed first."""

import ctypes
import mmap
import os

_libc = ctypes.CDLL(None, use_errno=True)
_libc.read.restype = ctypes.c_ssize_t
_libc.read.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)


def aligned_memory(size):
    """Writable memory of `size` bytes that begins at a page."""
    return mmap.mmap(-1, size)


def aligned_copy(payload):
    memory = aligned_memory(len(payload))
    memory[:] = memoryview(payload).cast("B")
    return memory


def read_into(fd, memory):
    """One read(2) of len(memory) bytes; their number."""
    got = _libc.read(fd, ctypes.addressof(ctypes.c_char.from_buffer(memory)), len(memory))
    if got < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return got


def unlink_if_there(path):
    """Whether it was there."""
    try:
        os.unlink(path)
        return True
    except FileNotFoundError:
        return False


def files_below(root):
    """Paths of all files at any depth, by one scandir a directory."""
    for directory, _, names in os.walk(root):
        for name in names:
            yield os.path.join(directory, name)


def clear_below(root):
    """Unlinks all files; the directories stay."""
    for path in list(files_below(root)):
        unlink_if_there(path)
