/* `cede bench`: finds and starts the Python program that reads scenarios, computes and shows
 * results (bench/report), and serves it: `cede bench cells` measures, `cede bench put` writes
 * files. */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "base/child.h"
#include "base/out_file.h"
#include "base/paths.h"
#include "base/version.h"
#include "bench/runner/cells.h"
#include "cli/cli.h"

#define PUT_MAX  ((size_t)128 << 20)
#define ARGS_MAX 256

static int start_python(int argc, char **argv)
{
    char exe[PATH_MAX] = "", script[PATH_MAX + 64], version[64];
    char python[] = "python3", plain[] = "-B", datadir[] = CEDE_DATADIR;
    ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    if (n <= 0 || !cede_find("bench/report/bench.py", "share/cede/bench/bench.py",
                             CEDE_DATADIR "/cede/bench/bench.py", script, sizeof(script)))
        return cli_error(
            "bench: is not installed: there is no bench.py in " CEDE_DATADIR
            "/cede/bench; install the package cede-bench, which `make deb` makes beside cede");
    snprintf(version, sizeof(version), "%s", build_version());
    char *const first[] = {python, plain, script, exe, version, datadir};
    char *args[ARRAY_SIZE(first) + ARGS_MAX + 1] = {NULL};
    if (argc > ARGS_MAX)
        return cli_usage("bench", "more than %d arguments", ARGS_MAX);
    memcpy(args, first, sizeof(first));
    memcpy(args + ARRAY_SIZE(first), argv + 1, ((size_t)argc - 1) * sizeof(*argv));
    if (child_become(python, (const char *const *)args) == -ENOENT)
        return cli_error("bench: python3 is not installed: it reads scenarios and shows results");
    return cli_error("bench: cannot start python3: %s", strerror(errno));
}

/* Writes standard input to a file (out_file.h). */
static int put(const char *path)
{
    struct error err = {""};
    _cleanup_free_ char *data = malloc(PUT_MAX);
    size_t n = data ? fread(data, 1, PUT_MAX, stdin) : 0;
    int r = !data || n == PUT_MAX || ferror(stdin)
                ? error_set(&err, -EIO, "cannot read what to write to %s", path)
                : out_file_put(path, 0, data, n, &err);
    if (r < 0)
        fprintf(stderr, "%s\n", err.text);
    return r < 0 ? CLI_FAILED : CLI_OK;
}

int bench_main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "cells") == 0)
        return cells_serve(argv[2], argv[3]);
    if (argc == 3 && strcmp(argv[1], "put") == 0)
        return put(argv[2]);
    return start_python(argc, argv);
}
