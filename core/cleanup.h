/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cleanup attributes: memory, descriptors and mutexes are released where their scope ends, so that
 * no function needs numbered labels. All of them accept "nothing" (NULL, -1).
 */
#ifndef CPL3_CORE_CLEANUP_H
#define CPL3_CORE_CLEANUP_H

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline void cleanup_free(void *pointer) {
    free(*(void **)pointer);
}
static inline void cleanup_close(int *fd) {
    if (*fd >= 0)
        close(*fd);
}
static inline void cleanup_fclose(FILE **file) {
    if (*file)
        fclose(*file);
}
static inline void cleanup_closedir(DIR **dir) {
    if (*dir)
        closedir(*dir);
}
static inline void cleanup_unlock(pthread_mutex_t **mutex) {
    if (*mutex)
        pthread_mutex_unlock(*mutex);
}

#define _cleanup_(function) __attribute__((cleanup(function)))
#define AUTO_FREE _cleanup_(cleanup_free)
#define AUTO_CLOSE _cleanup_(cleanup_close)
#define AUTO_FCLOSE _cleanup_(cleanup_fclose)
#define AUTO_CLOSEDIR _cleanup_(cleanup_closedir)

/* Holds the mutex until the end of the enclosing scope. */
#define CLEANUP_NAME2(line) scope_lock_##line
#define CLEANUP_NAME(line) CLEANUP_NAME2(line)
#define SCOPE_LOCK(mutex)                                                                          \
    _cleanup_(cleanup_unlock) pthread_mutex_t *CLEANUP_NAME(__LINE__) =                            \
        (pthread_mutex_lock(mutex), (mutex))

#endif
