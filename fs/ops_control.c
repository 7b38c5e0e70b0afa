/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files in .cpl3 as files: texts are taken when they are opened, and a command's write is
 * answered when the command is done.
 */
#include "fs/control.h"
#include "fs/ops.h"
#include "fs/state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

/* opening, reading */

/* The kernel checks modes only with default_permissions. */
static int check_access(unsigned number, int flags) {
    uint32_t mode = control_mode(number);
    int access = flags & O_ACCMODE;
    bool reads = access == O_RDONLY || access == O_RDWR;
    bool writes = access == O_WRONLY || access == O_RDWR;
    return (reads && !(mode & 0400)) || (writes && !(mode & 0200)) ? -EACCES : 0;
}

static int get_number(struct fs *fs, uint64_t node, unsigned *ret_number) {
    SCOPE_LOCK(&fs->lock);
    const struct inode *inode = inode_find(fs, node);
    if (!inode || inode->kind != INODE_CONTROL)
        return -ESTALE;
    *ret_number = inode->control;
    return 0;
}

static int take_text(struct fs *fs, uint64_t node, int flags, char **ret_text,
                     size_t *ret_text_bytes) {
    unsigned number;
    int result = get_number(fs, node, &number);
    if (result == 0)
        result = check_access(number, flags);
    if (result < 0 || (flags & O_ACCMODE) == O_WRONLY)
        return result;
    return control_read_all(fs->store, &fs->options, number, ret_text, ret_text_bytes);
}

static struct handle *open_inode(struct fs *fs, uint64_t node) {
    SCOPE_LOCK(&fs->lock);
    struct inode *inode = inode_find(fs, node);
    return inode ? handle_open(fs, inode, HANDLE_CONTROL) : NULL;
}

void control_open(fuse_req_t request, fuse_ino_t node, struct fuse_file_info *info) {
    struct fs *fs = fs_of(request);
    char *text = NULL;
    size_t text_bytes = 0;
    int result = take_text(fs, node, info->flags, &text, &text_bytes);
    if (result < 0)
        return (void)fuse_reply_err(request, -result);
    struct handle *handle = open_inode(fs, node);
    if (!handle) {
        free(text);
        return (void)fuse_reply_err(request, ENOMEM);
    }
    handle->text = text;
    handle->text_bytes = text_bytes;
    info->fh = (uint64_t)(uintptr_t)handle;
    info->direct_io = 1;
    info->noflush = 1;
    if (fuse_reply_open(request, info) < 0)
        handle_close(handle);
}

/* With a reference of its own: as soon as the answer is out, the file may be closed. */
void control_read(fuse_req_t request, struct handle *handle, size_t count, off_t offset) {
    handle_ref(handle);
    size_t from = (uint64_t)offset < handle->text_bytes ? (size_t)offset : handle->text_bytes;
    size_t left = handle->text_bytes - from;
    fuse_reply_buf(request, handle->text ? handle->text + from : NULL, count < left ? count : left);
    handle_unref(handle);
}

/* commands */

struct command {
    struct waiter waiter;
    struct notify_call call;
    struct fs *fs;
    bool clears;
    int result;
    fuse_req_t request;
    size_t count;
};

static void answer_command(struct notify_call *call) {
    struct command *command = (struct command *)((char *)call - offsetof(struct command, call));
    struct park *park = &command->fs->park;
    if (command->result < 0)
        fuse_reply_err(command->request, -command->result);
    else
        fuse_reply_write(command->request, command->count);
    park_end_wait(park);
    free(command);
}

/* What was cleared is gone for the caller when the kernel has forgotten it, too. */
static void finish_command(struct waiter *waiter, int result) {
    struct command *command = (struct command *)waiter;
    command->result = result;
    command->call.sent = answer_command;
    if (command->clears)
        notify_when_sent(command->fs->notifier, &command->call);
    else
        answer_command(&command->call);
}

void control_run(fuse_req_t request, const struct handle *handle, const char *text, size_t count) {
    struct fs *fs = handle->fs;
    struct command *command = calloc(1, sizeof *command);
    if (!command)
        return (void)fuse_reply_err(request, ENOMEM);
    *command = (struct command){
        .waiter = {.wake = finish_command}, .fs = fs, .request = request, .count = count};
    command->clears = count >= 5 && memcmp(text, "clear", 5) == 0;
    park_begin_wait(&fs->park);
    int result = control_write(fs->store, text, count, &command->waiter);
    if (result != -EINPROGRESS)
        finish_command(&command->waiter, result);
}
