/* SPDX-License-Identifier: Apache-2.0 */
/* The workers: they answer, they end when told, and they say when the other side is gone. */
#include "fs/loop.h"

#include <poll.h>

#include "tests/unit/kernel_fixture.h"

static struct loop *loop;

static void destroy(void) {
    loop_stop(loop);
    kernel_destroy();
}

TestSuite(loop, .init = kernel_make, .fini = destroy, .timeout = 20);

static bool has_ended(int wait_ms) {
    struct pollfd wait = {.fd = loop_ended_fd(loop), .events = POLLIN};
    return poll(&wait, 1, wait_ms) == 1;
}

Test(loop, answers_on_several_workers_and_stops_while_they_read) {
    cr_assert(loop_start(session, request_memory, 5, &loop) == 0);
    send_init(45, FUSE_INIT_EXT, 0);
    receive_reply();
    cr_assert(!has_ended(0));
    loop_stop(loop);
    loop = NULL;
}

Test(loop, says_when_the_other_side_is_gone) {
    cr_assert(loop_start(session, request_memory, 3, &loop) == 0);
    cr_assert(!has_ended(0));
    shutdown(kernel_fd, SHUT_RDWR);
    cr_assert(has_ended(10000));
}

Test(loop, stopping_none_is_fine) {
    loop_stop(NULL);
}
