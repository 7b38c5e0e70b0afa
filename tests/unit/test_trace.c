/* SPDX-License-Identifier: Apache-2.0 */
/* The trace reader: what a line says is what comes out, and a bad line is named, never skipped. */
#include "tools/trace.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/cleanup.h"

/* The file is gone by name as soon as it is open. */
static struct trace *open_text(const char *text) {
    const char *tmp = getenv("TMPDIR");
    char path[200];
    snprintf(path, sizeof(path), "%s/cpl3-trace-XXXXXX", tmp ? tmp : "/tmp");
    AUTO_CLOSE int fd = mkstemp(path);
    cr_assert(fd >= 0);
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    struct trace *trace = NULL;
    cr_assert_eq(trace_open(path, &trace), 0);
    unlink(path);
    return trace;
}

Test(trace, requests_come_in_order_with_their_blocks) {
    struct trace *trace = open_text(
        "{\"timestamp\": 7, \"input_length\": 9, \"hash_ids\": [0, 4, 9007199254740993]}\n"
        "\n"
        "{\"timestamp\": 31, \"hash_ids\": []}\n"
        "{\"timestamp\": 32.5, \"hash_ids\": [12]}");
    struct trace_request request = {0};
    cr_assert_eq(trace_next(trace, &request), 0);
    cr_expect_eq(request.timestamp_ms, 7);
    cr_assert_eq(request.block_count, 3);
    cr_expect_eq(request.blocks[0], 0);
    cr_expect_eq(request.blocks[1], 4);
    cr_expect_eq(request.blocks[2], UINT64_C(9007199254740993));
    cr_assert_eq(trace_next(trace, &request), 0);
    cr_expect_eq(request.timestamp_ms, 31);
    cr_expect_eq(request.block_count, 0);
    cr_assert_eq(trace_next(trace, &request), 0, "a last line without newline counts");
    cr_expect_eq(request.timestamp_ms, 32);
    cr_expect_eq(request.blocks[0], 12);
    cr_expect_eq(trace_share_read(trace), 1.0);
    cr_expect_eq(trace_next(trace, &request), -ENODATA);
    trace_request_free(&request);
    trace_close(trace);
}

Test(trace, a_bad_line_is_named) {
    static const struct {
        const char *line, *problem;
    } cases[] = {
        {"{\"timestamp\": 0, \"hash_ids\": [1, -1]}", "line 2: hash_ids[1] is not a number from 0"},
        {"{\"timestamp\": 0, \"hash_ids\": [\"1\"]}", "line 2: hash_ids[0] is not a number from 0"},
        {"{\"timestamp\": 0, \"hash_ids\": 5}", "line 2: hash_ids is not an array"},
        {"{\"timestamp\": 0}", "line 2: hash_ids is not an array"},
        {"{\"hash_ids\": [1]}", "line 2: timestamp is not a number from 0"},
        {"[1, 2]", "line 2: timestamp is not a number from 0"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[200];
        snprintf(text, sizeof(text), "{\"timestamp\": 0, \"hash_ids\": [1]}\n%s\n", cases[i].line);
        struct trace *trace = open_text(text);
        struct trace_request request = {0};
        cr_expect_eq(trace_next(trace, &request), 0);
        cr_expect_eq(trace_next(trace, &request), -EBADMSG);
        cr_expect_str_eq(trace_problem(trace), cases[i].problem);
        trace_request_free(&request);
        trace_close(trace);
    }
}

Test(trace, a_cut_off_line_is_refused) {
    struct trace *trace = open_text("{\"timestamp\": 0, \"hash_ids\": [1, 2");
    struct trace_request request = {0};
    cr_expect_eq(trace_next(trace, &request), -EBADMSG);
    cr_expect(strncmp(trace_problem(trace), "line 1: ", 8) == 0);
    trace_request_free(&request);
    trace_close(trace);
}

Test(trace, a_missing_file_is_enoent) {
    struct trace *trace;
    cr_expect_eq(trace_open("/nowhere/trace.jsonl", &trace), -ENOENT);
}
