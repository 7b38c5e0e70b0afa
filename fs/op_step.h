/* SPDX-License-Identifier: Apache-2.0 */
/* What each operation on a write handle does. */
#ifndef CPL3_FS_OP_STEP_H
#define CPL3_FS_OP_STEP_H

struct op;

/* Under the handle's lock. 0 or -errno: done. -EINPROGRESS: its task waits; call again when it
 * runs. */
int op_step(struct op *op);

#endif
