/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of inodes, the pins of private ones, and how inodes come and go with the kernel's
 * lookups and open handles. Directories are in fs/directory.c.
 */
#include "fs/inode.h"

#include "fs/attr.h"
#include "fs/control.h"
#include "fs/state.h"

#include <errno.h>
#include <stdlib.h>

struct inode *inode_find(struct fs *fs, uint64_t node) {
    struct inode *inode;
    HASH_FIND(by_node, fs->inodes, &node, sizeof node, inode);
    return inode;
}

struct inode *inode_create(struct fs *fs, enum inode_kind kind) {
    struct inode *inode = calloc(1, sizeof *inode);
    if (!inode)
        return NULL;
    inode->kind = kind;
    inode->node = fs->next_node++;
    HASH_ADD(by_node, fs->inodes, node, sizeof inode->node, inode);
    return inode;
}

struct inode *inode_create_file(struct fs *fs, struct file *file) {
    struct inode *inode = inode_create(fs, INODE_FILE);
    if (!inode)
        return NULL;
    inode->file = file;
    file_ref(file);
    return inode;
}

void inode_set_version(struct inode *inode, const struct blob_record *record) {
    inode->sequence = record->sequence;
    attr_of_record(record, &inode->shown);
}

/* private inodes */

static void remove_from_pins(struct fs *fs, struct inode *inode) {
    TAILQ_REMOVE(&fs->pins, inode, pins);
    CHECK(fs->pin_count > 0);
    fs->pin_count--;
}

static bool is_in_pins(const struct inode *inode) {
    return inode->private && !inode->used && inode->pinned;
}

struct version *inode_take_pin(struct fs *fs, struct inode *inode) {
    if (is_in_pins(inode))
        remove_from_pins(fs, inode);
    struct version *version = inode->pinned;
    inode->pinned = NULL;
    return version;
}

/* Takes over the version that is current, if the inode has none. */
static void adopt_current(struct fs *fs, struct inode *inode) {
    CHECK(inode->private && !inode->used);
    struct file *file = inode->file;
    struct version *version;
    struct blob_record record;
    if (inode->pinned || !file->attached ||
        rank_open_version(file->rank, file_served_key(file), 0, &version, &record) < 0)
        return;
    inode_set_version(inode, &record);
    inode->pinned = version;
    inode->pinned_ns = clock_monotonic_ns();
    TAILQ_INSERT_TAIL(&fs->pins, inode, pins);
    if (++fs->pin_count > PRIVATE_PINS_MAX)
        version_unref(inode_take_pin(fs, TAILQ_FIRST(&fs->pins)));
}

void inode_adopt_newest(struct fs *fs, struct inode *inode) {
    struct blob_record record;
    if (inode->pinned && file_get_current(inode->file, &record) &&
        record.sequence != inode->sequence)
        version_unref(inode_take_pin(fs, inode));
    adopt_current(fs, inode);
}

struct inode *inode_create_private(struct fs *fs, struct file *file) {
    struct inode *inode = inode_create_file(fs, file);
    if (!inode)
        return NULL;
    inode->private = true;
    adopt_current(fs, inode);
    return inode;
}

void inode_mark_used(struct fs *fs, struct inode *inode) {
    if (is_in_pins(inode))
        remove_from_pins(fs, inode);
    inode->used = true;
}

void inode_expire_pins(struct fs *fs, uint64_t now_ns) {
    struct inode *inode;
    while ((inode = TAILQ_FIRST(&fs->pins)) &&
           inode->pinned_ns + PRIVATE_PIN_SECONDS * 1000000000ull <= now_ns)
        version_unref(inode_take_pin(fs, inode));
}

/* coming and going */

static void free_file_inode(struct fs *fs, struct inode *inode) {
    struct file *file = inode->file;
    CHECK(!inode->writer);
    version_unref(inode_take_pin(fs, inode));
    if (file->shared == inode)
        file->shared = NULL;
    file_unref(fs, file);
}

static void free_directory_inode(struct fs *fs, struct inode *inode) {
    struct directory *directory = inode->directory;
    if (!directory->removed)
        HASH_DELETE(by_id, fs->directories, directory);
    free(directory->name);
    free(directory);
}

void inode_discard(struct fs *fs, struct inode *inode) {
    if (inode->kind == INODE_FILE)
        free_file_inode(fs, inode);
    if (inode->kind == INODE_DIRECTORY)
        free_directory_inode(fs, inode);
    HASH_DELETE(by_node, fs->inodes, inode);
    free(inode);
}

/* The root, .cpl3, its files and the ranks' directories stay. */
static bool is_fixed(const struct inode *inode) {
    return inode->kind != INODE_FILE &&
           !(inode->kind == INODE_DIRECTORY && inode->directory->parent != 0);
}

static void discard_if_unknown(struct fs *fs, struct inode *inode) {
    if (inode->lookups == 0 && inode->opens == 0 && !is_fixed(inode))
        inode_discard(fs, inode);
}

void inode_forget(struct fs *fs, struct inode *inode, uint64_t lookups) {
    /* The count comes from the kernel: believed, not trusted. */
    inode->lookups -= lookups < inode->lookups ? lookups : inode->lookups;
    discard_if_unknown(fs, inode);
}

void inode_add_open(struct inode *inode) {
    inode->opens++;
}

void inode_drop_open(struct fs *fs, struct inode *inode) {
    CHECK(inode->opens > 0);
    if (--inode->opens == 0 && inode->private && inode->used) {
        /* From here on it is like any other inode: good for as long as its version is current. */
        version_unref(inode_take_pin(fs, inode));
        inode->private = false;
    }
    discard_if_unknown(fs, inode);
}

static int create_control(struct fs *fs) {
    for (unsigned i = 0; i < control_count(); i++) {
        struct inode *inode = inode_create(fs, INODE_CONTROL);
        if (!inode)
            return -ENOMEM;
        inode->control = i;
    }
    return 0;
}

int inode_create_fixed(struct fs *fs) {
    TAILQ_INIT(&fs->pins);
    fs->next_node = FUSE_ROOT_ID;
    if (!inode_create(fs, INODE_ROOT) || !inode_create(fs, INODE_CONTROL_DIRECTORY))
        return -ENOMEM;
    return create_control(fs);
}

void inode_free_all(struct fs *fs) {
    struct inode *inode, *next;
    HASH_ITER (by_node, fs->inodes, inode, next)
        inode_discard(fs, inode);
}
