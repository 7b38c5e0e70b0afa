/* SPDX-License-Identifier: Apache-2.0 */
/* Paths of the command line: what they resolve to, and which lies inside which. */
#include "fs/path.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char top[PATH_MAX]; /* resolved; becomes the working directory */

static void make(void) {
    const char *base = getenv("TMPDIR");
    char name[PATH_MAX - 64];
    snprintf(name, sizeof name, "%s/path-XXXXXX", base ? base : "/tmp");
    cr_assert(mkdtemp(name) && realpath(name, top));
    cr_assert(chdir(top) == 0);
    cr_assert(mkdir("a", 0700) == 0 && mkdir("a/b", 0700) == 0 && mkdir("ab", 0700) == 0);
    cr_assert(symlink("a/b", "link") == 0 && symlink("nowhere", "dangling") == 0);
}

static void clean(void) {
    cr_assert(chdir(top) == 0);
    unlink("link");
    unlink("dangling");
    rmdir("a/b");
    rmdir("a");
    rmdir("ab");
    cr_assert(chdir("/") == 0 && rmdir(top) == 0);
}

static void expect(const char *path, const char *below_top) {
    char *resolved, wanted[PATH_MAX + 64];
    int error = path_resolve(path, &resolved);
    cr_assert(error == 0, "%s: %s", path, strerror(-error));
    snprintf(wanted, sizeof wanted, "%s%s", top, below_top);
    cr_assert_str_eq(resolved, wanted);
    free(resolved);
}

TestSuite(path, .init = make, .fini = clean);

Test(path, existing_ones_lose_links_dots_and_slashes) {
    expect("a/b", "/a/b");
    expect("./a/../a//b///", "/a/b");
    expect("link", "/a/b");
    expect(".", "");
}

Test(path, the_last_component_need_not_exist) {
    expect("fresh", "/fresh");
    expect("a/fresh/", "/a/fresh");
    expect("link/fresh", "/a/b/fresh");
    char *resolved;
    cr_assert(path_resolve("/fresh-at-the-top", &resolved) == 0);
    cr_assert_str_eq(resolved, "/fresh-at-the-top");
    free(resolved);
}

Test(path, directories_on_the_way_must_exist) {
    char *resolved = NULL;
    cr_assert(path_resolve("missing/fresh", &resolved) == -ENOENT);
    cr_assert(path_resolve("missing/..", &resolved) == -ENOENT);
    cr_assert(path_resolve("dangling", &resolved) == -ENOENT);
    cr_assert(resolved == NULL);
}

static bool inside(const char *inner, const char *outer) {
    char *one, *two;
    cr_assert(path_resolve(inner, &one) == 0 && path_resolve(outer, &two) == 0);
    bool answer = path_is_inside(one, two);
    free(one);
    free(two);
    return answer;
}

Test(path, inside_is_by_whole_components) {
    cr_assert(inside("a/b", "a"));
    cr_assert(inside("a", "a"));
    cr_assert(inside("a/fresh", "a"));
    cr_assert(inside("a", "/"));
    cr_assert(inside("link/fresh", "a"));
    cr_assert(!inside("ab", "a"));
    cr_assert(!inside("a", "a/b"));
    cr_assert(!inside("/", "a"));
}
