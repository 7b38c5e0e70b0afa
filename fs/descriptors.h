/* SPDX-License-Identifier: Apache-2.0 */
/* Leaving behind the descriptors that a process was born with. */
#ifndef CPL3_FS_DESCRIPTORS_H
#define CPL3_FS_DESCRIPTORS_H

/* Those of standard input, output and error that were closed become /dev/null: else the next file
 * to be opened, a slab perhaps, would get the messages. First of all. */
void descriptors_ensure_standard(void);

/* As many as the hard limit allows: every slab is one. */
void descriptors_raise_limit(void);

/* Standard input, output and error become /dev/null: a terminal or a pipe is not kept waiting. */
void descriptors_leave_standard(void);

/* Closes all but the standard ones and this one. */
void descriptors_keep_only(int fd);

#endif
