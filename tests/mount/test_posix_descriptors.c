/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors that are shared: by dup, by fork and exec, and sent to another process. One handle is
 * behind them all: one offset, one content; it is published by who wrote when that one closes (P2).
 */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "core/cleanup.h"
#include "tests/support/files.h"
#include "tests/support/mount.h"
#include "tests/support/process.h"

static struct mount mount;

static void open_mount(void) {
    mount_open(&mount, &(struct mount_settings){.threads = 4});
}
static void close_mount(void) {
    mount_close(&mount);
}
TestSuite(posix_descriptors, .init = open_mount, .fini = close_mount, .timeout = 60);

static int create(const char *path, int flags) {
    int fd = open(path, O_CREAT | O_CLOEXEC | flags, 0600);
    cr_assert_geq(fd, 0, "%s: %s", path, strerror(errno));
    return fd;
}

static void expect_text(const char *path, const char *text) {
    AUTO_FREE char *now = file_read(path, NULL);
    cr_expect(now && !strcmp(now, text), "'%s', not '%s'", now ? now : strerror(errno), text);
}

/* dup */

Test(posix_descriptors, copies_share_the_offset_and_the_flags) {
    const char *path = mount_path(&mount, "file");
    int fd = create(path, O_RDWR);
    int copies[] = {dup(fd), fcntl(fd, F_DUPFD, 100), fcntl(fd, F_DUPFD_CLOEXEC, 200),
                    dup2(fd, 300), dup3(fd, 301, O_CLOEXEC)};
    cr_expect(copies[1] >= 100 && copies[2] >= 200 && copies[3] == 300 && copies[4] == 301);
    cr_expect_eq(write(fd, "ab", 2), 2);
    for (int i = 0; i < 5; i++) {
        cr_expect_eq(lseek(copies[i], 0, SEEK_CUR), 2 + i);
        cr_expect_eq(write(copies[i], "x", 1), 1);
    }
    cr_expect_eq(fcntl(copies[0], F_SETFL, O_APPEND), 0);
    cr_expect(fcntl(fd, F_GETFL) & O_APPEND);
    cr_expect_eq(lseek(copies[1], 0, SEEK_SET), 0);
    cr_expect_eq(write(copies[1], "end", 3), 3);
    for (int i = 0; i < 5; i++)
        cr_expect_eq(close(copies[i]), 0);
    cr_expect_eq(close(fd), 0);
    expect_text(path, "abxxxxxend");
}

Test(posix_descriptors, dup2_over_a_written_file_closes_and_publishes_it) {
    const char *first = mount_path(&mount, "first"), *second = mount_path(&mount, "second");
    int one = create(first, O_WRONLY), two = create(second, O_WRONLY);
    cr_expect_eq(write(one, "one", 3), 3);
    cr_expect_eq(dup2(two, one), one);
    expect_text(first, "one");
    cr_expect_eq(write(one, "two", 3), 3);
    close(one);
    expect_text(second, "two");
    close(two);
    expect_text(second, "two");
}

Test(posix_descriptors, a_stream_of_the_C_library_writes_and_reads_it) {
    const char *path = mount_path(&mount, "file");
    AUTO_FCLOSE FILE *out = fopen(path, "w+e");
    for (int i = 0; i < 5000; i++)
        cr_expect_gt(fprintf(out, "%d\n", i), 0);
    rewind(out);
    int number;
    cr_expect(fscanf(out, "%d", &number) == 1 && number == 0);
    fseek(out, 0, SEEK_END);
    fputs("end\n", out);
    cr_expect_eq(fclose(out), 0);
    out = NULL;
    cr_expect_eq(run_shell(20, NULL, "test \"$(tail -2 '%s' | tr '\\n' ' ')\" = '4999 end '", path),
                 0);
    cr_expect_eq(file_size(path), 10 + 90 * 2 + 900 * 3 + 4000 * 4 + 5000 + 4);
}

/* fork and exec */

static int append_to(void *fd) {
    return write(*(int *)fd, "child ", 6) == 6 ? 0 : complain("write");
}

Test(posix_descriptors, a_child_writes_at_the_shared_offset_and_its_exit_publishes) {
    const char *path = mount_path(&mount, "file");
    int fd = create(path, O_WRONLY);
    cr_expect_eq(write(fd, "parent ", 7), 7);
    cr_expect(child_succeeds(append_to, &fd, 20));
    expect_text(path, "parent child ");
    cr_expect_eq(write(fd, "parent", 6), 6);
    close(fd);
    expect_text(path, "parent child parent");
}

Test(posix_descriptors, a_program_writes_to_an_inherited_one) {
    const char *path = mount_path(&mount, "file");
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    cr_expect_eq(run_shell(20, NULL, "seq 100000 | cat >&%d; echo done >&%d", fd, fd), 0);
    cr_expect_eq(close(fd), 0);
    cr_expect_eq(run_shell(20, NULL, "cmp '%s' <(seq 100000; echo done)", path), 0);
}

Test(posix_descriptors, a_spawned_program_gets_the_file_as_its_output) {
    const char *path = mount_path(&mount, "file");
    char *const arguments[] = {"seq", "20000", NULL}, *const environment[] = {NULL};
    posix_spawn_file_actions_t actions;
    pid_t pid;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, path, O_CREAT | O_WRONLY | O_TRUNC, 0600);
    cr_assert_eq(posix_spawn(&pid, "/usr/bin/seq", &actions, NULL, arguments, environment), 0);
    posix_spawn_file_actions_destroy(&actions);
    cr_expect_eq(child_wait(pid, 20), 0);
    cr_expect_eq(run_shell(20, NULL, "cmp '%s' <(seq 20000)", path), 0);
}

Test(posix_descriptors, a_program_reads_an_inherited_one_from_where_it_stands) {
    const char *path = mount_path(&mount, "file");
    cr_assert_eq(file_put_text(path, "one two three"), 0);
    int fd = open(path, O_RDONLY);
    char room[8];
    cr_expect_eq(read(fd, room, 4), 4);
    AUTO_FREE char *output = NULL;
    /* Opened again through /proc, a file without a name is what it was, or ESTALE. */
    int status =
        run_shell(20, &output, "head -c 3 <&%d; unlink '%s'; cat /proc/self/fd/%d", fd, path, fd);
    cr_expect(status == 0 || status == 256, "wait status 0x%x", (unsigned)status);
    cr_expect_eq(strncmp(output, status == 0 ? "twoone two three" : "two", status == 0 ? 16 : 3), 0,
                 "%s", output);
    cr_expect_eq(pread(fd, room, 3, 0), 3);
    cr_expect_eq(strncmp(room, "one", 3), 0);
    close(fd);
}

/* sent to another process */

static void send_descriptor(int socket_fd, int fd) {
    char byte = 0, control[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec piece = {&byte, 1};
    struct msghdr message = {.msg_iov = &piece,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    cr_assert_eq(sendmsg(socket_fd, &message, 0), 1, "%s", strerror(errno));
}

static int receive_descriptor(int socket_fd) {
    char byte, control[CMSG_SPACE(sizeof(int))];
    struct iovec piece = {&byte, 1};
    struct msghdr message = {.msg_iov = &piece,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    int fd = -1;
    if (recvmsg(socket_fd, &message, 0) == 1 && CMSG_FIRSTHDR(&message))
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

static int write_to_received(void *socket_fd) {
    int fd = receive_descriptor(*(int *)socket_fd);
    if (fd < 0 || write(fd, "receiver", 8) != 8)
        return complain("writing to what was received");
    return close(fd) == 0 ? 0 : complain("closing what was received");
}

Test(posix_descriptors, one_that_is_sent_to_another_process_is_written_and_published_there) {
    const char *path = mount_path(&mount, "file");
    int ends[2];
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    pid_t receiver = child_start(write_to_received, &ends[1]);
    int fd = create(path, O_WRONLY);
    cr_expect_eq(write(fd, "sender ", 7), 7);
    send_descriptor(ends[0], fd);
    cr_expect_eq(child_wait(receiver, 20), 0);
    expect_text(path, "sender receiver");
    close(fd);
    expect_text(path, "sender receiver");
}

Test(posix_descriptors, one_that_only_travels_in_a_message_stays_open) {
    const char *path = mount_path(&mount, "file");
    int ends[2];
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    int fd = create(path, O_WRONLY);
    send_descriptor(ends[0], fd);
    cr_expect_eq(write(fd, "one ", 4), 4);
    close(fd);
    expect_text(path, "one ");
    fd = receive_descriptor(ends[1]);
    cr_assert_geq(fd, 0);
    cr_expect_eq(write(fd, "two", 3), 3);
    close(fd);
    expect_text(path, "one two");
}

Test(posix_descriptors, a_reader_can_be_opened_again_through_proc) {
    const char *path = mount_path(&mount, "file");
    cr_assert_eq(file_put(path, 50000, 1), 0);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    char again[64];
    snprintf(again, sizeof again, "/proc/self/fd/%d", fd);
    cr_expect_eq(file_check(again, 50000, 1), 0);
    cr_expect_eq(file_put(path, 60000, 2), 0);
    cr_expect_eq(file_check_fd(fd, 50000, 1), 0);
    close(fd);
}
