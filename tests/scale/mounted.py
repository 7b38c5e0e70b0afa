# SPDX-License-Identifier: Apache-2.0
"""A mounted store whose daemon is watched: its memory, what it reads from disk, its counters."""
import os
import pathlib
import subprocess
import time

DEADLINE_SECONDS = 120
MIB = 1 << 20


def wait_until(what, condition):
    """True as soon as the condition holds; the end of the program if it does not come to that."""
    end = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"check-scale: waited {DEADLINE_SECONDS} s in vain: {what}")
        time.sleep(0.02)


class Mounted:
    """One rank, mounted below a directory that it may fill; unmounted by close."""

    def __init__(self, daemon, directory, options):
        self.program = daemon
        self.base = pathlib.Path(directory)
        self.options = options
        self.store = self.base / "store"
        self.path = self.base / "mnt"
        self.rank = self.path / "rank0"
        self.daemon = None
        self.path.mkdir(parents=True, exist_ok=True)

    def open(self, cold_start):
        log = open(self.base / "daemon.log", "ab")
        self.daemon = subprocess.Popen(
            [self.program, self.store, self.path, "-f", "-o",
             f"rank=0,{self.options},cold_start={cold_start}"], stdout=log, stderr=log)
        log.close()
        wait_until("the mount serves", lambda: self.is_serving() or self.has_ended())
        if self.has_ended():
            raise SystemExit(f"check-scale: the daemon ended: see {self.base / 'daemon.log'}")
        self.wait_for_memory()

    def is_serving(self):
        return os.path.ismount(self.path) and (self.path / ".cpl3" / "stats").exists()

    def has_ended(self):
        return self.daemon.poll() is not None

    def wait_for_memory(self):
        """Until the payload memory has been touched, which a thread does from the start."""
        seen = [0]

        def is_steady():
            before, seen[0] = seen[0], self.memory_bytes()
            return seen[0] == before

        wait_until("the daemon's memory is touched", is_steady)

    def close(self):
        """0, or what the daemon ended with."""
        if not self.daemon:
            return 0
        subprocess.run(["umount", self.path], check=False)
        try:
            status = self.daemon.wait(DEADLINE_SECONDS)
        except subprocess.TimeoutExpired:
            self.daemon.kill()
            subprocess.run(["umount", "-l", self.path], check=False)
            status = self.daemon.wait()
        self.daemon = None
        return status

    def field(self, file, name):
        text = pathlib.Path(f"/proc/{self.daemon.pid}/{file}").read_text()
        return int(next(line for line in text.splitlines() if line.startswith(name)).split()[1])

    def memory_bytes(self):
        """The anonymous part: the rest is the index in the page cache, mapped."""
        return self.field("status", "RssAnon:") * 1024

    def disk_read_bytes(self):
        return self.field("io", "read_bytes:")

    def counter(self, name):
        text = (self.path / ".cpl3" / "stats").read_text()
        return int(next(line.split()[1] for line in text.splitlines()
                        if line.split()[0] == name))

    def commit(self):
        (self.path / ".cpl3" / "control").write_text("commit\n")


def forget_all_inodes():
    """The kernel gives up the dentries and inodes that nobody uses."""
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("2\n")


def known_inodes():
    """What the kernel holds of FUSE, on the whole machine."""
    for line in pathlib.Path("/proc/slabinfo").read_text().splitlines():
        if line.startswith("fuse_inode"):
            return int(line.split()[1])
    return 0
