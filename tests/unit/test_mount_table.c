/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of mountinfo, and that only the mount that is meant is ever detached. */
#include "fs/mount_table.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

static char line[512];

static bool parse(const char *text, const char **ret_path, struct mount_entry *ret_entry) {
    strcpy(line, text);
    return mount_table_parse_line(line, ret_path, ret_entry);
}

Test(mount_table, a_line_gives_path_device_type_and_source) {
    const char *path;
    struct mount_entry entry;
    cr_assert(parse("36 35 0:52 / /mnt/kv rw,nosuid shared:1 master:2 - fuse.cpl3 /nvme/kv rw\n",
                    &path, &entry));
    cr_assert_str_eq(path, "/mnt/kv");
    cr_assert(entry.major == 0 && entry.minor == 52);
    cr_assert_str_eq(entry.type, "fuse.cpl3");
    cr_assert_str_eq(entry.source, "/nvme/kv");
}

Test(mount_table, blanks_and_backslashes_in_paths_are_unescaped) {
    const char *path;
    struct mount_entry entry;
    cr_assert(
        parse("36 35 0:52 / /mnt/a\\040b\\134c rw - fuse.cpl3 /my\\040store rw\n", &path, &entry));
    cr_assert_str_eq(path, "/mnt/a b\\c");
    cr_assert_str_eq(entry.source, "/my store");
}

Test(mount_table, broken_lines_are_passed_over) {
    const char *path = "untouched";
    struct mount_entry entry = {.major = 99};
    cr_assert(!parse("36 35 0:52 / /mnt/kv rw fuse.cpl3 /nvme/kv rw\n", &path, &entry));
    cr_assert(!parse("36 35 zz / /mnt/kv rw - fuse.cpl3 /nvme/kv rw\n", &path, &entry));
    cr_assert(!parse("36 35 0:52 / /mnt/kv rw - fuse.cpl3\n", &path, &entry));
    cr_assert(!parse("36 35 - fuse.cpl3\n", &path, &entry));
    cr_assert(!parse("\n", &path, &entry));
    cr_assert(entry.major == 99);
    cr_assert_str_eq(path, "untouched");
}

Test(mount_table, the_root_is_found_and_an_ordinary_directory_is_not) {
    struct mount_entry entry;
    cr_assert(mount_table_find("/", &entry) == 0);
    cr_assert(entry.type[0] != '\0');
    cr_assert(mount_table_find("/no/such/mount", &entry) == -ENOENT);
}

/* A mount to lose: a tmpfs in a mount namespace of this test's own, so that nothing of the
 * machine's can be detached, whatever the code does. */
static char place[64];

static void make_own_mount(void) {
    strcpy(place, "/tmp/mount-table-XXXXXX");
    cr_assert(mkdtemp(place));
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        cr_skip_test("no mount namespace of our own: %s", strerror(errno));
    cr_assert(mount("mine", place, "tmpfs", 0, "size=64k") == 0);
}

static void remove_place(void) {
    umount2(place, MNT_DETACH);
    rmdir(place);
}

Test(mount_table, only_the_mount_that_is_meant_is_detached, .init = make_own_mount,
     .fini = remove_place) {
    struct mount_entry entry, found;
    cr_assert(mount_table_find(place, &entry) == 0);
    cr_assert_str_eq(entry.source, "mine");
    struct stat status;
    cr_assert(stat(place, &status) == 0);
    cr_assert(mount_table_find_device(status.st_dev, &found) == 0);
    cr_assert_str_eq(found.source, "mine");
    struct mount_entry another = entry;
    another.minor += 1000000;
    cr_assert(mount_table_detach(place, &another) == -ENOENT);
    cr_assert(mount_table_find(place, &found) == 0 && found.minor == entry.minor);
    cr_assert(mount_table_detach(place, &entry) == 0);
    cr_assert(mount_table_find(place, &found) == -ENOENT);
    cr_assert(mount_table_detach(place, &entry) == -ENOENT);
}
