# SPDX-License-Identifier: Apache-2.0
"""The C parts of the clients and of the faults: shared objects that the Makefile builds beside the
daemon, in clients/."""

import ctypes
import functools
import os


def daemon():
    """Path of the daemon's program, as for the other mount tests."""
    return os.path.abspath(os.environ.get("CPL3_DAEMON", "build/cpl3fs"))


def path(name):
    return os.path.join(os.path.dirname(daemon()), "clients", f"{name}.so")


@functools.lru_cache(maxsize=None)
def load(name):
    return ctypes.CDLL(path(name), use_errno=True)
