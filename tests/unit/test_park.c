/* SPDX-License-Identifier: Apache-2.0 */
/* What waiting WRITEs may keep. */
#include "fs/park.h"

#include <criterion/criterion.h>

Test(park, payload_of_waiting_writes_is_bounded) {
    struct park park = {0};
    cr_assert(park_take_payload(&park, PARKED_PAYLOAD_BYTES_MAX - 10));
    cr_assert(!park_take_payload(&park, 11));
    cr_assert(park_take_payload(&park, 10), "a refusal takes nothing");
    cr_assert(!park_take_payload(&park, 1));
    park_give_payload(&park, 5);
    cr_assert(park_take_payload(&park, 5));
}
