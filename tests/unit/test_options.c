/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line: what is accepted, what is refused and how the refusal reads (it names the
 * option, the value found and what is allowed), and the defaults that depend on other options.
 */
#include "fs/options.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/generic_option.h"
#include "fs/option_value.h"

#define GIB (1ull << 30)
#define MIB (1ull << 20)

static const uint64_t ram_bytes = 32 * GIB; /* memory defaults to 2 GiB then */
static struct options options;
static char message[OPTIONS_MESSAGE_BYTES];

/* Parses up to six arguments. */
static int parse_arguments(const char *environment, const char *const arguments[6]) {
    char *argv[9] = {"mount.cpl3"};
    char *copies[6] = {0};
    int argc = 1;
    for (; argc <= 6 && arguments[argc - 1]; argc++)
        argv[argc] = copies[argc - 1] = strdup(arguments[argc - 1]);
    message[0] = '\0';
    int error = options_parse(argc, argv, environment, ram_bytes, &options, message);
    for (int i = 0; i < 6; i++)
        free(copies[i]);
    return error;
}

static int parse_list_with(const char *environment, const char *list) {
    return parse_arguments(environment, (const char *[6]){"/store", "/mnt", "-o", list});
}

static void accept(const char *list) {
    int error = parse_list_with(NULL, list);
    cr_assert(error == 0, "-o %s: %s", list, message);
}

static void refuse_saying(const char *list, const char *words) {
    int error = parse_list_with(NULL, list);
    cr_assert(error == -EINVAL, "-o %s: accepted", list);
    cr_assert(strstr(message, words), "-o %s: \"%s\" does not say \"%s\"", list, message, words);
    cr_assert(!strchr(message, '\n'));
}

static void clean(void) {
    options_free(&options);
}

TestSuite(options, .fini = clean);

Test(options, without_any_option_the_defaults_hold) {
    accept("");
    const struct config *config = &options.config;
    cr_assert_str_eq(config->store_path, "/store");
    cr_assert_str_eq(options.mountpoint, "/mnt");
    cr_assert_str_eq(options.mount_flags, "");
    cr_assert(config->rank_first == 0 && config->rank_last == 0);
    cr_assert(config->size_bytes == 0 && config->kind_count == 0);
    cr_assert(config->cold_start == COLD_START_CLEAR);
    cr_assert(config->gc_start == 0.90 && config->gc_stop == 0.85);
    cr_assert(!config->sync && !config->read_only && config->engine == SLAB_ENGINE_AUTO);
    cr_assert(config->memory_bytes == 2 * GIB && !config->memory_given);
    cr_assert(config->max_file_bytes == 256 * MIB && !config->max_file_given);
    cr_assert(options.umask == 0077 && options.uid == geteuid() && options.gid == getegid());
    cr_assert(!options.uid_given && !options.gid_given);
    cr_assert(options.threads >= 4 && options.threads <= 16);
    cr_assert(!options.foreground && !options.verbose && !options.allow_other);
}

Test(options, every_option_reaches_its_field) {
    accept("rank=2-5,size=10G,cold_start=load,gc_start=.8,gc_stop=0.75,sync,memory=1G,threads=7,"
           "engine=posix,max_file=64M,uid=12,gid=34,umask=0022,allow_other,ro");
    const struct config *config = &options.config;
    cr_assert(config->rank_first == 2 && config->rank_last == 5);
    cr_assert(config->size_bytes == 10 * GIB && config->cold_start == COLD_START_LOAD);
    cr_assert(config->gc_start == 0.8 && config->gc_stop == 0.75);
    cr_assert(config->sync && config->read_only && config->engine == SLAB_ENGINE_POSIX);
    cr_assert(config->memory_bytes == GIB && config->memory_given);
    cr_assert(config->max_file_bytes == 64 * MIB && config->max_file_given);
    cr_assert(options.threads == 7 && options.uid == 12 && options.gid == 34);
    cr_assert(options.uid_given && options.gid_given);
    cr_assert(options.umask == 0022 && options.allow_other);
}

Test(options, flags_and_repeated_lists_may_stand_anywhere) {
    const char *const arguments[6] = {"-f", "/store", "-osize=1G", "-v", "/mnt", "-orank=3"};
    cr_assert(parse_arguments(NULL, arguments) == 0, "%s", message);
    cr_assert(options.foreground && options.verbose);
    cr_assert(options.config.size_bytes == GIB && options.config.rank_first == 3);
}

Test(options, paths_are_needed_exactly_once_each) {
    cr_assert(parse_arguments(NULL, (const char *[6]){NULL}) == -EINVAL);
    cr_assert(strstr(message, "STORE MOUNTPOINT"));
    cr_assert(parse_arguments(NULL, (const char *[6]){"/store"}) == -EINVAL);
    cr_assert(strstr(message, "mountpoint is missing"));
    cr_assert(parse_arguments(NULL, (const char *[6]){"/store", "/mnt", "/third"}) == -EINVAL);
    cr_assert(strstr(message, "/third"));
    cr_assert(parse_arguments(NULL, (const char *[6]){"/store", ""}) == -EINVAL);
    cr_assert(parse_arguments(NULL, (const char *[6]){"/store", "/mnt", "-x"}) == -EINVAL);
    cr_assert(strstr(message, "-x"));
    cr_assert(parse_arguments(NULL, (const char *[6]){"/store", "/mnt", "--fast"}) == -EINVAL);
    cr_assert(strstr(message, "--fast"));
    cr_assert(parse_arguments(NULL, (const char *[6]){"/store", "/mnt", "-o"}) == -EINVAL);
}

Test(options, help_and_version_need_no_paths) {
    cr_assert(parse_arguments(NULL, (const char *[6]){"--help"}) == 0);
    cr_assert(options.action == OPTIONS_HELP);
    options_free(&options);
    cr_assert(parse_arguments(NULL, (const char *[6]){"--version", "-x"}) == 0);
    cr_assert(options.action == OPTIONS_VERSION_WANTED);
}

Test(options, sizes_are_powers_of_1024) {
    static const struct {
        const char *list;
        uint64_t bytes;
    } cases[] = {
        {"size=1048576", MIB}, {"size=1024K", MIB},        {"size=3M", 3 * MIB},
        {"size=2g", 2 * GIB},  {"size=1T", 1024 * GIB},    {"size=1G,size=2G", 2 * GIB},
        {",size=1M,,", MIB},   {"size=1024T", 1ull << 50},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        accept(cases[i].list);
        cr_assert(options.config.size_bytes == cases[i].bytes, "%s", cases[i].list);
        options_free(&options);
    }
}

Test(options, impossible_values_are_refused_with_the_value_and_what_is_allowed) {
    static const char *const cases[][3] = {
        {"size=10Q", "size=10Q: not a size", "1M to 1024T"},
        {"size=-1", "size=-1", "1M to 1024T"},
        {"size=1.5G", "size=1.5G", "1M to 1024T"},
        {"size=+5G", "size=+5G", "1M to 1024T"},
        {"size= 5G", "size= 5G", "1M to 1024T"},
        {"size=0x10", "size=0x10", "1M to 1024T"},
        {"size=5GB", "size=5GB", "1M to 1024T"},
        {"size=", "size=: not a size", "1M to 1024T"},
        {"size", "size: the value is missing", "1M to 1024T"},
        {"size=1K", "size=1K: out of range", "1M to 1024T"},
        {"size=99999999999999999999T", "size=99999999999999999999T", "1M to 1024T"},
        {"size=18014398509481984K", "size=18014398509481984K", "1M to 1024T"},
        {"rank=5-2", "rank=5-2", "0 <= A <= B <= 1023"},
        {"rank=1024", "rank=1024", "0 <= A <= B <= 1023"},
        {"rank=0-1024", "rank=0-1024", "0 <= A <= B <= 1023"},
        {"rank=a", "rank=a", "0 <= A <= B <= 1023"},
        {"rank=1-", "rank=1-", "0 <= A <= B <= 1023"},
        {"cold_start=warm", "cold_start=warm: unknown mode", "clear, load"},
        {"cold_start=", "cold_start=: unknown mode", "clear, load"},
        {"gc_start=1", "gc_start=1", "above 0 and below 1"},
        {"gc_start=0.0", "gc_start=0.0", "above 0 and below 1"},
        {"gc_start=nan", "gc_start=nan", "above 0 and below 1"},
        {"gc_start=0.9x", "gc_start=0.9x", "above 0 and below 1"},
        {"gc_stop=.", "gc_stop=.", "above 0 and below gc_start"},
        {"threads=0", "threads=0: out of range", "1 to 64"},
        {"threads=65", "threads=65: out of range", "1 to 64"},
        {"commit=0", "commit=0: out of range", "0.001 to 300"},
        {"commit=301", "commit=301: out of range", "0.001 to 300"},
        {"commit=100ms", "commit=100ms: not a time", "0.001 to 300"},
        {"commit=1.", "commit=1.: not a time", "0.001 to 300"},
        {"commit=0.0000000001", "not a time", "0.001 to 300"},
        {"commit=99999999999999999999", "not a time", "0.001 to 300"},
        {"df=free", "df=free: unknown way", "used, reclaimable"},
        {"tag=", "tag=: empty", "1 to 255 bytes"},
        {"tag=a\nb", "control character", "1 to 255 bytes"},
        {"engine=fast", "engine=fast", "auto, uring, posix"},
        {"umask=8", "umask=8", "0000 to 0777"},
        {"umask=1000", "umask=1000", "0000 to 0777"},
        {"uid=4294967295", "uid=4294967295: out of range", "4294967294"},
        {"gid=root", "gid=root: not a number", "4294967294"},
        {"sync=yes", "sync=yes: it takes no value", "allowed: sync"},
        {"max_file=1K", "max_file=1K: out of range", "4K to 2G"},
        {"memory=1M", "memory=1M: out of range", "2M to 16T"},
        {"memory=33G", "34359738368", "RAM"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        refuse_saying(cases[i][0], cases[i][1]);
        cr_assert(strstr(message, cases[i][2]), "%s: %s", cases[i][0], message);
    }
}

Test(options, unknown_names_are_refused_with_the_nearest_one) {
    refuse_saying("siz=1G", "unknown option siz: did you mean size?");
    refuse_saying("coldstart=load", "did you mean cold_start?");
    refuse_saying("barrier=1", "unknown option barrier; allowed: rank, size");
    refuse_saying("tags=x", "did you mean tag?");
    refuse_saying("remount", "unknown option remount");
    refuse_saying("size=1G,bogus,ro", "unknown option bogus");
}

Test(options, options_of_mount_and_fstab_are_accepted) {
    accept("rw,nosuid,nodev,noexec,relatime,user=alice,_netdev,nofail,noauto,defaults,"
           "x-systemd.automount,comment=a,size=1G");
    cr_assert_str_eq(options.mount_flags, "nosuid,nodev,noexec");
    cr_assert(options.config.size_bytes == GIB && !options.config.read_only);
    cr_assert(generic_option_find("nodevice") == GENERIC_OPTION_UNKNOWN);
    cr_assert(generic_option_find("sync") == GENERIC_OPTION_UNKNOWN);
}

Test(options, commit_is_a_time_in_seconds) {
    accept("rank=0");
    cr_assert_eq(options.config.commit_ns, 100000000);
    options_free(&options);
    accept("commit=0.25");
    cr_assert_eq(options.config.commit_ns, 250000000);
    options_free(&options);
    accept("commit=300");
    cr_assert_eq(options.config.commit_ns, UINT64_C(300000000000));
    options_free(&options);
    accept("commit=0.001000001");
    cr_assert_eq(options.config.commit_ns, 1000001);
}

Test(options, a_tag_has_up_to_255_bytes) {
    char list[300] = "tag=";
    accept("tag=llama-3.1 8B/bf16=v2");
    cr_assert_str_eq(options.config.tag, "llama-3.1 8B/bf16=v2");
    options_free(&options);
    memset(list + 4, 'x', 255);
    accept(list);
    cr_assert_eq(strlen(options.config.tag), 255);
    options_free(&options);
    list[4 + 255] = 'x';
    refuse_saying(list, "too long");
}

Test(options, df_says_what_counts_as_free) {
    accept("df=used");
    cr_assert_not(options.df_reclaimable);
    options_free(&options);
    accept("df=reclaimable");
    cr_assert(options.df_reclaimable);
}

Test(options, payload_kinds_are_declared_by_slots_or_by_share) {
    accept("payload=kv:4198400:1000,payload=indexer:256K:25%,size=100G");
    const struct config_kind *kinds = options.config.kinds;
    cr_assert(options.config.kind_count == 2);
    cr_assert_str_eq(kinds[0].name, "kv");
    cr_assert(kinds[0].payload_bytes == 4198400 && kinds[0].slots == 1000);
    cr_assert(kinds[0].share_percent == 0);
    cr_assert_str_eq(kinds[1].name, "indexer");
    cr_assert(kinds[1].payload_bytes == 262144 && kinds[1].slots == 0);
    cr_assert(kinds[1].share_percent == 25);
}

Test(options, impossible_payload_kinds_are_refused_with_the_reason) {
    refuse_saying("payload=kv", "payload=kv: not NAME:BYTES:SLOTS");
    refuse_saying("payload=kv:4096", "payload=kv:4096: not NAME:BYTES:SLOTS");
    refuse_saying("payload=any:4096:1", "the name is not possible");
    refuse_saying("payload=KV:4096:1", "the name is not possible");
    refuse_saying("payload=:4096:1", "the name is not possible");
    refuse_saying("payload=k23456789012345678901234567890x2:1:1", "the name is not possible");
    refuse_saying("payload=kv:0:1", "BYTES is out of range");
    refuse_saying("payload=kv:3G:1", "BYTES is out of range");
    refuse_saying("payload=kv:x:1", "BYTES is not a size");
    refuse_saying("payload=kv:4096:0", "the number of slots is out of range");
    refuse_saying("payload=kv:4096:101%", "the share is out of range");
    refuse_saying("payload=kv:4096:%", "neither a number of slots nor a share");
    refuse_saying("payload=kv:4096:1:2", "neither a number of slots nor a share");
    refuse_saying("payload=kv:4096:", "missing");
    refuse_saying("payload=kv:1:1,payload=kv:2:1", "already declared");
    refuse_saying("payload=a:1:60%,payload=b:1:41%", "add up to 101%");
    refuse_saying("memory=2M,payload=a:2M:4", "payload=a: 2097152 bytes need memory");
}

Test(options, the_sixteenth_payload_kind_is_refused) {
    char list[512] = "";
    for (int i = 0; i < 15; i++)
        sprintf(list + strlen(list), "payload=k%d:4096:1,", i);
    accept(list);
    cr_assert(options.config.kind_count == 15);
    options_free(&options);
    strcat(list, "payload=last:4096:1");
    refuse_saying(list, "more than 15 payload kinds");
}

Test(options, the_environment_decides_cold_start_unless_the_option_is_given) {
    cr_assert(parse_list_with("load", "rw") == 0);
    cr_assert(options.config.cold_start == COLD_START_LOAD);
    options_free(&options);
    cr_assert(parse_list_with("load", "cold_start=clear") == 0);
    cr_assert(options.config.cold_start == COLD_START_CLEAR);
    options_free(&options);
    cr_assert(parse_list_with("warm", "cold_start=clear") == 0);
    options_free(&options);
    cr_assert(parse_list_with("warm", "rw") == -EINVAL);
    cr_assert(strstr(message, "SGLANG_CP_L3_COLD_START=warm: unknown mode; allowed: clear, load"));
    cr_assert(parse_list_with("", "rw") == -EINVAL);
}

Test(options, read_only_implies_load_and_excludes_an_explicit_clear) {
    accept("ro");
    cr_assert(options.config.cold_start == COLD_START_LOAD);
    options_free(&options);
    cr_assert(parse_list_with("clear", "ro") == 0);
    cr_assert(options.config.cold_start == COLD_START_LOAD);
    options_free(&options);
    accept("ro,rw");
    cr_assert(!options.config.read_only && options.config.cold_start == COLD_START_CLEAR);
    options_free(&options);
    refuse_saying("ro,cold_start=clear", "allowed: cold_start=load");
}

Test(options, a_list_stays_as_it_was_given) {
    char list[] = "rank=3,size=64M,ro";
    char *argv[] = {"mount.cpl3", "/store", "/mnt", "-o", list, NULL};
    cr_assert(options_parse(5, argv, NULL, ram_bytes, &options, message) == 0);
    cr_assert_str_eq(list, "rank=3,size=64M,ro");
}

Test(options, memory_defaults_to_a_sixteenth_of_ram_within_bounds) {
    char *argv[] = {"mount.cpl3", "/store", "/mnt", NULL};
    static const uint64_t cases[][2] = {{GIB, 512 * MIB}, {16 * GIB, GIB}, {1024 * GIB, 4 * GIB}};
    for (size_t i = 0; i < 3; i++) {
        cr_assert(options_parse(3, argv, NULL, cases[i][0], &options, message) == 0);
        cr_assert(options.config.memory_bytes == cases[i][1]);
        options_free(&options);
    }
}

Test(options, max_file_follows_a_small_size_or_memory) {
    accept("size=100M");
    cr_assert(options.config.max_file_bytes == 25 * MIB);
    options_free(&options);
    accept("size=100G,memory=64M");
    cr_assert(options.config.max_file_bytes == 32 * MIB);
    options_free(&options);
    accept("size=1234567");
    cr_assert(options.config.max_file_bytes == 1234567 / 4 / 4096 * 4096);
}

Test(options, max_file_needs_memory_of_twice_its_size_and_must_fit_the_size) {
    accept("max_file=32M,memory=64M");
    options_free(&options);
    refuse_saying("max_file=33M,memory=64M", "option max_file: 34603008 bytes need memory");
    refuse_saying("max_file=2G", "memory is 2147483648");
    refuse_saying("max_file=64M,size=32M", "more than size");
}

Test(options, gc_stops_below_where_it_starts) {
    accept("gc_start=0.5,gc_stop=0.4");
    options_free(&options);
    refuse_saying("gc_start=0.5", "gc_stop: 0.85 is not below gc_start, which is 0.5");
    refuse_saying("gc_start=0.5,gc_stop=0.5", "gc_stop < gc_start");
}

Test(options, shares_are_the_nearest_doubles_of_their_texts) {
    double share = 0;
    cr_assert(option_value_share("0.85", &share) && share == 0.85);
    cr_assert(option_value_share("0.7", &share) && share == 0.7);
    cr_assert(option_value_share(".123456789", &share) && share == 0.123456789);
    cr_assert(!option_value_share("0.1234567890123456", &share));
    cr_assert(!option_value_share("00.5", &share));
    cr_assert(share == 0.123456789);
}
