/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What makes an index file sound. Runs in the child of index_check.c, since LMDB, which opens the
 * file here as it will later, may die of what it finds.
 *
 * A read transaction of LMDB holds a snapshot still, against writing processes of other ranks; its
 * pages are then walked without LMDB (index_pages.c): the free list, the main database, and in it
 * the four databases. Of the rank's own records and of meta the checksums are verified. The file's
 * length alone proves nothing: LMDB never writes pages that one transaction both took and gave
 * back, so only a page in use that is missing is damage.
 *
 * The payload bytes of inline blobs are not judged here: whoever loads one verifies it.
 */
#include "core/index_internal.h"

#include "core/cleanup.h"
#include "core/index_pages.h"

#include <errno.h>
#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static_assert(MDB_VERSION_MAJOR == 0, "index_pages.c knows LMDB's data format 1");

enum { SNAPSHOT_TRIES_MAX = 8 };

struct inspection {
    struct index_pages pages;
    uint16_t rank;
    struct index_header header; /* of the snapshot */
    unsigned databases;         /* how many of the four were seen */
};

/* LMDB's own findings are damage; the system's errors, and a full table of readers, say that the
 * check could not be tried. */
static int judge_code(struct inspection *in, int code, const char *what) {
    int error = code < 0 && code != MDB_READERS_FULL ? -EUCLEAN : index_error(code);
    index_pages_damaged(&in->pages, "%s: %s", what, mdb_strerror(code));
    return error;
}

/* records */

typedef int check_record(struct inspection *in, struct index_bytes key, struct index_bytes value);

static bool of_rank(const struct inspection *in, struct index_bytes key) {
    return key.size >= RANK_PREFIX_BYTES && key.data[0] == in->rank >> 8 &&
           key.data[1] == (in->rank & 0xff);
}

static int check_blob(struct inspection *in, struct index_bytes key, struct index_bytes value) {
    struct blob_key blob;
    struct blob_record record;
    if (of_rank(in, key) && (index_record_unpack_blob_key(key, &blob) != 0 ||
                             index_record_unpack_blob(key, value, &record) != 0))
        return index_pages_damaged(&in->pages, "a blob record of rank %u fails its checksum",
                                   in->rank);
    return 0;
}

static int check_inline(struct inspection *in, struct index_bytes key, struct index_bytes value) {
    struct blob_key blob;
    if (of_rank(in, key) &&
        (index_record_unpack_blob_key(key, &blob) != 0 || value.size > INLINE_BYTES_MAX))
        return index_pages_damaged(&in->pages, "an inline payload of rank %u is impossible",
                                   in->rank);
    return 0;
}

static int check_name(struct inspection *in, struct index_bytes key, struct index_bytes value) {
    uint64_t directory;
    struct index_name name;
    if (of_rank(in, key) && index_record_unpack_name(key, value, &directory, &name) != 0)
        return index_pages_damaged(&in->pages, "a name record of rank %u fails its checksum",
                                   in->rank);
    return 0;
}

static int check_meta(struct inspection *in, struct index_bytes key, struct index_bytes value) {
    uint64_t number;
    if (index_record_unpack_meta(key, value, &number) != 0)
        return index_pages_damaged(&in->pages, "a meta record fails its checksum");
    return 0;
}

/* One transaction's free pages: how many, and their numbers, falling. */
static int check_free_pages(struct inspection *in, struct index_bytes key,
                            struct index_bytes value) {
    uint64_t transaction, count, page, last = UINT64_MAX;
    if (value.size < sizeof count)
        return index_pages_damaged(&in->pages, "the free list has an impossible record");
    memcpy(&transaction, key.data, sizeof transaction);
    memcpy(&count, value.data, sizeof count);
    if (transaction > in->header.transaction || count > value.size / sizeof page - 1)
        return index_pages_damaged(&in->pages, "the free list has an impossible record");
    for (uint64_t i = 1; i <= count; i++, last = page) {
        memcpy(&page, value.data + i * sizeof page, sizeof page);
        if (page >= last)
            return index_pages_damaged(&in->pages, "the free list is not in order");
        int error = index_pages_use(&in->pages, page);
        if (error)
            return error;
    }
    return 0;
}

/* databases */

struct database_walk {
    struct inspection *in;
    check_record *check;
};

static int check_entry(void *argument, struct index_bytes key, struct index_bytes value,
                       bool subtree) {
    const struct database_walk *walk = argument;
    if (subtree)
        return index_pages_damaged(&walk->in->pages, "a record is a database");
    return walk->check(walk->in, key, value);
}

/* In the main database: each entry is one of ours. */
static int check_database(void *argument, struct index_bytes key, struct index_bytes value,
                          bool subtree) {
    static check_record *const checks[INDEX_DATABASES] = {check_blob, check_inline, check_name,
                                                          check_meta};
    struct inspection *in = argument;
    struct index_tree tree;
    int i = 0;
    while (i < INDEX_DATABASES && (key.size != strlen(index_database_names[i]) ||
                                   memcmp(key.data, index_database_names[i], key.size) != 0))
        i++;
    if (i == INDEX_DATABASES || !subtree)
        return index_pages_damaged(&in->pages, "the main database has an unknown entry");
    struct database_walk walk = {in, checks[i]};
    memcpy(&tree, value.data, sizeof tree);
    if (tree.flags)
        return index_pages_damaged(&in->pages, "database %s: it has flags",
                                   index_database_names[i]);
    in->databases++;
    return index_pages_walk(&in->pages, index_database_names[i], &tree, check_entry, &walk);
}

static int check_trees(struct inspection *in) {
    struct database_walk free_list = {in, check_free_pages};
    if (in->header.free_list.flags != INDEX_TREE_INTEGER_KEYS || in->header.main.flags)
        return index_pages_damaged(&in->pages, "its header has impossible flags");
    int error = index_pages_walk(&in->pages, "main", &in->header.main, check_database, in);
    /* None at all: made, but not yet filled by whoever made it. */
    if (!error && in->databases && in->databases != INDEX_DATABASES)
        error = index_pages_damaged(&in->pages, "a database is missing");
    /* Last: a page that it frees and a tree uses is found there. */
    if (!error)
        error = index_pages_walk(&in->pages, "free list", &in->header.free_list, check_entry,
                                 &free_list);
    return error;
}

/* the file */

/* LMDB alternates between the two. */
static bool read_header(struct inspection *in, int fd, uint64_t transaction) {
    uint64_t page = transaction % INDEX_HEADER_PAGES;
    off_t offset = (off_t)(page * in->pages.page_bytes + INDEX_HEADER_OFFSET);
    return pread(fd, &in->header, sizeof in->header, offset) == sizeof in->header &&
           in->header.transaction == transaction;
}

/* Begins a snapshot and reads its header. The second commit after it overwrites that in the file:
 * what was read meanwhile may be torn, and another snapshot is taken. */
static int begin_snapshot(struct inspection *in, MDB_env *env, int fd, MDB_txn **ret_txn) {
    for (int tries = 0; tries < SNAPSHOT_TRIES_MAX; tries++) {
        MDB_txn *txn;
        MDB_envinfo info;
        int code = mdb_txn_begin(env, NULL, MDB_RDONLY, &txn);
        if (code == MDB_MAP_RESIZED) { /* grown by another process just now */
            code = mdb_env_set_mapsize(env, 0);
            if (code == 0)
                continue;
        }
        if (code)
            return judge_code(in, code, "reading it");
        bool read = read_header(in, fd, mdb_txn_id(txn));
        if (mdb_env_info(env, &info) == 0 && info.me_last_txnid < mdb_txn_id(txn) + 2 && read) {
            *ret_txn = txn;
            return 0;
        }
        mdb_txn_abort(txn);
    }
    return index_pages_damaged(&in->pages, "its two headers disagree");
}

/* With the file's length of now: all pages of the snapshot are written. */
static int inspect_snapshot(struct inspection *in, int fd) {
    struct stat file;
    if (fstat(fd, &file) < 0)
        return judge_code(in, errno, "reading it");
    size_t bytes = (size_t)file.st_size;
    in->pages.file_pages = bytes / in->pages.page_bytes;
    in->pages.pages = in->header.last_page + 1;
    AUTO_FREE uint8_t *used = calloc(1, in->pages.pages / 8 + 1);
    if (!used)
        return index_pages_damaged(&in->pages, "its header says %llu pages",
                                   (unsigned long long)in->pages.pages);
    void *map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return judge_code(in, errno, "mapping it");
    in->pages.used = used;
    in->pages.bytes = map;
    int error = check_trees(in);
    munmap(map, bytes);
    return error;
}

static int inspect(struct inspection *in, MDB_env *env) {
    MDB_stat status;
    MDB_txn *txn = NULL;
    int fd, dead, code = mdb_reader_check(env, &dead);
    if (code == 0)
        code = mdb_env_stat(env, &status);
    if (code == 0)
        code = mdb_env_get_fd(env, &fd);
    if (code)
        return judge_code(in, code, "reading it");
    in->pages.page_bytes = status.ms_psize;
    if (in->pages.page_bytes != (size_t)sysconf(_SC_PAGESIZE))
        return index_pages_damaged(&in->pages, "its pages have %zu bytes", in->pages.page_bytes);
    int error = begin_snapshot(in, env, fd, &txn);
    if (error)
        return error;
    error = inspect_snapshot(in, fd);
    mdb_txn_abort(txn); /* its slot would hold back the pages of live processes */
    return error;
}

static int open_and_inspect(struct inspection *in, MDB_env *env, const char *path) {
    int code = mdb_env_set_maxdbs(env, INDEX_DATABASES);
    if (code == 0)
        code = mdb_env_open(env, path, MDB_RDONLY | MDB_NOTLS, 0600);
    /* The header says how much to map. */
    if (code == ENOMEM || code == EINVAL || code == EOVERFLOW)
        return index_pages_damaged(&in->pages, "its header asks for an impossible map");
    return code ? judge_code(in, code, "opening it") : inspect(in, env);
}

int index_inspect(const char *path, uint16_t rank, char *ret_reason, size_t size) {
    struct inspection in = {.rank = rank, .pages = {.reason = ret_reason, .reason_bytes = size}};
    MDB_env *env;
    int code = mdb_env_create(&env);
    if (code)
        return judge_code(&in, code, "opening it");
    int error = open_and_inspect(&in, env, path);
    mdb_env_close(env);
    return error;
}
