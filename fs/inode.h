/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernel knows by number. Each version of a file has an inode of its own, with a node id
 * from a counter that is never reused (rule P6); the file (fs/file.h) is the identity behind them.
 *
 *   shared    the inode that a LOOKUP of a quiet name returns. Stale as soon as the name stands for
 *             another sequence.
 *   private   made for one LOOKUP of a hot name; pins the version that this LOOKUP saw until its
 *             first OPEN decides what it is for (rule P7). Unopened pins are bounded in number and
 *             age.
 *   staging   has a writer: belongs to that handle alone until its RELEASE.
 *
 * Everything here is under fs->lock.
 */
#ifndef CPL3_FS_INODE_H
#define CPL3_FS_INODE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <uthash.h>

#include "core/store.h"
#include "fs/compat.h"

struct file;
struct handle;

enum {
    PRIVATE_PINS_MAX = 1024,
    PRIVATE_PIN_SECONDS = 10,
};

enum inode_kind {
    INODE_ROOT,              /* the mount's root */
    INODE_CONTROL_DIRECTORY, /* .cpl3 */
    INODE_CONTROL,           /* a file in it */
    INODE_DIRECTORY,         /* rank<N> or a directory below */
    INODE_FILE,
};

/* Attributes of one version, as stat shows them. */
struct shown {
    uint64_t size_bytes;
    uint64_t disk_bytes;
    uint64_t atime_ns;
    int64_t mtime_ns, ctime_ns;
    uint32_t mode, uid, gid;
};

struct directory {
    UT_hash_handle by_id; /* of fs->directories */
    struct inode *inode;
    struct rank *rank;
    uint64_t id;     /* core's */
    uint64_t parent; /* core's; 0 for a rank's root */
    char *name;      /* in the parent; NULL for a rank's root */
    bool removed;
    uint32_t mode, uid, gid;
    int64_t mtime_ns, ctime_ns; /* moved by changes for as long as it is known */
};

struct inode {
    UT_hash_handle by_node; /* of fs->inodes */
    uint64_t node;
    uint64_t lookups; /* the kernel's count */
    enum inode_kind kind;
    unsigned opens; /* handles */
    union {
        struct directory *directory; /* INODE_DIRECTORY */
        unsigned control;            /* INODE_CONTROL: its number in fs/control.h */
        struct file *file;           /* INODE_FILE: a reference */
    };
    /* INODE_FILE */
    bool private;
    bool used;    /* its first OPEN has decided */
    bool created; /* by CREATE: the name's entry in the kernel leads here */
    bool found;   /* made for a LOOKUP of its version: the kernel never had another size for it */
    struct handle *writer;
    uint64_t told_bytes;    /* private: the size in the answer to its LOOKUP */
    uint64_t sequence;      /* of the version that it stands for; 0: none yet */
    struct shown shown;     /* of that version */
    struct version *pinned; /* private: a reference */
    uint64_t pinned_ns;     /* monotonic; unopened private inodes are in fs->pins */
    TAILQ_ENTRY(inode) pins;
};

TAILQ_HEAD(inode_list, inode);

struct inode *inode_find(struct fs *fs, uint64_t node); /* NULL: the kernel made it up */

/* All with no lookups counted yet; NULL: no memory. */
struct inode *inode_create(struct fs *fs, enum inode_kind kind);
struct inode *inode_create_file(struct fs *fs, struct file *file);
/* Makes it stand for this version from now on. */
void inode_set_version(struct inode *inode, const struct blob_record *record);
/* A private inode for the file as it is: pins what is published, if anything. */
struct inode *inode_create_private(struct fs *fs, struct file *file);
/* A private one before its first OPEN: what was closed after the LOOKUP that it came from is what
 * it stands for from now on. */
void inode_adopt_newest(struct fs *fs, struct inode *inode);
/* The pin goes elsewhere (or nowhere: unref it): no longer bounded here. */
struct version *inode_take_pin(struct fs *fs, struct inode *inode);
/* Its first OPEN has come: the pin stays as long as it is open. */
void inode_mark_used(struct fs *fs, struct inode *inode);
void inode_expire_pins(struct fs *fs, uint64_t now_ns);

/* directories: fs/directory.c */

/* The inode of a directory that core knows; made when it is not known yet. NULL: no memory. */
struct inode *inode_get_directory(struct fs *fs, struct rank *rank, uint64_t parent,
                                  const char *name, const struct name_entry *entry);
struct directory *inode_find_directory(struct fs *fs, uint64_t id);
/* Its entries changed. */
void inode_touch_directory(struct fs *fs, uint64_t id);
int inode_move_directory(struct directory *directory, uint64_t parent, const char *name);
/* It is the other one, or below it. */
bool inode_is_below(struct fs *fs, uint64_t id, uint64_t above);
void inode_remove_directory(struct fs *fs, uint64_t id); /* rmdir */
int inode_create_rank_root(struct fs *fs, struct rank *rank);

/* coming and going */

/* The kernel forgets so many lookups; the inode goes with the last one and the last handle. */
void inode_forget(struct fs *fs, struct inode *inode, uint64_t lookups);
void inode_add_open(struct inode *inode);
void inode_drop_open(struct fs *fs, struct inode *inode);
/* Frees one that was made but never shown to anybody. */
void inode_discard(struct fs *fs, struct inode *inode);

/* The root, .cpl3 and its files. -ENOMEM. */
int inode_create_fixed(struct fs *fs);
void inode_free_all(struct fs *fs);

#endif
