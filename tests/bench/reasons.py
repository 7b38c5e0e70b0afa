# SPDX-License-Identifier: Apache-2.0
"""
Why a goal was missed. The sentences stand in reasons.csv, and each with a figure: it is told only
if this run measured the figure and it is at least so large. A row is for all operations that begin
as it says.
"""
import collections
import csv

import report

Reason = collections.namedtuple("Reason", "operation against figure least why")
REQUESTS = {"put, first fill": "put", "put, reuse": "put", "put + fsync, first fill": "put + fsync",
            "put + fsync, reuse": "put + fsync", "hot get": "get, name known",
            "cold get": "get, name unknown to the kernel", "stat, cached": "stat, name known",
            "stat, known absent": "stat, absent, again"}
WHOLE = ("ext4", "raw", "needed", "round_trips", "own_bytes")


def read(path):
    with open(path, newline="") as file:
        return [Reason(row["operation"], row["against"], row["figure"], float(row["least"]),
                       row["why"]) for row in csv.DictReader(file)]


def rate(results, key, engine):
    value = results.rate(key, engine)
    return value.median / 1e6 if value else None


def each_seconds(results, key, engine):
    """One operation of one thread."""
    value = results.each(key, engine)
    return value.median * key[2] if value else None


def ratio(one, other):
    return one / other if one and other else None


def median(value):
    return value.median if value else None


def request_figures(results, operation, size):
    """Requests are counted for few sizes: those of the largest one that is not above this."""
    counted = report.request_counts(results)
    name = REQUESTS.get(operation)
    sizes = [key[1] for key in counted if key[0] == name and (key[1] <= size or size == 0)]
    if not sizes:
        return {}
    opcodes = counted[(name, max(sizes))]
    shown = [f"{opcode} {count:.0f}" for opcode, count in opcodes.items()
             if count >= 0.5 and opcode not in report.ONE_WAY]
    round_trips = report.round_trips(opcodes)
    return {"round_trips": round_trips, "requests": ", ".join(shown),
            "all_in_kernel": 1 if round_trips < 0.1 else 0}


def figures(results, goal):
    """{name: number or text}; None or absent: not measured."""
    key = (goal.operation, goal.size, goal.threads)
    four = (goal.operation, goal.size, 4)
    reuse = (goal.operation.replace("first fill", "reuse"), *key[1:])
    durable = (goal.operation.replace("put,", "put + fsync,"), *key[1:])
    below = (report.BELOW, *key[1:])
    mine, ext4, raw = (rate(results, key, engine)
                       for engine in (report.CPL3, report.BUFFERED, report.RAW))
    each, ext4_each, raw_each = (each_seconds(results, key, engine)
                                 for engine in (report.CPL3, report.BUFFERED, report.RAW))
    needed = goal.goal * ext4 if ext4 else None
    of_raw = median(results.speed_ratio(key, report.RAW))
    four_of_raw = median(results.speed_ratio(four, report.RAW))
    return {
        "ext4": ext4, "raw": raw, "needed": needed, "of_raw": of_raw, "four_of_raw": four_of_raw,
        "each": each, "ext4_each": ext4_each, "raw_each": raw_each,
        "rocksdb_each": each_seconds(results, key, report.ROCKSDB),
        "below_each": each_seconds(results, below, report.CPL3),
        "ext4_of_raw": ratio(ext4, raw), "needed_of_raw": ratio(needed, raw),
        "each_of_raw": ratio(each, raw_each),
        "four_gain": ratio(four_of_raw, of_raw) if goal.threads == 1 else None,
        "each_gap": ratio(each, ext4_each),
        "own_bytes": median(results.each((report.MEMORY[1], 0, 1)))
                     if goal.operation == report.MEMORY[0] else None,
        "raw_reuse_gain": ratio(rate(results, reuse, report.RAW), raw),
        "reuse_gain": ratio(rate(results, reuse, report.CPL3), mine),
        "direct": median(results.speed_ratio((goal.operation + ", O_DIRECT", *key[1:]),
                                             report.BUFFERED)),
        "with_fsync": median(results.speed_ratio(durable, report.BUFFERED)),
        **request_figures(results, goal.operation, goal.size),
    }


def text(name, value):
    if isinstance(value, str):
        return value
    if name.endswith("each"):
        return report.time_text(value)
    return f"{value:.0f}" if name in WHOLE else f"{value:.2f}"


def explain(goal, known, reasons):
    """A sentence of which a figure was not measured is not told."""
    texts = {name: text(name, value) for name, value in known.items() if value is not None}
    told = []
    for reason in reasons:
        if (goal.operation.startswith(reason.operation) and goal.against == reason.against
                and reason.figure in texts and known[reason.figure] >= reason.least):
            try:
                told.append(reason.why.format_map(texts))
            except KeyError:
                continue
    return "; ".join(told) or "no figure of this run tells"


def row(results, goal, spread, reasons):
    return [goal.operation, report.size_text(goal.size) if goal.size else "", str(goal.threads),
            report.goal_text(goal), report.ratio_text(spread),
            explain(goal, figures(results, goal), reasons)]


def rows(results, judgements, path):
    """[operation, size, threads, goal, measured, why] of each missed goal."""
    reasons = read(path)
    return [row(results, j.goal, j.spread, reasons) for j in judgements if not j.met]


def peer_rows(results, path):
    """The same of each page operation in which RocksDB is ahead."""
    reasons = read(path)
    found = []
    for operation in report.PAGES:
        for key in results.keys(operation):
            spread = results.speed_ratio(key, report.ROCKSDB)
            if spread and spread.median < 1:
                goal = report.Goal(*key, report.ROCKSDB, "higher", 1, None)
                found.append(row(results, goal, spread, reasons))
    return found
