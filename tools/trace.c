/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trace reader. What is wrong with a line is said with its number; nothing is guessed or
 * skipped but empty lines.
 */
#include "tools/trace.h"

#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/cleanup.h"

struct trace {
    FILE *file;
    char *line; /* getline's */
    size_t line_capacity;
    uint64_t line_number;
    uint64_t bytes_read;
    uint64_t file_bytes; /* 0: not a regular file */
    char problem[200];
};

static void cleanup_json(json_t **value) {
    json_decref(*value);
}
#define AUTO_JSON _cleanup_(cleanup_json)

int trace_open(const char *path, struct trace **ret_trace) {
    struct trace *trace = calloc(1, sizeof(*trace));
    if (!trace)
        return -ENOMEM;
    trace->file = fopen(path, "re");
    struct stat st;
    if (!trace->file || fstat(fileno(trace->file), &st) < 0) {
        int error = -errno;
        trace_close(trace);
        return error;
    }
    trace->file_bytes = S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
    *ret_trace = trace;
    return 0;
}

void trace_close(struct trace *trace) {
    if (!trace)
        return;
    if (trace->file)
        fclose(trace->file);
    free(trace->line);
    free(trace);
}

void trace_request_free(struct trace_request *request) {
    free(request->blocks);
    *request = (struct trace_request){0};
}

const char *trace_problem(const struct trace *trace) {
    return trace->problem;
}

double trace_share_read(const struct trace *trace) {
    return trace->file_bytes ? (double)trace->bytes_read / (double)trace->file_bytes : 0;
}

[[gnu::format(printf, 2, 3)]] static int refuse_line(struct trace *trace, const char *format, ...) {
    int prefix = snprintf(trace->problem, sizeof(trace->problem),
                          "line %llu: ", (unsigned long long)trace->line_number);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(trace->problem + prefix, sizeof(trace->problem) - (size_t)prefix, format, arguments);
    va_end(arguments);
    return -EBADMSG;
}

static int reserve_blocks(struct trace_request *request, size_t count) {
    if (count <= request->block_capacity)
        return 0;
    uint64_t *blocks = reallocarray(request->blocks, count, sizeof(*blocks));
    if (!blocks)
        return -ENOMEM;
    request->blocks = blocks;
    request->block_capacity = count;
    return 0;
}

static int take_blocks(struct trace *trace, json_t *ids, struct trace_request *ret_request) {
    if (!json_is_array(ids))
        return refuse_line(trace, "hash_ids is not an array");
    int error = reserve_blocks(ret_request, json_array_size(ids));
    if (error)
        return error;
    size_t number;
    json_t *id;
    json_array_foreach(ids, number, id) {
        if (!json_is_integer(id) || json_integer_value(id) < 0)
            return refuse_line(trace, "hash_ids[%zu] is not a number from 0", number);
        ret_request->blocks[number] = (uint64_t)json_integer_value(id);
    }
    ret_request->block_count = json_array_size(ids);
    return 0;
}

static int parse_line(struct trace *trace, size_t length, struct trace_request *ret_request) {
    json_error_t why;
    AUTO_JSON json_t *object = json_loadb(trace->line, length, JSON_REJECT_DUPLICATES, &why);
    if (!object)
        return refuse_line(trace, "%s", why.text);
    json_t *timestamp = json_object_get(object, "timestamp");
    if (!json_is_number(timestamp) || json_number_value(timestamp) < 0)
        return refuse_line(trace, "timestamp is not a number from 0");
    ret_request->timestamp_ms = (uint64_t)json_number_value(timestamp);
    return take_blocks(trace, json_object_get(object, "hash_ids"), ret_request);
}

int trace_next(struct trace *trace, struct trace_request *ret_request) {
    for (;;) {
        errno = 0;
        ssize_t length = getline(&trace->line, &trace->line_capacity, trace->file);
        if (length < 0)
            return feof(trace->file) ? -ENODATA : errno ? -errno : -EIO;
        trace->line_number++;
        trace->bytes_read += (uint64_t)length;
        if (strspn(trace->line, " \t\r\n") != (size_t)length)
            return parse_line(trace, (size_t)length, ret_request);
    }
}
