/* SPDX-License-Identifier: Apache-2.0 */
/* What a mount was asked for. Parsed in fs/options.c, passed down as const; no global settings. */
#ifndef CPL3_CORE_CONFIG_H
#define CPL3_CORE_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "core/format.h"
#include "core/slab.h"

enum cold_start { COLD_START_CLEAR, COLD_START_LOAD };

enum { TAG_BYTES_MAX = 255 };
/* How long a change may wait for its commit when nothing else asks for one. */
#define CONFIG_COMMIT_NS_DEFAULT UINT64_C(100000000)

struct config_kind {
    char name[32]; /* [a-z][a-z0-9_]*, not "any" */
    uint32_t payload_bytes;
    uint32_t slots;         /* 0: by share */
    unsigned share_percent; /* of size */
};

struct config {
    char *store_path;
    uint16_t rank_first, rank_last; /* inclusive */
    uint64_t size_bytes; /* per rank; 0: as the store was made, or 80 % of the free space */
    struct config_kind kinds[PAYLOAD_KINDS_MAX - 1]; /* kind i + 1 */
    unsigned kind_count;
    enum cold_start cold_start;
    double gc_start, gc_stop;    /* shares of a budget */
    char tag[TAG_BYTES_MAX + 1]; /* model, layout or weights version of the pages; "": none */
    uint64_t commit_ns;          /* never 0 here */
    bool sync;                   /* close waits for durable */
    bool read_only;              /* implies COLD_START_LOAD */
    uint64_t memory_bytes;       /* payload memory of the process; never 0 here */
    uint64_t request_bytes;      /* and of what is being received, beyond that */
    uint64_t max_file_bytes;     /* never 0 here */
    bool max_file_given, memory_given;
    enum slab_engine engine;
};

#endif
