#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# `make demo`: a small store from its first page to its restart and its damage, told in plain words.
# Everything is below build/demo. It can be run again at any time; it leaves the mount up.
set -euo pipefail
cd "$(dirname "$0")/.."

store=build/demo/store
mnt=build/demo/mnt
trace=tests/data/conversation-300.jsonl

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
[[ -t 1 ]] || say() { printf '\n%s\n' "$*"; }
run() {
    printf '$ %s\n' "$*"
    eval "$*"
}
give_up() {
    echo "demo: $*" >&2
    exit 1
}
counter() { awk -v key="$1" '$1 == key { print $2 }' $mnt/.cpl3/stats; }

unmount() {
    if [[ $(id -u) -eq 0 ]]; then run umount $mnt; else run fusermount3 -u $mnt; fi
    # The daemon commits after the mount is detached; until then it holds the lock of each rank.
    local rank
    for rank in $store/rank*; do
        flock --wait 20 "$rank" true || give_up 'the daemon did not end within 20 s'
    done
}
mount_with() {
    run ./mount.cpl3 $store $mnt -o "rank=0-1,size=512M,cold_start=$1"
}

# Every file with its access time in ns, oldest first: what LRU goes by.
list_with_atimes() { find $mnt/rank0 $mnt/rank1 -type f -printf '%A@ %P\n' | sort; }

start_clean() {
    if grep -qF " $PWD/$mnt " /proc/mounts; then
        say 'An earlier demo is still mounted: unmounting it.'
        unmount
    fi
    rm -rf build/demo
    mkdir -p $store $mnt
}

store_and_read() {
    say '1. A store of two ranks, 512 MiB each, is mounted.'
    mount_with clear

    say '2. A page is a file named by its hash. From the shell:'
    run "head -c 1M /dev/urandom >build/demo/page"
    first=$(sha256sum build/demo/page | cut -c1-32)
    run "cp build/demo/page $mnt/rank0/$first"
    run "cmp build/demo/page $mnt/rank0/$first && echo the same bytes"

    say '   And from Python. What is not there is FileNotFoundError, nothing else:'
    python3 - $mnt/rank1 <<'PYTHON'
import hashlib, os, sys
page = os.urandom(300_000)
path = os.path.join(sys.argv[1], hashlib.sha256(page).hexdigest()[:32])
with open(path, "wb") as file:
    file.write(page)
with open(path, "rb") as file:
    print("stored and read back:", file.read() == page)
try:
    open(os.path.join(sys.argv[1], "00" * 16), "rb")
except FileNotFoundError as miss:
    print("a miss:", miss)
PYTHON

    say '3. It is a directory like any other, and tells what it did. (Who stores a page looks for'
    echo '   its name first: that is a miss, too.)'
    run "ls -l $mnt/rank0"
    run "stat -c '%n: %s bytes, written %y' $mnt/rank0/$first"
    run "df -h $mnt/rank0"
    run "grep -E '^rank[01]\.(publishes|hits|misses|evictions|corrupt) ' $mnt/.cpl3/stats"
}

replay_past_capacity() {
    say '4. A server works on it: 300 requests of a chat service, blocks of 256 KiB, about 2 GiB into'
    echo '   1 GiB. Garbage collection begins above 90 % of a rank and keeps it below its 512 MiB.'
    run "build/cpl3 replay --block-bytes 256K --threads 2 $trace $mnt/rank0 $mnt/rank1"
    run "df -h $mnt/rank0"
    run "du -sh $store/rank0 $store/rank1"
    echo "   The page of step 2 was the coldest of rank 0 and is gone:"
    run "ls $mnt/rank0/$first || true"
}

restart_with_load() {
    say '5. The page is stored again, then the store is restarted with cold_start=load.'
    run "cp build/demo/page $mnt/rank0/$first"
    list_with_atimes >build/demo/before
    unmount
    mount_with load
    list_with_atimes >build/demo/after
    cmp build/demo/before build/demo/after || give_up 'the listings before and after differ'
    echo "   All $(wc -l <build/demo/after) pages are back, with the same access times in the same order."
    run "cmp build/demo/page $mnt/rank0/$first && echo and the same bytes"
    echo '   The pages that replay wrote say by their names what they must hold (step 2 is no such page):'
    run "build/cpl3 verify $mnt/rank0 $mnt/rank1"
}

damage_a_page() {
    say '6. One bit of the page of step 2 is flipped on disk, behind the back of the store.'
    unmount
    python3 - build/demo/page $store/rank0 <<'PYTHON'
import glob, mmap, sys
page = open(sys.argv[1], "rb").read()
for slab in glob.glob(sys.argv[2] + "/*.slab"):
    with open(slab, "r+b") as file, mmap.mmap(file.fileno(), 0) as bytes_:
        at = -1
        while (at := bytes_.find(page[:4096], at + 1)) >= 0:
            bytes_[at + 500_000] ^= 1
            print(f"flipped a bit at byte {at + 500_000} of {slab}")
PYTHON
    mount_with load
    run "stat -c '%n is still known, %s bytes' $mnt/rank0/$first"
    python3 - "$mnt/rank0/$first" <<'PYTHON'
import sys
try:
    open(sys.argv[1], "rb").read()
    sys.exit("demo: a damaged page was served")
except FileNotFoundError as miss:
    print("a miss, never wrong bytes:", miss)
PYTHON
    run "ls $mnt/rank0/$first || true"
    run "grep '^rank0\.corrupt ' $mnt/.cpl3/stats"
    [[ $(counter rank0.corrupt) -eq 1 ]] || give_up 'the damage was not counted'
}

restart_with_clear() {
    say '7. With cold_start=clear (the default) a restart begins empty.'
    unmount
    mount_with clear
    run "find $mnt/rank0 $mnt/rank1 -type f | wc -l"
    [[ -z $(find $mnt/rank0 $mnt/rank1 -type f) ]] || give_up 'the store is not empty after clear'
}

start_clean
store_and_read
replay_past_capacity
restart_with_load
damage_a_page
restart_with_clear

say 'The mount is up, for you to go on:'
cat <<TEXT
  cp some-file $mnt/rank0/\$(sha256sum some-file | cut -c1-32)
  cat $mnt/.cpl3/stats
  build/cpl3 replay --block-bytes 256K --threads 4 $trace $mnt/rank0 $mnt/rank1
To end it:
  $([[ $(id -u) -eq 0 ]] && echo umount || echo fusermount3 -u) $PWD/$mnt
TEXT
