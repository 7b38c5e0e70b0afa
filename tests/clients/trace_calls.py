# SPDX-License-Identifier: Apache-2.0
"""The system calls of a client below its directory, under strace on the plain disk: to be compared
with what the engine itself does. Between the operations the traced process looks at names that do
not exist, which mark them in the trace."""

import os
import re
import subprocess
import sys
import tempfile

import catalog
import page

SIZE = 4497408
MARK = "/cpl3-operation-"
REPEATED_MAX = 4
ALWAYS = ("io_submit", "io_getevents", "io_uring_enter")  # their files stand in memory
STEPS = ("start", "put", "exists", "get", "list", "delete", "clear")
LINE = re.compile(r"^\d+ +(\w+)\((.*)\) += (-?\w+)(.*)$")


def play(name, root):
    """In the traced process."""
    client = catalog.clients()[name](root)
    key, other, payload = page.key("strace"), page.key("other"), page.payload("strace", 1, SIZE)

    def mark(step):
        os.path.exists(f"{MARK}{step}")

    for step, call in (("start", client.start), ("put", lambda: client.put(key, payload)),
                       ("exists", lambda: client.exists(key)),
                       ("get", lambda: client.get(key, SIZE)), ("list", client.list),
                       ("delete", lambda: client.delete(key)),
                       ("put of another", lambda: client.put(other, payload)),
                       ("clear", client.clear)):
        mark(step)
        call()
    mark("end")


def calls(lines, root):
    """{step: [call, ...]} of a trace: what names a path below root, or a descriptor that was
    opened there."""
    step, descriptors, found = None, set(), {s: [] for s in STEPS}
    for line in lines:
        match = LINE.match(line)
        if not match:
            continue
        call, arguments, result = match.group(1), match.group(2), match.group(3)
        if MARK in arguments:
            step = re.search(f"{MARK}([\\w ]+)", arguments).group(1)
            continue
        first = re.match(r"(\d+)", arguments)
        ours = root in arguments or first and int(first.group(1)) in descriptors
        ours = ours or call in ALWAYS
        if call == "mmap":
            used = re.search(r", (\d+), 0x?[0-9a-f]+$|, (\d+), 0$", arguments)
            ours = bool(used) and int(used.group(1) or used.group(2)) in descriptors
        if call in ("openat", "dup", "fcntl") and ours and result.isdigit() and (
                call != "fcntl" or "DUPFD" in arguments):
            descriptors.add(int(result))
        if call == "close" and ours:
            descriptors.discard(int(first.group(1)))
        if ours and step in found:
            found[step].append(shorten(call, arguments, result, match.group(4), root))
    return found


def shorten(call, arguments, result, rest, root):
    """Without addresses, names and bytes; descriptors are `fd`."""
    for pattern, replacement in (
            (re.escape(root) + r'(?=["/])', "/"), (r"AT_FDCWD, ", ""), (r"\|O_CLOEXEC", ""),
            (r'"/(?:[^"\\]|\\.)*"', "name"), (r'"(?:[^"\\]|\\.)*"(?:\.\.\.)?', "bytes"),
            (r"0x[0-9a-f]+(?: /\*.*\*/)?", "at"), (r"\[\{.*\}[^\]]*\]", "vector"),
            (r"\{.*\}", "result"), (r"^\d+", "fd"), (r"(MAP_\w+, )\d+", r"\1fd")):
        arguments = re.sub(pattern, replacement, arguments)
    error = re.match(r" (E\w+)", rest)
    return f"{call}({arguments})" + (f" = {error.group(1)}" if error else "")


def summarize(sequence):
    """The same with scans of directories as one word, and repetitions of up to REPEATED_MAX calls
    counted."""
    text = "\n".join(sequence) + "\n"
    text = re.sub(r"openat\(\w+, [^)]*O_DIRECTORY\)\n(?:newfstatat\(fd.*\n)?"
                  r"(?:getdents64.*\n)+(?:close\(fd\)\n)?", "scandir\n", text)
    words, at, calls_left = [], 0, text.splitlines()
    while at < len(calls_left):
        length, count = repetition(calls_left, at)
        word = "; ".join(calls_left[at:at + length])
        word = f"({word})" if length > 1 else word
        words.append(f"{word} x{count}" if count > 1 else word)
        at += length * count
    return words


def repetition(sequence, at):
    """(length, count) of what repeats from there; (1, 1): nothing does."""
    for length in range(1, REPEATED_MAX + 1):
        unit, count = sequence[at:at + length], 1
        while unit == sequence[at + length * count:at + length * (count + 1)]:
            count += 1
        if count > 1:
            return length, count
    return 1, 1


def trace(name):
    with tempfile.TemporaryDirectory(prefix="cpl3-strace-") as base:
        root, output = os.path.join(base, "root"), os.path.join(base, "trace")
        os.mkdir(root)
        program = (f"import sys; sys.dont_write_bytecode = True; sys.path.insert(0, "
                   f"{sys.path[0]!r}); import trace_calls; trace_calls.play({name!r}, {root!r})")
        subprocess.run(["strace", "-f", "-s", "400", "-o", output, sys.executable, "-c", program],
                       check=True)
        with open(output, encoding="utf-8", errors="replace") as lines:
            return calls(lines, root)


def main(names):
    for name in names:
        print(f"{name}, a page of {SIZE} bytes:")
        for step, sequence in trace(name).items():
            print(f"  {step}: " + "; ".join(summarize(sequence)))
    return 0
