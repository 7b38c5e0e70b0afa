# SPDX-License-Identifier: Apache-2.0
"""An engine's process: a child that holds one client and does what it is asked to, each call
within a time limit, so that a client that hangs in the file system fails its cell and nothing
else. It lives through restarts of the daemon."""

import atexit
import multiprocessing
import os
import signal
import sys
import traceback

from mounted import die_with_parent, wait_until

CALL_SECONDS = 30


class Hang(Exception):
    """A call took longer than it may."""


class Died(Exception):
    """The process ended in a call. status: as Popen has it."""

    def __init__(self, what, status):
        super().__init__(f"{what}: the client's process ended with status {status}")
        self.status = status


class Failed(Exception):
    """The call raised something that is no result of the client: its traceback."""


class Actor:
    def __init__(self, make, *arguments):
        """make(*arguments): the object whose methods are called, made in the child."""
        self._pipe, theirs = multiprocessing.Pipe()
        sys.stdout.flush()
        self._pending = None
        self._owner = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            _serve(theirs, make, arguments)
        theirs.close()
        self._status = None
        atexit.register(self.end)

    def send(self, method, *arguments):
        self._pipe.send((method, arguments))
        self._pending = method

    def receive(self, seconds=CALL_SECONDS):
        method, self._pending = self._pending, None
        if not self._pipe.poll(seconds):
            raise Hang(f"{method} takes longer than {seconds} s")
        try:
            good, result = self._pipe.recv()
        except (EOFError, ConnectionResetError):
            wait_until(self._ended, CALL_SECONDS)
            raise Died(method, self._status) from None
        if not good:
            raise Failed(f"{result.splitlines()[-1]}\n{result}")
        return result

    def call(self, method, *arguments, seconds=CALL_SECONDS):
        self.send(method, *arguments)
        return self.receive(seconds)

    def _ended(self):
        if self._status is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self._status = os.waitstatus_to_exitcode(status)
        return self._status is not None

    def end(self):
        """Kills it. False: it does not die, since it hangs in the kernel."""
        if self._owner != os.getpid():
            return True
        atexit.unregister(self.end)
        if not self._ended():
            os.kill(self._pid, signal.SIGKILL)
        return wait_until(self._ended, CALL_SECONDS)


def _serve(pipe, make, arguments):
    """The child: never returns."""
    die_with_parent()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    try:
        target = make(*arguments)
        while True:
            method, arguments = pipe.recv()
            try:
                pipe.send((True, getattr(target, method)(*arguments)))
            except Exception:
                pipe.send((False, traceback.format_exc()))
    except (EOFError, KeyboardInterrupt):
        pass
    except Exception:
        pipe.send((False, traceback.format_exc()))
    os._exit(0)
