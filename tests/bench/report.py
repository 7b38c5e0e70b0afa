# SPDX-License-Identifier: Apache-2.0
"""
From the samples of one run to ratios, judgements and Markdown. Ratios are taken within a
repetition, where all engines ran one after the other, and their median is what counts.
"""
import collections
import csv
import statistics

CPL3 = "cpl3"
BUFFERED = "ext4-buffered"
DIRECT = "ext4-direct"  # the better of the two kinds of buffers
RAW = "raw"
ROCKSDB = "rocksdb"
EVICTOR = "ext4-lru"  # a client that keeps a directory to its size by itself
ENGINES = (CPL3, BUFFERED, "ext4-direct-plain", "ext4-direct-huge", ROCKSDB, RAW)
BELOW, PAST = "put, below capacity", "put, far past capacity"
PAGES = ("put, first fill", "put, reuse", "put + fsync, first fill", "put + fsync, reuse",
         "cold get", "cold get, O_DIRECT", "hot get", "hot get, O_DIRECT")
TIMES = ("stat, cached", "stat, known absent", "listing", "ls -l, cold")
MEMORY = ("memory of a slot", "memory of a slot, without index pages")
REPLAY = "replay, "
ONE_WAY = ("FORGET", "BATCH_FORGET", "INTERRUPT")  # requests without an answer
MILLION = 1_000_000
TABLE_HEAD_LINES = 2
FLOOR_TOLERANCE = 0.05  # medians of equal programs differ by as much

Spread = collections.namedtuple("Spread", "median least most")
Goal = collections.namedtuple("Goal", "operation size threads against better goal floor")
Judgement = collections.namedtuple("Judgement", "goal spread met above_floor")


def read_samples(path):
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        for key in ("object_bytes", "threads", "repetition", "count"):
            row[key] = int(row[key])
        row["quantity"] = float(row["quantity"])
    return rows


def read_goals(path):
    with open(path, newline="") as file:
        return [
            Goal(row["operation"], int(row["object_bytes"]), int(row["threads"]), row["against"],
                 row["better"], float(row["goal"]), float(row["floor"]) if row["floor"] else None)
            for row in csv.DictReader(file)
        ]


def spread(values):
    values = list(values)
    return Spread(statistics.median(values), min(values), max(values)) if values else None


def is_above_floor(goal, value):
    if goal.floor is None:
        return True
    if goal.better == "higher":
        return value >= goal.floor * (1 - FLOOR_TOLERANCE)
    return value <= goal.floor * (1 + FLOOR_TOLERANCE)


class Results:
    """Samples by (operation, size, threads), engine and repetition."""

    def __init__(self, samples):
        self.samples = samples
        self.by_key = collections.defaultdict(lambda: collections.defaultdict(dict))
        for row in samples:
            if row["unit"] == "requests" or row["operation"].startswith(REPLAY):
                continue
            key = (row["operation"], row["object_bytes"], row["threads"])
            self.by_key[key][row["engine"]][row["repetition"]] = row

    def keys(self, operation):
        return sorted(key for key in self.by_key if key[0] == operation)

    def quantities(self, key, engine):
        """{repetition: seconds or bytes}"""
        engines = self.by_key.get(key, {})
        if engine == DIRECT:
            kinds = [self.quantities(key, kind) for kind in engines if kind.startswith(DIRECT)]
            common = set.intersection(*map(set, kinds)) if kinds else set()
            return {r: min(kind[r] for kind in kinds) for r in common}
        return {r: row["quantity"] for r, row in engines.get(engine, {}).items()}

    def count(self, key, engine=CPL3):
        return next(iter(self.by_key[key][engine].values()))["count"]

    def rate(self, key, engine):
        """Bytes a second."""
        return spread(
            row["count"] * row["object_bytes"] / row["quantity"]
            for row in self.by_key.get(key, {}).get(engine, {}).values()
        )

    def each(self, key, engine=CPL3):
        """Seconds or bytes for one operation, name or slot."""
        return spread(
            row["quantity"] / row["count"]
            for row in self.by_key.get(key, {}).get(engine, {}).values()
        )

    def speed_ratio(self, key, engine):
        """How many times as fast as that engine: of equal work, so the inverse of times."""
        mine, other = self.quantities(key, CPL3), self.quantities(key, engine)
        return spread(other[r] / mine[r] for r in sorted(mine.keys() & other.keys()))

    def time_ratio(self, key, engine):
        mine, other = self.quantities(key, CPL3), self.quantities(key, engine)
        return spread(mine[r] / other[r] for r in sorted(mine.keys() & other.keys()))

    def sustained_ratio(self, key):
        past, below = self.quantities(key, CPL3), self.quantities((BELOW, *key[1:]), CPL3)
        return spread(below[r] / past[r] for r in sorted(past.keys() & below.keys()))

    def judged_value(self, goal):
        key = (goal.operation, goal.size, goal.threads)
        if key not in self.by_key:
            return None
        if goal.against == "below capacity":
            return self.sustained_ratio(key)
        if goal.against == "bytes":
            return self.each(key)
        if goal.against.startswith("seconds for"):
            one = self.each(key)
            return Spread(*(value * MILLION for value in one))
        ratio = self.speed_ratio if goal.better == "higher" else self.time_ratio
        return ratio(key, goal.against)

    def judge(self, goals):
        """[Judgement] of those goals that were measured."""
        judgements = []
        for goal in goals:
            value = self.judged_value(goal)
            if value is None:
                continue
            higher = goal.better == "higher"
            met = value.median >= goal.goal if higher else value.median <= goal.goal
            judgements.append(Judgement(goal, value, met, met or is_above_floor(goal, value.median)))
        return judgements


# Markdown


def size_text(size):
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def ratio_text(value):
    if value is None:
        return "–"
    digits = 2 if value.median < 10 else 1
    return f"{value.median:.{digits}f} ({value.least:.{digits}f}–{value.most:.{digits}f})"


def time_text(seconds):
    for unit, factor in (("s", 1), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def goal_text(goal):
    sign = {"higher": "≥", "lower": "≤"}[goal.better]
    names = {BUFFERED: "buffered", "below capacity": "of below capacity",
             "seconds for 1000000 slots": "s for 1,000,000"}
    return f"{sign} {goal.goal:g} {names.get(goal.against, goal.against)}"


def goal_texts(judgements, key):
    """The columns goal and met."""
    mine = [j for j in judgements if (j.goal.operation, j.goal.size, j.goal.threads) == key]
    met = "; ".join("yes" if j.met else "no" if j.above_floor else "**no, below the floor**"
                    for j in mine)
    return "; ".join(goal_text(j.goal) for j in mine), met


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def page_table(results, judgements):
    rows = []
    for operation in PAGES:
        for key in results.keys(operation):
            rate = results.rate(key, CPL3)
            each = results.each(key)
            rows.append([operation, size_text(key[1]), str(key[2]),
                         f"{rate.median / 1e6:.0f} MB/s, {time_text(each.median * key[2])}",
                         ratio_text(results.speed_ratio(key, BUFFERED)),
                         ratio_text(results.speed_ratio(key, DIRECT)),
                         ratio_text(results.speed_ratio(key, ROCKSDB)),
                         ratio_text(results.speed_ratio(key, RAW)),
                         *goal_texts(judgements, key)])
    return table(["operation", "size", "threads", "cpl3", "× ext4 buffered", "× ext4 O_DIRECT best",
                  "× RocksDB", "× raw", "goal", "met"], rows)


def time_table(results, judgements):
    rows = []
    for operation in TIMES:
        for key in results.keys(operation):
            each = results.each(key).median
            count = results.count(key)
            shown = f"{time_text(each * key[2])} each"
            if not operation.startswith("stat"):
                shown = f"{time_text(each * count)} for {count:,} names"
            rows.append([operation, str(key[2]), shown,
                         ratio_text(results.time_ratio(key, BUFFERED)),
                         *goal_texts(judgements, key)])
    return table(["operation", "threads", "cpl3", "time / ext4's time", "goal", "met"], rows)


def sustained_table(results, judgements):
    rows = []
    for key in results.keys(PAST):
        rows.append([PAST, size_text(key[1]), str(key[2]),
                     f"{results.rate(key, CPL3).median / 1e6:.0f} MB/s",
                     ratio_text(results.sustained_ratio(key)),
                     ratio_text(results.speed_ratio(key, EVICTOR)),
                     ratio_text(results.speed_ratio(key, ROCKSDB)), *goal_texts(judgements, key)])
    return table(["operation, with a sync at the end", "size", "threads", "cpl3",
                  "× below capacity", "× ext4 + client's LRU", "× RocksDB", "goal", "met"], rows)


def own_table(results, judgements):
    """What has no counterpart."""
    rows = []
    for key in results.keys("load"):
        each, count = results.each(key), results.count(key)
        rows.append([f"`load` of {count:,} slots (an empty mount's time taken off)",
                     time_text(each.median * count),
                     f"{each.median * MILLION:.2f} s for 1,000,000", *goal_texts(judgements, key)])
    for operation in MEMORY:
        for key in results.keys(operation):
            name = operation + " (VmRSS above that of an empty mount)"
            if operation != MEMORY[0]:
                name = "of that, the process's own (RssAnon)"
            rows.append([name, f"{results.each(key).median:.0f} bytes", "",
                         *goal_texts(judgements, key)])
    return table(["operation", "cpl3", "scaled", "goal", "met"], rows)


def rate_table(results):
    rows = []
    for operation in PAGES:
        for key in results.keys(operation):
            rates = [results.rate(key, engine) for engine in ENGINES]
            rows.append([operation, size_text(key[1]), str(key[2]),
                         *(f"{rate.median / 1e6:.0f}" if rate else "–" for rate in rates)])
    return table(["operation", "size", "threads", *ENGINES], rows)


def request_counts(results):
    """{(operation, size): {opcode: requests for one operation}}"""
    requests = collections.defaultdict(dict)
    for row in results.samples:
        if row["unit"] == "requests":
            key = (row["operation"], row["object_bytes"])
            requests[key][row["detail"]] = row["quantity"] / row["count"]
    return requests


def round_trips(opcodes):
    return sum(count for name, count in opcodes.items() if name not in ONE_WAY)


def request_table(results):
    rows = []
    for (operation, size), opcodes in request_counts(results).items():
        shown = sorted((item for item in opcodes.items() if item[1] > 0), key=lambda item: -item[1])
        rows.append([operation, size_text(size), f"{round_trips(opcodes):.1f}",
                     ", ".join(f"{name} {count:.2g}" for name, count in shown) or "none"])
    return table(["operation", "size", "round trips", "requests"], rows)


def replay_table(results):
    """A row a pass and engine: medians over the repetitions."""
    passes = collections.defaultdict(lambda: collections.defaultdict(list))
    for row in results.samples:
        if row["operation"].startswith(REPLAY):
            key = (row["operation"].removeprefix(REPLAY), row["engine"], row["object_bytes"])
            passes[key][row["detail"]].append(row)
    rows = []
    for (name, engine, size), details in passes.items():
        def middle(detail, value):
            return statistics.median(value(row) for row in details[detail])

        def quantiles(what):
            if not details[f"{what} p50"]:
                return ["none", "", "", ""]
            return [f"{middle(f'{what} p50', lambda row: row['count']):.0f}",
                    *(time_text(middle(f"{what} {p}", lambda row: row["quantity"]))
                      for p in ("p50", "p99", "p99.9"))]

        rows.append([name, engine, size_text(size),
                     time_text(middle("all", lambda row: row["quantity"])),
                     f"{middle('hits', lambda row: row['quantity'] / row['count']):.4f}",
                     *quantiles("get"), *quantiles("put"),
                     f"{sum(row['quantity'] for row in details['wrong bytes']):.0f}"])
    return table(["pass", "engine", "block", "all requests", "hit rate", "gets", "p50", "p99",
                  "p99.9", "puts", "p50", "p99", "p99.9", "wrong bytes read, in all"], rows)


def scale_rows(results, operations, column):
    """A row for each number of slots, threads or ranks, against the first one of its operation."""
    groups = collections.defaultdict(list)
    for row in results.samples:
        if row["operation"] in operations:
            key = (row["operation"], row["engine"], row["object_bytes"])
            groups[key + column(row)].append(row["quantity"] / row["count"])
    first = {}
    rows = []
    for (operation, engine, size, *place), each in groups.items():
        middle = spread(each)
        base = first.setdefault((operation, engine), middle.median)
        rows.append([operation, engine, " ".join(map(str, place)), time_text(middle.median),
                     f"{size / middle.median / 1e6:.0f} MB/s", f"{middle.median / base:.2f}"])
    return rows


def scale_table(results):
    rows = scale_rows(results, ("get by slots", "put by slots"), lambda row: (row["detail"],))
    rows += scale_rows(results, ("put by threads", "get by threads"),
                       lambda row: (row["threads"], "threads"))
    rows += scale_rows(results, ("put by ranks", "put + fsync by ranks"),
                       lambda row: (row["threads"], "ranks,", row["detail"]))
    return table(["operation", "engine", "of", "all threads together, one operation", "rate",
                  "time / that of the first row"], rows)


def markdown(results, judgements, machine, reasons, peers):
    """reasons, peers: the rows of the tables of missed goals and of peers that are ahead."""
    repetitions = 1 + max(row["repetition"] for row in results.samples)
    met = sum(j.met for j in judgements)
    sections = [
        ("Pages: how many times as fast (cpl3: all threads together; one operation)",
         page_table(results, judgements)),
        ("Names", time_table(results, judgements)),
        ("Past capacity", sustained_table(results, judgements)),
        ("Cold start", own_table(results, judgements)),
        ("Goals missed, and why",
         table(["operation", "size", "threads", "goal", "measured", "why"], reasons)),
        ("RocksDB is ahead, and why",
         table(["operation", "size", "threads", "wanted", "measured", "why"], peers)),
        ("Trace replay: latency of one get and one put, open to close", replay_table(results)),
        ("More slots, threads, ranks", scale_table(results)),
        ("MB/s of all engines, medians", rate_table(results)),
        ("FUSE requests of one operation", request_table(results)),
    ]
    lines = ["# cpl3 against ext4 files and the raw disk", ""]
    lines += [f"- {name}: {value}" for name, value in machine.items()]
    lines += ["", f"Medians of the ratios within each of {repetitions} repetitions "
              f"(smallest–largest). Goals met: {met} of {len(judgements)}. First fill: no engine, raw "
              "among them, ever wrote to these blocks of its file or files; reuse: it did. raw is "
              "one preallocated file, O_DIRECT by io_uring from huge pages, with nothing else to "
              "do.", ""]
    for title, section in sections:
        if len(section) > TABLE_HEAD_LINES:
            lines += [f"## {title}", "", *section, ""]
    return "\n".join(lines)
