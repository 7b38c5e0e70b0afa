/* SPDX-License-Identifier: Apache-2.0 */
/* Rule P2: which lock owners wrote through a handle since its last publish. */
#include "fs/handle.h"

#include <criterion/criterion.h>
#include <stdlib.h>

Test(handle, an_owner_that_wrote_is_remembered_once) {
    struct handle handle = {0};
    for (int i = 0; i < 3; i++)
        handle_add_owner(&handle, 0xabcd);
    cr_assert(handle_has_owner(&handle, 0xabcd));
    cr_assert(!handle_has_owner(&handle, 0xabce));
    cr_assert_eq(handle.owner_count, 1);
    free(handle.owners);
}

Test(handle, many_owners_are_all_remembered) {
    struct handle handle = {0};
    for (uint64_t owner = 1; owner <= 100; owner++)
        handle_add_owner(&handle, owner * 4096);
    for (uint64_t owner = 1; owner <= 100; owner++)
        cr_assert(handle_has_owner(&handle, owner * 4096));
    free(handle.owners);
}

Test(handle, owners_are_bounded_and_those_beyond_are_left_to_release) {
    struct handle handle = {0};
    for (uint64_t owner = 1; owner <= HANDLE_OWNERS_MAX + 10; owner++)
        handle_add_owner(&handle, owner);
    cr_assert_eq(handle.owner_count, HANDLE_OWNERS_MAX);
    cr_assert(handle_has_owner(&handle, HANDLE_OWNERS_MAX));
    cr_assert(!handle_has_owner(&handle, HANDLE_OWNERS_MAX + 1));
    free(handle.owners);
}
