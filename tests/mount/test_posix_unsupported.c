/* SPDX-License-Identifier: Apache-2.0 */
/*
 * System calls that we do not have, or that the kernel does without us: each row is a call on a
 * published file and its errno, 0 where it succeeds. Clients fall back by errno (cp from reflinks
 * to copying, tar from attributes to none), so these are part of the interface.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <termios.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "tests/support/files.h"
#include "tests/support/mount.h"

enum { BYTES = 100000 };

static struct mount mount;
static char file[MOUNT_PATH_MAX], other[MOUNT_PATH_MAX], directory[MOUNT_PATH_MAX];

static void open_mount(void) {
    mount_open(&mount, &(struct mount_settings){.threads = 4});
    snprintf(file, sizeof file, "%s", mount_path(&mount, "file"));
    snprintf(other, sizeof other, "%s", mount_path(&mount, "other"));
    snprintf(directory, sizeof directory, "%s", mount_path(&mount, "directory"));
    cr_assert_eq(file_put(file, BYTES, 1), 0);
    cr_assert_eq(mkdir(directory, 0700), 0);
}
static void close_mount(void) {
    mount_close(&mount);
}
TestSuite(posix_unsupported, .init = open_mount, .fini = close_mount, .timeout = 60);

static long result_of(long returned) {
    return returned < 0 ? -errno : 0;
}

/* names */

static long call_link(int fd) {
    (void)fd;
    return link(file, other);
}
static long call_link_of_descriptor(int fd) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return linkat(AT_FDCWD, path, AT_FDCWD, other, AT_SYMLINK_FOLLOW);
}
static long call_symlink(int fd) {
    (void)fd;
    return symlink(file, other);
}
static long call_readlink(int fd) {
    char room[16];
    (void)fd;
    return readlink(file, room, sizeof room);
}
static long call_mknod_fifo(int fd) {
    (void)fd;
    return mknod(other, S_IFIFO | 0600, 0);
}
static long call_mknod_character(int fd) {
    (void)fd;
    return mknod(other, S_IFCHR | 0600, makedev(1, 3));
}
static long call_mknod_block(int fd) {
    (void)fd;
    return mknod(other, S_IFBLK | 0600, makedev(7, 0));
}
static long call_mknod_socket(int fd) {
    (void)fd;
    return mknod(other, S_IFSOCK | 0600, 0);
}
static long call_mknod_file(int fd) {
    (void)fd;
    return mknod(other, S_IFREG | 0600, 0);
}
static long call_mknod_hash(int fd) {
    (void)fd;
    return mknod(mount_path(&mount, "00112233445566778899aabbccddeeff"), S_IFREG | 0600, 0);
}
static long call_bind(int fd) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    AUTO_CLOSE int socket_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)fd;
    snprintf(address.sun_path, sizeof address.sun_path, "%.90s/s", mount.rank);
    return bind(socket_fd, (struct sockaddr *)&address, sizeof address);
}
static long call_tmpfile(int fd) {
    (void)fd;
    return open(directory, O_TMPFILE | O_RDWR, 0600);
}
static long rename_with(unsigned flags) {
    cr_assert_eq(file_put(other, 10, 2), 0);
    return renameat2(AT_FDCWD, file, AT_FDCWD, other, flags);
}
static long call_exchange(int fd) {
    (void)fd;
    return rename_with(RENAME_EXCHANGE);
}
static long call_whiteout(int fd) {
    (void)fd;
    return rename_with(RENAME_WHITEOUT);
}
static long call_unknown_rename(int fd) {
    (void)fd;
    return rename_with(1 << 7);
}

/* attributes */

static long call_setxattr(int fd) {
    return fsetxattr(fd, "user.a", "v", 1, 0);
}
static long call_set_security_xattr(int fd) {
    return fsetxattr(fd, "security.a", "v", 1, 0);
}
static long call_getxattr(int fd) {
    char room[16];
    return fgetxattr(fd, "user.a", room, sizeof room);
}
static long call_get_acl(int fd) {
    char room[16];
    return fgetxattr(fd, "system.posix_acl_access", room, sizeof room);
}
static long call_listxattr(int fd) {
    char room[16];
    return flistxattr(fd, room, sizeof room);
}
static long call_removexattr(int fd) {
    return fremovexattr(fd, "user.a");
}
static long call_getflags(int fd) {
    int flags;
    return ioctl(fd, FS_IOC_GETFLAGS, &flags);
}
static long call_setflags(int fd) {
    int flags = FS_IMMUTABLE_FL;
    return ioctl(fd, FS_IOC_SETFLAGS, &flags);
}
static long call_fsgetxattr(int fd) {
    struct fsxattr attributes;
    return ioctl(fd, FS_IOC_FSGETXATTR, &attributes);
}
static long call_tcgets(int fd) {
    struct termios terminal;
    return ioctl(fd, TCGETS, &terminal);
}
static long call_fiemap(int fd) {
    struct fiemap map = {.fm_length = FIEMAP_MAX_OFFSET};
    return ioctl(fd, FS_IOC_FIEMAP, &map);
}
static long call_unknown_ioctl(int fd) {
    return ioctl(fd, _IO('c', 99), 0);
}

/* content */

static long fallocate_with(int mode) {
    AUTO_CLOSE int fd = open(file, O_RDWR | O_CLOEXEC);
    return fallocate(fd, mode, 4096, 4096);
}
static long call_punch_hole(int fd) {
    (void)fd;
    return fallocate_with(FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE);
}
static long call_collapse(int fd) {
    (void)fd;
    return fallocate_with(FALLOC_FL_COLLAPSE_RANGE);
}
static long call_zero_range(int fd) {
    (void)fd;
    return fallocate_with(FALLOC_FL_ZERO_RANGE);
}
static long call_insert(int fd) {
    (void)fd;
    return fallocate_with(FALLOC_FL_INSERT_RANGE);
}
static long call_fallocate_of_reader(int fd) {
    return fallocate(fd, 0, 0, 4096);
}
static long call_clone(int fd) {
    AUTO_CLOSE int to = open(other, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    return ioctl(to, FICLONE, fd);
}
static long call_deduplicate(int fd) {
    struct {
        struct file_dedupe_range range;
        struct file_dedupe_range_info info;
    } both = {.range = {.src_length = 4096, .dest_count = 1}};
    AUTO_CLOSE int to = open(file, O_RDWR | O_CLOEXEC);
    both.info.dest_fd = to;
    return ioctl(fd, FIDEDUPERANGE, &both);
}
static long call_read_of_directory(int fd) {
    char room[16];
    AUTO_CLOSE int dir = open(directory, O_RDONLY | O_CLOEXEC);
    (void)fd;
    return read(dir, room, sizeof room);
}
static long call_write_of_reader(int fd) {
    return write(fd, "x", 1);
}
static long call_read_of_writer(int fd) {
    char room[16];
    AUTO_CLOSE int writer = open(file, O_WRONLY | O_CLOEXEC);
    (void)fd;
    return read(writer, room, sizeof room);
}

/*
 * Locks are the kernel's own, by inode, and each open of a name that changes has an inode of its
 * own (P6, P7): they are granted and given back, but keep no two opens apart.
 */
static long call_locks(int fd) {
    struct flock range = {.l_type = F_RDLCK};
    cr_expect_eq(fcntl(fd, F_SETLK, &range), 0, "%s", strerror(errno));
    cr_expect_eq(flock(fd, LOCK_EX), 0, "%s", strerror(errno));
    range.l_type = F_UNLCK;
    return fcntl(fd, F_SETLK, &range) == 0 && flock(fd, LOCK_UN) == 0 ? 0 : -1;
}
static long call_open_file_description_lock(int fd) {
    struct flock range = {.l_type = F_RDLCK};
    return fcntl(fd, F_OFD_SETLK, &range);
}

/* what the kernel makes of our reads and writes */

static bool copy_is_right(int to) {
    return file_check_fd(to, BYTES, 1) == 0;
}
static long call_copy_file_range(int fd) {
    AUTO_CLOSE int to = open(other, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    for (ssize_t n = 1, done = 0; n > 0 && done < BYTES; done += n)
        if ((n = copy_file_range(fd, NULL, to, NULL, (size_t)(BYTES - done), 0)) < 0)
            return -1;
    cr_expect(copy_is_right(to));
    return 0;
}
static long call_sendfile(int fd) {
    AUTO_CLOSE int to = open(other, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    for (ssize_t n = 1, done = 0; n > 0 && done < BYTES; done += n)
        if ((n = sendfile(to, fd, NULL, (size_t)(BYTES - done))) < 0)
            return -1;
    cr_expect(copy_is_right(to));
    return 0;
}
static long call_splice(int fd) {
    int ends[2];
    AUTO_CLOSE int to = open(other, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    cr_assert_eq(pipe(ends), 0);
    for (ssize_t done = 0, n; done < BYTES; done += n) {
        n = splice(fd, NULL, ends[1], NULL, 65536, 0);
        if (n <= 0 || splice(ends[0], NULL, to, NULL, (size_t)n, 0) != n)
            return -1;
    }
    cr_expect(copy_is_right(to));
    return 0;
}
static long call_seek_data(int fd) {
    cr_expect_eq(lseek(fd, 5000, SEEK_DATA), 5000);
    cr_expect_eq(lseek(fd, 5000, SEEK_HOLE), BYTES);
    return lseek(fd, BYTES, SEEK_DATA);
}
static long call_advise(int fd) {
    int result = posix_fadvise(fd, 0, 0, POSIX_FADV_WILLNEED);
    errno = result;
    return result ? -1 : 0;
}
static long call_sync_file_range(int fd) {
    return sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
}
static long call_syncfs(int fd) {
    return syncfs(fd);
}
static long call_fionread(int fd) {
    int left = 0;
    cr_expect_eq(lseek(fd, 1000, SEEK_SET), 1000);
    long result = ioctl(fd, FIONREAD, &left);
    cr_expect_eq(left, BYTES - 1000);
    return result;
}

struct row {
    const char *name;
    long (*call)(int fd); /* fd: the published file, open for reading */
    int error;
};

/* clang-format off */
static struct row rows[] = {
    {"link", call_link, EPERM},
    {"linkat of a descriptor", call_link_of_descriptor, EPERM},
    {"symlink", call_symlink, EPERM},
    {"readlink of a file", call_readlink, EINVAL},
    {"mknod of a fifo", call_mknod_fifo, EPERM},
    {"mknod of a character device", call_mknod_character, EPERM},
    {"mknod of a block device", call_mknod_block, EPERM},
    {"mknod of a socket", call_mknod_socket, EPERM},
    {"mknod of a file", call_mknod_file, 0},
    {"mknod of a hash name, which cannot be empty", call_mknod_hash, EPERM},
    {"bind of a unix socket", call_bind, EPERM},
    {"O_TMPFILE", call_tmpfile, EOPNOTSUPP},
    {"RENAME_EXCHANGE", call_exchange, EINVAL},
    {"RENAME_WHITEOUT", call_whiteout, EINVAL},
    {"an unknown rename flag", call_unknown_rename, EINVAL},
    {"setxattr", call_setxattr, EOPNOTSUPP},
    {"setxattr of security", call_set_security_xattr, EOPNOTSUPP},
    {"getxattr", call_getxattr, EOPNOTSUPP},
    {"getxattr of an ACL", call_get_acl, ENODATA},
    {"listxattr", call_listxattr, EOPNOTSUPP},
    {"removexattr", call_removexattr, EOPNOTSUPP},
    {"FS_IOC_GETFLAGS", call_getflags, ENOTTY},
    {"FS_IOC_SETFLAGS", call_setflags, ENOTTY},
    {"FS_IOC_FSGETXATTR", call_fsgetxattr, ENOTTY},
    {"TCGETS", call_tcgets, ENOTTY},
    {"FS_IOC_FIEMAP", call_fiemap, EOPNOTSUPP},
    {"an unknown ioctl", call_unknown_ioctl, ENOTTY},
    {"FALLOC_FL_PUNCH_HOLE", call_punch_hole, EOPNOTSUPP},
    {"FALLOC_FL_COLLAPSE_RANGE", call_collapse, EOPNOTSUPP},
    {"FALLOC_FL_ZERO_RANGE", call_zero_range, EOPNOTSUPP},
    {"FALLOC_FL_INSERT_RANGE", call_insert, EOPNOTSUPP},
    {"fallocate of a reader", call_fallocate_of_reader, EBADF},
    {"FICLONE", call_clone, EOPNOTSUPP},
    {"FIDEDUPERANGE", call_deduplicate, EOPNOTSUPP},
    {"read of a directory", call_read_of_directory, EISDIR},
    {"write of a reader", call_write_of_reader, EBADF},
    {"read of a writer", call_read_of_writer, EBADF},
    {"flock and fcntl locks", call_locks, 0},
    {"open file description locks", call_open_file_description_lock, 0},
    {"copy_file_range", call_copy_file_range, 0},
    {"sendfile", call_sendfile, 0},
    {"splice", call_splice, 0},
    {"SEEK_DATA at the end", call_seek_data, ENXIO},
    {"posix_fadvise", call_advise, 0},
    {"sync_file_range", call_sync_file_range, 0},
    {"syncfs", call_syncfs, 0},
    {"FIONREAD", call_fionread, 0},
};
/* clang-format on */

Test(posix_unsupported, each_call_has_its_errno) {
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        AUTO_CLOSE int fd = open(file, O_RDONLY | O_CLOEXEC);
        cr_assert_geq(fd, 0, "before %s: %s", rows[i].name, strerror(errno));
        long result = result_of(rows[i].call(fd));
        cr_expect_eq(result, -rows[i].error, "%s: %s", rows[i].name, strerror((int)-result));
        unlink(other);
    }
    cr_expect_eq(file_check(file, BYTES, 1), 0, "no refused call changed the file");
    cr_expect_eq(directory_count(mount.rank), 2, "no refused call made a name");
}

Test(posix_unsupported, a_new_name_after_a_refused_one_is_a_file) {
    (void)!symlink(file, other);
    (void)!mkfifo(other, 0600);
    cr_expect_eq(file_size(other), -ENOENT);
    cr_assert_eq(file_put(other, 1000, 3), 0);
    cr_expect_eq(file_check(other, 1000, 3), 0);
}
