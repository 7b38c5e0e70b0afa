/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences of dup, fork, threads and descriptors that travel: who writes, and whose close counts.
 */
#include "tests/mount/flush_sequences.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

/* helpers */

void sequence_require(bool condition, const char *what) {
    if (condition)
        return;
    perror(what);
    _exit(SEQUENCE_BROKEN);
}

int sequence_create(const char *path, int flags) {
    int fd = open(path, O_CREAT | O_TRUNC | flags, 0644);
    sequence_require(fd >= 0, "open");
    return fd;
}

const char *sequence_bytes(void) {
    static char bytes[16 * BLOCK] __attribute__((aligned(BLOCK)));
    memset(bytes, 'x', sizeof bytes);
    return bytes;
}

void sequence_write(int fd, int blocks) {
    ssize_t n = write(fd, sequence_bytes(), (size_t)blocks * BLOCK);
    sequence_require(n == blocks * BLOCK || (n < 0 && errno == EIO), "write");
}

void *sequence_pause(void *unused) {
    (void)unused;
    for (;;)
        pause();
}

void sequence_wait(int pid) {
    sequence_require(waitpid(pid, NULL, 0) == pid, "waitpid");
}

/* dup */

static void plain(const char *path) {
    int fd = sequence_create(path, O_WRONLY);
    sequence_write(fd, 2);
    close(fd);
}

static void numpy_dup(const char *path) {
    int fd = sequence_create(path, O_WRONLY);
    int copy = dup(fd);
    sequence_write(copy, 2);
    close(copy);
    lseek(fd, 0, SEEK_END);
    close(fd);
}

static void numpy_dup_twice(const char *path) {
    int fd = sequence_create(path, O_WRONLY);
    int copy = dup(fd);
    sequence_write(copy, 1);
    close(copy);
    sequence_write(fd, 1);
    close(fd);
}

/* fork */

static void child_exits_between_writes(const char *path) {
    int fd = sequence_create(path, O_WRONLY);
    sequence_write(fd, 1);
    int child = fork();
    if (child == 0)
        _exit(0);
    sequence_wait(child);
    sequence_write(fd, 1);
    close(fd);
}

static void child_is_killed_between_writes(const char *path) {
    int fd = sequence_create(path, O_WRONLY);
    sequence_write(fd, 1);
    int child = fork();
    if (child == 0)
        sequence_pause(NULL);
    kill(child, SIGKILL);
    sequence_wait(child);
    sequence_write(fd, 1);
    close(fd);
}

static void child_writes_parent_closes(const char *path) {
    int fd = sequence_create(path, O_WRONLY);
    int child = fork();
    if (child == 0) {
        sequence_write(fd, 2);
        _exit(0);
    }
    sequence_wait(child);
    close(fd);
}

static void child_writes_after_parent_closed(const char *path) {
    int fd = sequence_create(path, O_WRONLY);
    int closed[2];
    sequence_require(pipe(closed) == 0, "pipe");
    int child = fork();
    if (child == 0) {
        char byte;
        sequence_require(read(closed[0], &byte, 1) == 1, "read");
        sequence_write(fd, 2);
        _exit(0);
    }
    close(fd);
    sequence_require(write(closed[1], "c", 1) == 1, "write");
    sequence_wait(child);
}

static void both_write(const char *path) {
    int fd = sequence_create(path, O_WRONLY);
    sequence_write(fd, 1);
    int child = fork();
    if (child == 0) {
        sequence_write(fd, 1);
        _exit(0);
    }
    sequence_wait(child);
    sequence_write(fd, 1);
    close(fd);
}

/* The set of writers is kept by an address that the kernel gives to the next process as well. */
static void owner_address_is_reused(const char *path) {
    int fd = sequence_create(path, O_WRONLY);
    int child = fork();
    if (child == 0) {
        sequence_write(fd, 1);
        _exit(0);
    }
    sequence_wait(child);
    sequence_write(fd, 1);
    for (int i = 0; i < 200; i++) {
        child = fork();
        if (child == 0)
            _exit(0);
        sequence_wait(child);
    }
    sequence_write(fd, 1);
    close(fd);
}

/* threads */

static void *write_one_block(void *fd) {
    sequence_write(*(int *)fd, 1);
    return NULL;
}

static void *close_it(void *fd) {
    close(*(int *)fd);
    return NULL;
}

static void *write_with_own_table(void *fd) {
    sequence_require(unshare(CLONE_FILES) == 0, "unshare");
    sequence_write(*(int *)fd, 1);
    close(*(int *)fd);
    return NULL;
}

static void run_thread(void *(*function)(void *), int *fd) {
    pthread_t thread;
    sequence_require(pthread_create(&thread, NULL, function, fd) == 0, "pthread_create");
    pthread_join(thread, NULL);
}

static void thread_writes_other_closes(const char *path) {
    int fd = sequence_create(path, O_WRONLY);
    run_thread(write_one_block, &fd);
    run_thread(close_it, &fd);
}

static void thread_with_own_table_writes(const char *path) {
    int fd = sequence_create(path, O_WRONLY);
    sequence_write(fd, 1);
    run_thread(write_with_own_table, &fd);
    sequence_write(fd, 1);
    close(fd);
}

static void close_range_closes(const char *path) {
    sequence_write(sequence_create(path, O_WRONLY), 2);
    syscall(SYS_close_range, 3, ~0u, 0);
}

static void close_range_with_own_table(const char *path) {
    sequence_write(sequence_create(path, O_WRONLY), 2);
    syscall(SYS_close_range, 3, ~0u, CLOSE_RANGE_UNSHARE);
}

/* The other thread still has the file open: nothing is closed, nothing published. */
static void close_range_leaves_it_to_another_thread(const char *path) {
    pthread_t thread;
    sequence_require(pthread_create(&thread, NULL, sequence_pause, NULL) == 0, "pthread_create");
    sequence_write(sequence_create(path, O_WRONLY), 2);
    syscall(SYS_close_range, 3, ~0u, CLOSE_RANGE_UNSHARE);
    struct stat st;
    bool staged = stat(path, &st) == 0 && st.st_size == 2 * BLOCK;
    bool absent = open(path, O_RDONLY) < 0 && errno == ENOENT;
    if (!staged || !absent)
        _exit(SEQUENCE_WRONG);
}

/* a descriptor in a message */

union control {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
};

static struct msghdr message_for(struct iovec *byte, union control *control) {
    return (struct msghdr){.msg_iov = byte,
                           .msg_iovlen = 1,
                           .msg_control = control,
                           .msg_controllen = sizeof *control};
}

static int receive_descriptor(int socket) {
    char byte;
    union control control;
    struct iovec vector = {&byte, 1};
    struct msghdr message = message_for(&vector, &control);
    sequence_require(recvmsg(socket, &message, 0) == 1, "recvmsg");
    int fd;
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

static void send_descriptor(int socket, int fd) {
    char byte = 'd';
    union control control = {0};
    struct iovec vector = {&byte, 1};
    struct msghdr message = message_for(&vector, &control);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    sequence_require(sendmsg(socket, &message, 0) == 1, "sendmsg");
}

static void descriptor_sent_to_another_process(const char *path) {
    int sockets[2];
    int fd = sequence_create(path, O_WRONLY);
    sequence_require(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0, "socketpair");
    int child = fork();
    if (child == 0) {
        char byte;
        close(fd);
        int received = receive_descriptor(sockets[1]);
        sequence_require(read(sockets[1], &byte, 1) == 1, "read"); /* the sender has closed it */
        sequence_write(received, 2);
        _exit(0);
    }
    send_descriptor(sockets[0], fd);
    close(fd);
    sequence_require(write(sockets[0], "c", 1) == 1, "write");
    sequence_wait(child);
}

const struct sequence sequences_processes[] = {
    {"plain", plain, 0, 8192, 8192, 0},
    {"numpy_dup", numpy_dup, 0, 8192, 8192, 0},
    {"numpy_dup_twice", numpy_dup_twice, 0, 8192, 8192, 0},
    {"child_exits_between_writes", child_exits_between_writes, 0, 8192, 8192, 0},
    {"child_is_killed_between_writes", child_is_killed_between_writes, 0, 8192, 8192, 0},
    {"child_writes_parent_closes", child_writes_parent_closes, 0, 8192, 8192, 0},
    {"child_writes_after_parent_closed", child_writes_after_parent_closed, 0, 8192, 8192, 0},
    {"both_write", both_write, 0, 12288, 12288, 0},
    {"owner_address_is_reused", owner_address_is_reused, 0, 12288, 12288, 0},
    {"thread_writes_other_closes", thread_writes_other_closes, 0, 4096, 4096, 0},
    {"thread_with_own_table_writes", thread_with_own_table_writes, 0, 12288, 12288, 0},
    {"close_range_closes", close_range_closes, 0, 8192, 8192, 0},
    {"close_range_with_own_table", close_range_with_own_table, 0, 8192, 8192, 0},
    {"close_range_leaves_it_to_another_thread", close_range_leaves_it_to_another_thread, 0, 8192,
     8192, 0},
    {"descriptor_sent_to_another_process", descriptor_sent_to_another_process, 0, 8192, 8192, 0},
    {0},
};
