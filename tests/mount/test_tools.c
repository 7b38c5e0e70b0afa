/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everyday tools in both directions, over a tree with the names that clients of KV caches use:
 * equal names and bytes afterwards.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "core/cleanup.h"
#include "tests/support/files.h"
#include "tests/support/mount.h"
#include "tests/support/process.h"

#define SHA "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"

/* Model names and hashes are examples; the shapes are those of the clients. */
static const char *const names[] = {
    SHA "_llama-8b_0_1.bin",
    SHA ".indexer_deepseek_3_8.bin",
    SHA "_llama-8b_0_1.bin.tmp.4711.140011.0123456789abcdef0123456789abcdef",
    "namespace-0123456789abcdef01234567/" SHA,
    "3f/" SHA "_llama-8b_0_2_k",
    "3f/" SHA "_llama-8b_0_2_v",
    "llama@1@0@-7d1f3c2a9b5e8d60@bfloat16.pt",
    "llama@0x1f2e3d4c@" SHA ".data",
    "a7/5c/llama%401%400%40abc.kvcache.safetensors",
    "llama_0123456789ab/config.json",
    "llama_0123456789ab_r0/abc/de_g0/0123456789abcdef.bin",
    "0123456789abcdef0123456789abcdef/layer.0.safetensors",
    SHA,
    "12345.pt",
};
enum { NAMES = sizeof names / sizeof names[0] };

static struct mount mount;

static void open_mount(void) {
    /* With the modes as they are, or rsync would want to change them for ever. */
    mount_open(&mount, &(struct mount_settings){.threads = 4, .options = "umask=0"});
    cr_assert_eq(mkdir(mount_path(&mount, "../../tree"), 0700), 0);
    for (unsigned i = 0; i < NAMES; i++) {
        const char *path = mount_path(&mount, "../../tree/%s", names[i]);
        static const size_t sizes[] = {70272, 300000, 4096, 278, 2 << 20, 65536, 1000001};
        cr_assert_eq(run_shell(20, NULL, "mkdir -p \"$(dirname '%s')\"", path), 0);
        cr_assert_eq(file_put(path, sizes[i % 7], i), 0, "%s", path);
    }
    run_shell(20, NULL,
              "cd '%s/tree' && mkdir -p a/b/c/d && echo deep > a/b/c/d/file && "
              "mkdir -m 700 empty && find . -exec touch -d 2020-02-02 {} +",
              mount.base);
}
static void close_mount(void) {
    mount_close(&mount);
}
TestSuite(tools, .init = open_mount, .fini = close_mount, .timeout = 60);

/* In the test's directory: `tree` is on the host, `mnt/rank0` the mount. */
#define SHELL(...)                                                                                 \
    do {                                                                                           \
        char command_[4096];                                                                       \
        snprintf(command_, sizeof command_, __VA_ARGS__);                                          \
        cr_expect_eq(                                                                              \
            run_shell(40, NULL, "set -e; cd '%s'; r=mnt/rank0; %s", mount.base, command_), 0,      \
            "%s", command_);                                                                       \
    } while (0)

Test(tools, cp_copies_a_tree_in_and_out) {
    SHELL("cp -a tree $r/copy; diff -r tree $r/copy; cp -a $r/copy back; diff -r tree back");
    SHELL("test \"$(cd tree && find . -type f -printf '%%p %%T@\\n' | sort)\" = "
          "\"$(cd back && find . -type f -printf '%%p %%T@\\n' | sort)\"");
}

Test(tools, rsync_copies_a_tree_and_then_finds_nothing_to_do) {
    SHELL("rsync -a tree/ $r/copy/; diff -r tree $r/copy");
    SHELL("test -z \"$(rsync -ai --omit-dir-times tree/ $r/copy/)\"");
    SHELL("rsync -ac $r/copy/ back/; diff -r tree back");
    SHELL("echo more >> tree/12345.pt; rsync -a --inplace tree/ $r/copy/; diff -r tree $r/copy");
}

Test(tools, tar_packs_and_unpacks) {
    SHELL("mkdir $r/copy; tar -C tree -cf - . | tar -C $r/copy -xpf -; diff -r tree $r/copy");
    SHELL("tar -C $r/copy -cf packed.tar .; mkdir back; tar -C back -xpf packed.tar; diff -r tree "
          "back");
}

Test(tools, mv_moves_in_within_and_out) {
    SHELL("cp -a tree spare; mv spare $r/moved; diff -r tree $r/moved");
    SHELL("mv $r/moved $r/again; diff -r tree $r/again; ! test -e $r/moved");
    SHELL("mv $r/again back; diff -r tree back; test -z \"$(ls -A $r)\"");
}

Test(tools, rm_removes_everything) {
    SHELL("cp -r tree/. $r; rm -rf $r/*; test -z \"$(ls -A $r)\"");
    cr_expect_eq(directory_count(mount.rank), 0);
}

Test(tools, find_and_du_see_what_is_there) {
    SHELL("cp -r tree/. $r; test \"$(cd tree && find . -type f -printf '%%p %%s\\n' | sort)\" = "
          "\"$(cd $r && find . -type f -printf '%%p %%s\\n' | sort)\"");
    SHELL("test $(find $r -name '*.bin' -size +100k | wc -l) -ge 1; find $r -delete -mindepth 1; "
          "test -z \"$(ls -A $r)\"");
}

Test(tools, dd_md5sum_and_cmp_agree) {
    SHELL("dd if=tree/12345.pt of=$r/dd bs=4096 oflag=direct status=none; cmp tree/12345.pt $r/dd");
    SHELL("dd if=$r/dd bs=1M iflag=direct status=none | cmp - tree/12345.pt");
    SHELL("test \"$(md5sum < $r/dd)\" = \"$(md5sum < tree/12345.pt)\"");
    SHELL("ln $r/dd $r/link && exit 1 || true; install -m 600 tree/12345.pt $r/installed; "
          "cmp tree/12345.pt $r/installed; sed -i '1s/^/x/' $r/installed");
}

Test(tools, python_copies_a_tree_in_and_out) {
    SHELL("python3 -c 'import shutil\n"
          "shutil.copytree(\"tree\", \"mnt/rank0/copy\")\n"
          "shutil.copytree(\"mnt/rank0/copy\", \"back\")\n"
          "shutil.move(\"mnt/rank0/copy\", \"mnt/rank0/moved\")\n"
          "'; diff -r tree back; diff -r tree $r/moved");
    SHELL(
        "python3 -c 'import shutil\nshutil.rmtree(\"mnt/rank0/moved\")'; test -z \"$(ls -A $r)\"");
}
