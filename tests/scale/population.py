# SPDX-License-Identifier: Apache-2.0
"""
A million small files, each known by its number: where it stands and what is in it. In one directory
they are named by hash, in the tree by name, four directories deep. Work over all of them is divided
among processes; one that fails fails the whole.
"""
import multiprocessing
import os

PROCESSES = 4
FANOUT = 8
LEVELS = 4
ABSENT = 1 << 60  # added to a number: names that nobody made


def payload(number):
    return b"%d " % number * (number % 5 + 1)


class Flat:
    """All in one directory; names are content hashes."""

    def __init__(self, top):
        self.top = str(top)

    def directories(self):
        return []

    def name(self, number):
        return "%016x" % number

    def number(self, name):
        return int(name, 16)


class Tree(Flat):
    """In the leaves of a tree, as clients make it of the digits of a key."""

    def directories(self):
        level = [""]
        for _ in range(LEVELS):
            level = [f"{above}{digit}/" for above in level for digit in range(FANOUT)]
            yield from level

    def name(self, number):
        digits, rest = [], number
        for _ in range(LEVELS):
            rest, digit = divmod(rest, FANOUT)
            digits.append(str(digit))
        return "/".join(digits) + "/page-%d.bin" % number

    def number(self, name):
        return int(name[len("page-"):-len(".bin")])


def _work(function, population, numbers, failures):
    directory = os.open(population.top, os.O_RDONLY | os.O_DIRECTORY)
    try:
        function(population, directory, numbers)
    except (OSError, AssertionError) as error:
        failures.put(f"{function.__name__}: {error}")
    os.close(directory)


def divide(function, population, first, count):
    """Runs function(population, directory, numbers) on all numbers; what went wrong."""
    failures = multiprocessing.SimpleQueue()
    workers = [
        multiprocessing.Process(target=_work, args=(
            function, population, range(first + i, first + count, PROCESSES), failures))
        for i in range(PROCESSES)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    found = [f"a process ended with {w.exitcode}" for w in workers if w.exitcode]
    while not failures.empty():
        found.append(failures.get())
    return found


def make_directories(population):
    os.makedirs(population.top, exist_ok=True)
    for name in population.directories():
        os.mkdir(f"{population.top}/{name}")


def create(population, directory, numbers):
    for number in numbers:
        fd = os.open(population.name(number), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644,
                     dir_fd=directory)
        os.write(fd, payload(number))
        os.close(fd)


def check_content(population, directory, numbers):
    for number in numbers[::997]:
        fd = os.open(population.name(number), os.O_RDONLY, dir_fd=directory)
        found = os.read(fd, 4096)
        os.close(fd)
        assert found == payload(number), f"{population.name(number)} has other bytes"


def check_absent(population, directory, numbers):
    for number in numbers:
        name = population.name(number + ABSENT)
        assert not os.access(name, os.F_OK, dir_fd=directory), f"{name} exists"


def stat(population, directory, numbers):
    for number in numbers:
        size = os.stat(population.name(number), dir_fd=directory).st_size
        assert size == len(payload(number)), f"{population.name(number)}: {size} bytes"


def scan(population, path=None):
    """Yields the numbers of what is listed, one directory entry at a time."""
    with os.scandir(path or population.top) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from scan(population, entry.path)
            else:
                yield population.number(entry.name)
