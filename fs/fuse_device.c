/* SPDX-License-Identifier: Apache-2.0 */
/* The three things that mounting needs: /dev/fuse, the right to mount, and leave for allow_other.
 */
#include "fs/fuse_device.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/log.h"

static const char device_path[] = "/dev/fuse";
static const char rules_path[] = "/etc/fuse.conf";
static const char helper_name[] = "fusermount3";

bool process_has_capability(int capability) {
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {0};
    if (syscall(SYS_capget, &header, data) != 0)
        return false;
    return data[CAP_TO_INDEX(capability)].effective & CAP_TO_MASK(capability);
}

static const char *why_no_device(int error) {
    switch (error) {
    case ENOENT:
        return "the device is missing: load the module (modprobe fuse), or give it to the "
               "container (--device /dev/fuse)";
    case ENODEV:
    case ENXIO:
        return "the kernel has no FUSE: load the module (modprobe fuse)";
    case EPERM:
        return "the device cgroup forbids it: start the container with --device /dev/fuse";
    case EACCES:
        return "its permissions forbid it: run as root, or chmod 0666 /dev/fuse";
    default:
        return strerror(error);
    }
}

static int check_device(void) {
    AUTO_CLOSE int fd = open(device_path, O_RDWR | O_CLOEXEC);
    if (fd >= 0)
        return 0;
    int error = errno;
    log_error("opening %s: %s", device_path, why_no_device(error));
    return -error;
}

/* The setuid program that mounts for users, anywhere on the path. */
static bool has_helper(void) {
    const char *path = getenv("PATH");
    AUTO_FREE char *directories = strdup(path ? path : "/usr/bin:/bin");
    char *rest = directories, *directory, program[4096];
    while (rest && (directory = strsep(&rest, ":"))) {
        snprintf(program, sizeof program, "%s/%s", directory, helper_name);
        if (access(program, X_OK) == 0)
            return true;
    }
    return false;
}

static int check_right_to_mount(void) {
    if (process_has_capability(CAP_SYS_ADMIN) || (geteuid() != 0 && has_helper()))
        return 0;
    log_error("mounting: this process lacks CAP_SYS_ADMIN%s",
              geteuid() == 0
                  ? ": give it to the container (--cap-add SYS_ADMIN)"
                  : " and finds no fusermount3 (package fuse3): run as root or install it");
    return -EPERM;
}

/* A line that says user_allow_other and nothing else. */
static bool allows_other(FILE *rules) {
    char line[256], word[32];
    int used;
    while (fgets(line, sizeof line, rules)) {
        used = 0;
        if (sscanf(line, " %31s %n", word, &used) == 1 && line[used] == '\0' &&
            strcmp(word, "user_allow_other") == 0)
            return true;
    }
    return false;
}

static int check_allow_other(void) {
    if (process_has_capability(CAP_SYS_ADMIN))
        return 0;
    AUTO_FCLOSE FILE *rules = fopen(rules_path, "re");
    if (rules && allows_other(rules))
        return 0;
    log_error("option allow_other: users may not give it here; allowed: as root, or with a line "
              "user_allow_other in %s",
              rules_path);
    return -EPERM;
}

int fuse_device_check(bool allow_other) {
    int error = check_device();
    if (!error)
        error = check_right_to_mount();
    if (!error && allow_other)
        error = check_allow_other();
    return error;
}
