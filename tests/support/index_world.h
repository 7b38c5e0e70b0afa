/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An index in a temporary directory for the tests of index_*: contents that follow from a number,
 * so that whatever is read can be told right from wrong. One world a process.
 */
#ifndef CPL3_TESTS_SUPPORT_INDEX_WORLD_H
#define CPL3_TESTS_SUPPORT_INDEX_WORLD_H

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/check.h"
#include "core/cleanup.h"
#include "core/index.h"

struct index_world {
    char directory[256]; /* the test's */
    char path[270];      /* the index's, in it */
    char file[300];      /* data.mdb */
    char lock[300];
};

static struct index_world world;

static inline void world_make(void) {
    const char *base = getenv("TMPDIR");
    snprintf(world.directory, sizeof world.directory, "%s/index-XXXXXX", base ? base : "/tmp");
    CHECK(mkdtemp(world.directory));
    snprintf(world.path, sizeof world.path, "%s/index", world.directory);
    snprintf(world.file, sizeof world.file, "%s/data.mdb", world.path);
    snprintf(world.lock, sizeof world.lock, "%s/lock.mdb", world.path);
}

static inline void world_remove(void) {
    unlink(world.file);
    unlink(world.lock);
    rmdir(world.path);
    CHECK(rmdir(world.directory) == 0);
}

static inline struct index *world_open_sized(uint64_t map_bytes) {
    struct index_options options = {.map_bytes = map_bytes};
    struct index *index;
    CHECK(index_open(world.path, &options, &index) == 0);
    return index;
}

static inline struct index *world_open(void) {
    return world_open_sized(64 << 20);
}

/* contents */

/* The hash is the number as 32 hex digits would give it: 000...1, 000...2. */
static inline struct blob_key world_key(uint16_t rank, bool named, uint32_t number) {
    struct blob_key key = {.rank = rank, .named = named, .hash_bytes = 16};
    for (int i = 0; i < 4; i++)
        key.hash[15 - i] = (uint8_t)(number >> 8 * i);
    return key;
}

static inline uint32_t world_number(const struct blob_key *key) {
    return (uint32_t)key->hash[12] << 24 | (uint32_t)key->hash[13] << 16 |
           (uint32_t)key->hash[14] << 8 | key->hash[15];
}

static inline size_t world_name(uint32_t number, char ret_name[NAME_BYTES_MAX + 1]) {
    return (size_t)snprintf(ret_name, NAME_BYTES_MAX + 1, "%0*u.safetensors",
                            6 + (int)(number % 90), number);
}

/* Every third one is inline; its payload is 7 bytes a number, up to the most. */
static inline uint32_t world_payload(uint32_t number, uint8_t ret_bytes[INLINE_BYTES_MAX]) {
    uint32_t bytes = number * 7 % (INLINE_BYTES_MAX + 1);
    for (uint32_t i = 0; i < bytes; i++)
        ret_bytes[i] = (uint8_t)(number * 31 + i);
    return bytes;
}

static inline struct blob_record world_record(const struct blob_key *key) {
    uint32_t number = world_number(key);
    uint8_t payload[INLINE_BYTES_MAX];
    struct blob_record record = {
        .slot_bytes = number % 3 ? 1 << 20 : 0,
        .slot = number,
        .sequence = 0x5e90000000000000u + number + ((uint64_t)key->rank << 32),
        .payload_bytes = 1000 + number,
        .payload_checksum = number * 0x9e3779b97f4a7c15u,
        .epoch = 4,
        .last_access_ns = 1000000007u * (uint64_t)number,
        .mtime_ns = -(int64_t)number,
        .ctime_ns = 77,
        .mode = 0640,
        .uid = 1000 + number,
        .gid = 2000,
        .hits = number * 2,
    };
    if (!record.slot_bytes) {
        record.payload_bytes = world_payload(number, payload);
        struct iovec piece = {payload, record.payload_bytes};
        record.payload_checksum = blob_checksum(&piece, 1);
    }
    if (key->named) {
        record.directory = directory_root(key->rank);
        record.name_bytes = (uint8_t)world_name(number, record.name);
    }
    return record;
}

static inline bool world_record_equal(const struct blob_record *a, const struct blob_record *b) {
    return a->slot_bytes == b->slot_bytes && a->slot == b->slot && a->sequence == b->sequence &&
           a->payload_checksum == b->payload_checksum && a->payload_bytes == b->payload_bytes &&
           a->epoch == b->epoch && a->last_access_ns == b->last_access_ns &&
           a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns && a->mode == b->mode &&
           a->uid == b->uid && a->gid == b->gid && a->hits == b->hits &&
           a->directory == b->directory && a->name_bytes == b->name_bytes &&
           memcmp(a->name, b->name, (size_t)a->name_bytes + 1) == 0;
}

static inline struct name_entry world_directory(uint16_t rank, uint32_t number) {
    return (struct name_entry){
        .type = NAME_DIRECTORY,
        .directory = directory_root(rank) + 1 + number,
        .mode = 0750,
        .uid = number,
        .gid = 7,
        .mtime_ns = 123456789,
        .ctime_ns = -5,
    };
}

static inline bool world_entry_equal(const struct name_entry *a, const struct name_entry *b) {
    if (a->type != b->type)
        return false;
    if (a->type == NAME_BLOB)
        return blob_key_equal(&a->blob, &b->blob);
    return a->directory == b->directory && a->mode == b->mode && a->uid == b->uid &&
           a->gid == b->gid && a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns;
}

/* What a number's name stands for: every tenth is a directory, the others are blobs. */
static inline struct name_entry world_entry(uint16_t rank, uint32_t number) {
    if (number % 10 == 0)
        return world_directory(rank, number);
    return (struct name_entry){.type = NAME_BLOB, .blob = world_key(rank, true, number)};
}

/* writing */

static inline struct index_txn *world_begin(struct index *index) {
    struct index_txn *txn;
    CHECK(index_txn_begin(index, &txn) == 0);
    return txn;
}

static inline int world_put_blob(struct index_txn *txn, const struct blob_key *key) {
    uint8_t payload[INLINE_BYTES_MAX];
    struct blob_record record = world_record(key);
    int error = index_txn_put_blob(txn, key, &record);
    if (error || record.slot_bytes)
        return error;
    return index_txn_put_inline(txn, key, payload, world_payload(record.slot, payload));
}

static inline int world_put_name(struct index_txn *txn, uint16_t rank, uint32_t number) {
    char name[NAME_BYTES_MAX + 1];
    struct name_entry entry = world_entry(rank, number);
    size_t name_bytes = world_name(number, name);
    return index_txn_put_name(txn, directory_root(rank), name, name_bytes, &entry);
}

/* Unnamed blobs, or named ones and their names, in one transaction. */
static inline void world_fill(struct index *index, uint16_t rank, bool named, uint32_t first,
                              uint32_t count) {
    struct index_txn *txn = world_begin(index);
    for (uint32_t number = first; number < first + count; number++) {
        struct blob_key key = world_key(rank, named, number);
        CHECK(world_put_blob(txn, &key) == 0);
        if (named)
            CHECK(world_put_name(txn, rank, number) == 0);
    }
    CHECK(index_txn_commit(txn) == 0);
}

/* judging */

/* 0: it is there and right; -ENOENT and other errors as they come; CHECKs against wrong values. */
static inline int world_look_at_blob(struct index *index, const struct blob_key *key) {
    uint8_t payload[INLINE_BYTES_MAX], right[INLINE_BYTES_MAX];
    struct blob_record record, expected = world_record(key);
    int error = index_get_blob(index, key, &record);
    if (error)
        return error;
    CHECK(world_record_equal(&record, &expected));
    if (record.slot_bytes)
        return 0;
    error = index_get_inline(index, key, payload, record.payload_bytes);
    if (error)
        return error;
    struct iovec piece = {payload, record.payload_bytes};
    if (blob_checksum(&piece, 1) != record.payload_checksum)
        return -EBADMSG;
    CHECK(memcmp(payload, right, world_payload(world_number(key), right)) == 0);
    return 0;
}

static inline int world_check_blob(void *argument, const struct index_blob *blob) {
    struct blob_record expected = world_record(&blob->key);
    CHECK(world_record_equal(&blob->record, &expected));
    (*(unsigned *)argument)++;
    return 0;
}

static inline int world_check_name(void *argument, uint64_t directory,
                                   const struct index_name *name) {
    uint32_t number = (uint32_t)strtoul(name->name, NULL, 10);
    uint16_t rank = directory_rank(directory);
    char right[NAME_BYTES_MAX + 1];
    struct name_entry expected = world_entry(rank, number);
    CHECK(directory == directory_root(rank) && world_entry_equal(&name->entry, &expected));
    CHECK(name->name_bytes == world_name(number, right) && strcmp(name->name, right) == 0);
    CHECK(name->hash == name_hash64(right, name->name_bytes));
    (*(unsigned *)argument)++;
    return 0;
}

/* The numbers of a rank's good blobs and names, each of them compared. */
static inline unsigned world_count_blobs(struct index *index, uint16_t rank, uint64_t *ret_bad) {
    unsigned count = 0;
    CHECK(index_each_blob(index, rank, world_check_blob, &count, ret_bad) == 0);
    return count;
}

static inline unsigned world_count_names(struct index *index, uint16_t rank, uint64_t *ret_bad) {
    unsigned count = 0;
    CHECK(index_each_name(index, rank, world_check_name, &count, ret_bad) == 0);
    return count;
}

/* the file */

static inline uint8_t *world_read_file(size_t *ret_bytes) {
    struct stat status;
    AUTO_CLOSE int fd = open(world.file, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0 && fstat(fd, &status) == 0);
    uint8_t *bytes = malloc((size_t)status.st_size);
    CHECK(bytes && read(fd, bytes, (size_t)status.st_size) == status.st_size);
    *ret_bytes = (size_t)status.st_size;
    return bytes;
}

static inline void world_write_file(const uint8_t *bytes, size_t size) {
    AUTO_CLOSE int fd = open(world.file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
}

/* Flips a bit behind every place where the file has this number (old pages too); how often. */
static inline unsigned world_damage_number(uint64_t number, size_t offset) {
    size_t size;
    unsigned found = 0;
    AUTO_FREE uint8_t *bytes = world_read_file(&size);
    for (size_t i = 0; i + sizeof number + offset < size; i++) {
        if (memcmp(bytes + i, &number, sizeof number) == 0) {
            bytes[i + offset] ^= 1;
            found++;
        }
    }
    world_write_file(bytes, size);
    return found;
}

/* other processes */

/* True: it exited with 0. */
static inline bool world_wait(pid_t child) {
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

#endif
