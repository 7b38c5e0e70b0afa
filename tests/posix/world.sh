# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# Sourced by the drivers of this directory: a mount of the daemon in a temp directory, a plain
# directory of the file system below it to compare with, and the end of both whatever happens.
#
#   world_open OPTIONS   $world_rank (in the mount) and $world_plain are empty directories
#   world_remount        the same store, cold_start=load
#   world_stat NAME      a number of .cpl3/stats
#   world_is_in_order    nothing open, nothing staged, nothing wrong: else says what and fails
#
# CPL3_DAEMON is the program (build/cpl3fs), TMPDIR where all is made.

daemon=${CPL3_DAEMON:-build/cpl3fs}
world_base= world_pid=

world_mount() {
    "$daemon" "$world_base/store" "$world_base/mnt" -f -o "$1" >>"$world_base/log" 2>&1 &
    world_pid=$!
    for _ in $(seq 500); do
        mountpoint -q "$world_base/mnt" && return 0
        kill -0 "$world_pid" 2>/dev/null || break
        sleep 0.02
    done
    echo "$daemon -o $1: not mounted:" >&2
    cat "$world_base/log" >&2
    exit 1
}

# The kernel says EBUSY until the last close has been answered.
world_unmount() {
    for _ in $(seq 500); do
        umount "$world_base/mnt" 2>/dev/null && break
        mountpoint -q "$world_base/mnt" || break
        sleep 0.02
    done
    wait "$world_pid"
    local status=$?
    world_pid=
    if [[ $status -ne 0 ]]; then
        echo "the daemon ended with $status:" >&2
        cat "$world_base/log" >&2
        return 1
    fi
}

world_close() {
    if [[ -n $world_pid ]]; then
        umount -f -l "$world_base/mnt" 2>/dev/null
        kill -KILL "$world_pid" 2>/dev/null
        wait "$world_pid" 2>/dev/null
    fi
    [[ -z $world_base ]] || rm -rf "$world_base"
}

world_open() {
    if [[ $(id -u) -ne 0 ]]; then
        echo "$0: mounting for all users needs root" >&2
        exit 1
    fi
    world_options=$1
    world_base=$(mktemp -d "${TMPDIR:-/tmp}/cpl3-posix-XXXXXX")
    trap world_close EXIT
    chmod 755 "$world_base"
    world_plain=$world_base/plain
    world_rank=$world_base/mnt/rank0
    mkdir "$world_base/store" "$world_base/mnt" "$world_plain"
    world_mount "$1"
}

world_remount() {
    world_unmount || exit 1
    world_mount "$world_options,cold_start=load"
}

world_stat() {
    awk -v name="$1" '$1 == name { print $2 }' "$world_base/mnt/.cpl3/stats"
}

world_is_in_order() {
    local name value wrong=0
    for _ in $(seq 500); do
        [[ $(world_stat rank0.open_handles) -eq 0 && $(world_stat memory.staging_bytes) -eq 0 ]] && break
        sleep 0.02
    done
    for name in rank0.open_handles memory.staging_bytes rank0.corrupt rank0.read_errors \
        rank0.write_errors rank0.withdrawn; do
        value=$(world_stat "$name")
        if [[ $value != 0 ]]; then
            echo "$name is ${value:-unknown}, not 0" >&2
            wrong=1
        fi
    done
    return $wrong
}
