# SPDX-License-Identifier: Apache-2.0
"""One SVG an operation: throughput over size, a line an engine, one panel a number of threads."""
import re
import shutil
import subprocess

import report

COLOURS = {"cpl3": "#c0392b", "ext4-buffered": "#2471a3", "ext4-direct-plain": "#7fb3d5",
           "ext4-direct-huge": "#48a999", "rocksdb": "#b9770e", "raw": "#555555"}
HEAD = """
set terminal svg noenhanced size 960,500 font 'sans,12' background '#ffffff'
set output '{output}'
set multiplot layout 1,2 title '{title}'
set logscale x 2
set xtics ({tics})
set xrange [{least}:{most}]
set yrange [0:*]
set grid ytics
set key below maxcols 3
set ylabel 'MB/s'
"""


def panel(results, operation, threads):
    """The data block and the plot command of one panel; None: nothing was measured."""
    blocks, lines = [], []
    keys = [key for key in results.keys(operation) if key[2] == threads]
    for engine in report.ENGINES:
        rows = [(key[1], results.rate(key, engine)) for key in keys]
        rows = [(size, rate) for size, rate in rows if rate]
        if not rows:
            continue
        name = f"$data_{threads}_" + engine.replace("-", "_")
        data = "\n".join(f"{size} {r.median / 1e6} {r.least / 1e6} {r.most / 1e6}" for size, r in rows)
        blocks.append(f"{name} << EOD\n{data}\nEOD")
        lines.append(f"{name} using 1:2:3:4 with yerrorlines lw 2 pt 7 ps 0.5 "
                     f"lc rgb '{COLOURS[engine]}' title '{engine}'")
    if not lines:
        return None
    return "\n".join(blocks) + f"\nset title '{threads} thread(s)'\nplot " + ", \\\n".join(lines)


def draw(results, directory):
    """The files drawn; none without gnuplot."""
    if not shutil.which("gnuplot"):
        return []
    drawn = []
    for operation in report.PAGES:
        keys = results.keys(operation)
        panels = [panel(results, operation, threads) for threads in sorted({key[2] for key in keys})]
        if not any(panels):
            continue
        output = directory / (re.sub(r"[^a-z]+", "-", operation.lower()) + ".svg")
        sizes = sorted({key[1] for key in keys})
        tics = ", ".join(f"'{report.size_text(size)}' {size}" for size in sizes)
        script = HEAD.format(output=output, title=operation, tics=tics, least=sizes[0] / 1.5,
                             most=sizes[-1] * 1.5) + "\n".join(filter(None, panels))
        subprocess.run(["gnuplot"], input=script + "\nunset multiplot\n", text=True, check=True)
        drawn.append(output)
    return drawn
