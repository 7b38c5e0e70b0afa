/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpl3fs: from the command line to a served mount and to an orderly end. The order is the point:
 * everything that can be refused is refused before anything is touched; the store is opened after
 * the fork (W8) and before the mount, so a mount that exists can answer; at the end the mount
 * leaves the tree first and the device is closed last, so everything that was acknowledged is kept
 * and everything that was received is answered.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <linux/capability.h>

#include "core/check.h"
#include "core/cleanup.h"
#include "core/log.h"
#include "core/store.h"
#include "fs/background.h"
#include "fs/crash.h"
#include "fs/descriptors.h"
#include "fs/exit_code.h"
#include "fs/fs.h"
#include "fs/fuse_device.h"
#include "fs/guardian.h"
#include "fs/loop.h"
#include "fs/mount_table.h"
#include "fs/mountpoint.h"
#include "fs/notify.h"
#include "fs/options.h"
#include "fs/path.h"
#include "fs/session.h"
#include "fs/watchdog.h"

struct daemon {
    const struct options *options;
    const char *mountpoint; /* resolved */
    struct background background;
    struct guardian guardian;
    struct notifier *notifier;
    struct fs *fs;
    struct store *store;
    struct session session;
    struct loop *loop;
    bool fs_started;
    int serving_fd; /* readable once the kernel has our answer to INIT */
    int signal_fd;  /* SIGTERM and SIGINT */
};

/* the start line */

/* The value of `key value` among the lines of the store's stats; "?" if it is not there. */
static void find_in_stats(struct store *store, const char *key, char *ret_value, size_t bytes) {
    AUTO_FREE char *text = NULL;
    size_t text_bytes, key_bytes = strlen(key);
    snprintf(ret_value, bytes, "?");
    AUTO_FCLOSE FILE *out = open_memstream(&text, &text_bytes);
    if (!out)
        return;
    store_print_stats(store, out);
    fflush(out);
    for (char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, key_bytes) == 0 && line[key_bytes] == ' ') {
            const char *value = line + key_bytes + 1;
            snprintf(ret_value, bytes, "%.*s", (int)strcspn(value, "\n"), value);
            return;
        }
    }
}

/* "1.50 GiB" */
static void format_size(uint64_t bytes, char *ret_text, size_t room) {
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    unsigned unit = 0;
    double amount = (double)bytes / 1024;
    for (; amount >= 1024 && unit < 3; unit++)
        amount /= 1024;
    snprintf(ret_text, room, "%.4g %s", amount, units[unit]);
}

static uint64_t count_blobs(struct store *store) {
    const struct config *config = store_config(store);
    uint64_t blobs = 0;
    for (unsigned rank = config->rank_first; rank <= config->rank_last; rank++) {
        struct rank_usage usage;
        rank_get_usage(store_rank(store, (uint16_t)rank), &usage);
        blobs += usage.live_slots;
    }
    return blobs;
}

static void say_serving(struct daemon *daemon) {
    const struct config *config = store_config(daemon->store);
    const struct compat *compat = fs_get_compat(daemon->fs);
    char ranks[32], size[32], key[32], engine[64];
    format_size(config->size_bytes, size, sizeof size);
    snprintf(ranks, sizeof ranks, config->rank_first == config->rank_last ? "%u" : "%u-%u",
             config->rank_first, config->rank_last);
    snprintf(key, sizeof key, "rank%u.engine", config->rank_first);
    find_in_stats(daemon->store, key, engine, sizeof engine);
    log_notice("serving %s: store %s, rank %s, size %s%s, cold start %s: %" PRIu64
               " blobs, engine %s, %u thread%s on /dev/fuse, protocol 7.%u%s",
               daemon->mountpoint, config->store_path, ranks, size,
               config->rank_first == config->rank_last ? "" : " each",
               config->cold_start == COLD_START_LOAD ? "load" : "clear", count_blobs(daemon->store),
               engine, daemon->options->threads, daemon->options->threads == 1 ? "" : "s",
               compat_kernel_minor(compat),
               compat_has_shared_mmap(compat) ? "" : ", no shared mmap");
    if (daemon->options->allow_other && !process_has_capability(CAP_SYS_PTRACE))
        log_notice("allow_other without CAP_SYS_PTRACE: a file of another user whose writer is "
                   "killed may be published half written");
}

/* signals and waiting */

/* Blocks what this program handles, in this thread and all that it will start. 0 or -errno. */
static int open_signals(int *ret_fd) {
    sigset_t end_signals, blocked;
    signal(SIGHUP, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a write beyond the limit of file size is EFBIG then */
    sigemptyset(&end_signals);
    sigaddset(&end_signals, SIGTERM);
    sigaddset(&end_signals, SIGINT);
    blocked = end_signals;
    sigaddset(&blocked, SIGUSR1); /* loop.c's: only its workers take it */
    pthread_sigmask(SIG_BLOCK, &blocked, NULL);
    int fd = signalfd(-1, &end_signals, SFD_CLOEXEC);
    if (fd < 0)
        return -errno;
    *ret_fd = fd;
    return 0;
}

/* On a worker, after the answer to INIT. */
static void on_serving(void *argument) {
    const struct daemon *daemon = argument;
    uint64_t one = 1;
    ssize_t written = write(daemon->serving_fd, &one, sizeof one);
    CHECK(written == sizeof one);
}

/* Then the session ended as somebody wished, even before it served. */
static bool was_unmounted(const struct daemon *daemon) {
    const struct mount_entry *ours = &daemon->session.mount;
    struct mount_entry found;
    int error = mount_table_find(daemon->mountpoint, &found);
    return error == -ENOENT ||
           (!error && (found.major != ours->major || found.minor != ours->minor));
}

/* Until a signal or the end of the session. */
static int serve(struct daemon *daemon) {
    struct pollfd waits[] = {
        {.fd = daemon->signal_fd, .events = POLLIN},
        {.fd = loop_ended_fd(daemon->loop), .events = POLLIN},
        {.fd = daemon->serving_fd, .events = POLLIN},
        {.fd = daemon->guardian.fd, .events = POLLIN},
    };
    bool serving = false;
    for (;;) {
        if (poll(waits, 4, -1) < 0 && errno != EINTR)
            return -errno;
        if (waits[2].revents) {
            waits[2].fd = -1;
            serving = true;
            say_serving(daemon);
            int error = background_report_serving(&daemon->background);
            if (error)
                return error;
            if (!daemon->options->foreground)
                say_serving(daemon); /* for syslog, too */
        }
        if (waits[3].revents) {
            waits[3].fd = -1;
            guardian_bury(&daemon->guardian);
        }
        if (waits[0].revents || waits[1].revents)
            return serving || was_unmounted(daemon) ? 0 : -ENOTCONN;
    }
}

/* start and end */

static int code_of_store_error(int error) {
    return error == -EBUSY ? EXIT_CODE_RANK_IN_USE : EXIT_CODE_STORE;
}

static void on_progress(void *argument) {
    (void)argument;
    watchdog_note_progress();
}

static int open_store(struct daemon *daemon) {
    const struct options *options = daemon->options;
    struct fs_options fs_options = {
        .uid = options->uid,
        .gid = options->gid,
        .uid_given = options->uid_given,
        .gid_given = options->gid_given,
        .umask_bits = options->umask,
        .allow_other = options->allow_other,
        .df_reclaimable = options->df_reclaimable,
        .threads = options->threads,
    };
    int error = notifier_create(&daemon->notifier);
    if (!error)
        error = fs_create(&fs_options, &daemon->fs);
    if (error) {
        log_error("starting: %s", strerror(-error));
        return EXIT_CODE_MOUNT;
    }
    struct store_events events = fs_events(daemon->fs);
    events.progressed = on_progress;
    error = store_open(&options->config, &events, &daemon->store);
    if (error)
        return code_of_store_error(error);
    fs_attach(daemon->fs, daemon->store, daemon->notifier);
    return EXIT_CODE_GOOD;
}

static int start_threads(struct daemon *daemon) {
    struct fuse_session *fuse = daemon->session.fuse;
    int error = notifier_start(daemon->notifier, fuse, fs_get_compat(daemon->fs));
    if (!error)
        error = fs_start(daemon->fs);
    daemon->fs_started = !error;
    if (!error)
        error =
            loop_start(fuse, store_buffers(daemon->store), daemon->options->threads, &daemon->loop);
    return error;
}

static int mount_and_serve(struct daemon *daemon) {
    struct compat *compat = fs_get_compat(daemon->fs);
    compat->serving = on_serving;
    compat->serving_argument = daemon;
    if (session_mount(daemon->options, daemon->mountpoint, store_config(daemon->store)->store_path,
                      daemon->fs, &daemon->session) < 0)
        return EXIT_CODE_MOUNT;
    const struct mount_entry *mount = &daemon->session.mount;
    if (mount->type[0] != '\0') {
        guardian_watch(&daemon->guardian, mount);
        store_note_serving(daemon->store, mount->major, mount->minor);
    }
    int error = start_threads(daemon);
    if (!error)
        error = serve(daemon);
    if (error)
        log_error("mountpoint %s: serving: %s", daemon->mountpoint, strerror(-error));
    return error ? EXIT_CODE_MOUNT : EXIT_CODE_GOOD;
}

/*
 * From any state that start reached. Who mounts the rank next is told first: from the unmount on it
 * waits for us. The notifier may be inside a notification that waits for a
 * client that waits for us, so it is stopped while the workers still answer. The device is closed
 * after the store: until then waiting requests are answered.
 */
static void stop(struct daemon *daemon) {
    watchdog_start(&daemon->guardian, daemon->mountpoint);
    if (daemon->store)
        store_note_closing(daemon->store);
    session_detach(&daemon->session);
    notifier_stop(daemon->notifier);
    loop_stop(daemon->loop);
    if (daemon->fs_started)
        fs_stop(daemon->fs);
    store_close(daemon->store);
    watchdog_stop();
    session_close(&daemon->session);
    guardian_stop(&daemon->guardian);
    fs_destroy(daemon->fs);
    notifier_destroy(daemon->notifier);
}

static int run(const struct options *options, const char *mountpoint, char **argv) {
    struct daemon daemon = {.options = options, .mountpoint = mountpoint, .guardian = {.fd = -1}};
    AUTO_CLOSE int signal_fd = -1;
    AUTO_CLOSE int serving_fd = -1;
    int error = background_start(options->foreground, &daemon.background);
    if (!error) {
        guardian_start(mountpoint, argv, &daemon.guardian);
        crash_install(&daemon.guardian);
        error = open_signals(&signal_fd);
    }
    if (!error)
        error = (serving_fd = eventfd(0, EFD_CLOEXEC)) < 0 ? -errno : 0;
    if (error) {
        log_error("starting: %s", strerror(-error));
        guardian_stop(&daemon.guardian);
        return EXIT_CODE_MOUNT;
    }
    daemon.signal_fd = signal_fd;
    daemon.serving_fd = serving_fd;
    int code = open_store(&daemon);
    if (code == EXIT_CODE_GOOD)
        code = mount_and_serve(&daemon);
    stop(&daemon);
    if (code == EXIT_CODE_GOOD)
        log_notice("%s: unmounted; everything is committed", mountpoint);
    return code;
}

/* before anything is touched */

static int resolve_store_path(struct options *options) {
    char *resolved;
    int error = path_resolve(options->config.store_path, &resolved);
    if (error) {
        log_error("store %s: %s", options->config.store_path,
                  error == -ENOENT ? "the directory to make it in does not exist"
                                   : strerror(-error));
        return error;
    }
    free(options->config.store_path);
    options->config.store_path = resolved;
    return 0;
}

/* A cache in a cache costs twice, and one whose mounts go round in a circle waits for itself. */
static int check_store_ground(const char *store_path) {
    struct mount_entry ground;
    struct stat status;
    AUTO_FREE char *parent = strdup(store_path);
    if (!parent)
        return -ENOMEM;
    *strrchr(parent, '/') = '\0';
    if (stat(store_path, &status) < 0 && stat(*parent ? parent : "/", &status) < 0) {
        int error = -errno;
        log_error("store %s: %s", store_path, strerror(-error));
        return error;
    }
    if (mount_table_find_device(status.st_dev, &ground) < 0 || strcmp(ground.type, MOUNT_TYPE) != 0)
        return 0;
    log_error("store %s: it lies on a mount of cpl3 (of store %s); use a disk's file system",
              store_path, ground.source);
    return -ELOOP;
}

static int check_and_run(struct options *options, char **argv) {
    struct mountpoint mountpoint;
    if (resolve_store_path(options) < 0 || check_store_ground(options->config.store_path) < 0)
        return EXIT_CODE_STORE;
    const char *store_path = options->config.store_path;
    if (fuse_device_check(options->allow_other) < 0 ||
        mountpoint_check(options->mountpoint, store_path, &mountpoint) < 0)
        return EXIT_CODE_MOUNT;
    int error = store_preflight(&options->config);
    int code = error ? code_of_store_error(error) : EXIT_CODE_GOOD;
    if (code == EXIT_CODE_GOOD && mountpoint_clear(&mountpoint, store_path) < 0)
        code = EXIT_CODE_MOUNT;
    if (code == EXIT_CODE_GOOD)
        code = run(options, mountpoint.path, argv);
    mountpoint_free(&mountpoint);
    return code;
}

/* libfuse's own messages, with the newline that it adds. */
static void log_from_libfuse(enum fuse_log_level level, const char *format, va_list arguments) {
    char line[512];
    vsnprintf(line, sizeof line, format, arguments);
    line[strcspn(line, "\n")] = '\0';
    if (level <= FUSE_LOG_WARNING)
        log_error("libfuse: %s", line);
    else
        log_debug("libfuse: %s", line);
}

int main(int argc, char **argv) {
    struct options options;
    struct sysinfo machine = {0};
    char message[OPTIONS_MESSAGE_BYTES];
    umask(0077); /* the store is private, whatever the caller's umask */
    descriptors_ensure_standard();
    descriptors_raise_limit();
    sysinfo(&machine);
    if (options_parse(argc, argv, getenv(COLD_START_VARIABLE),
                      (uint64_t)machine.totalram * machine.mem_unit, &options, message) < 0) {
        log_error("%s", message);
        return EXIT_CODE_OPTIONS;
    }
    if (options.verbose)
        log_set_level(LOG_LEVEL_DEBUG);
    fuse_set_log_func(log_from_libfuse);
    int code = EXIT_CODE_GOOD;
    if (options.action == OPTIONS_HELP)
        options_print_help(stdout);
    else if (options.action == OPTIONS_VERSION_WANTED)
        options_print_version(stdout);
    else
        code = check_and_run(&options, argv);
    options_free(&options);
    return code;
}
