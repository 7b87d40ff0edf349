/* See options.h. */
#include "daemon/options.h"

#include <getopt.h>
#include <stdint.h>
#include <string.h>

#include "control/config.h"
#include "device/registry.h"
#include "lib/util.h"
#include "lib/version.h"

static const char usage[] =
    "usage: ceded [options]\n"
    "Schedules the GPU programs of this machine, for cede(1).\n"
    "\n"
    "  --config FILE       configuration (default " CONFIG_FILE ", which may be missing)\n"
    "  --dir DIR           directory of the socket and the journal (default /run/cede for root)\n"
    "  --device LIST       auto, or some of nvidia, amd, soft, soft@PATH and gate, with commas\n"
    "                      between (default: as configured)\n"
    "  --socket-soft PATH  where the software GPU listens\n"
    "  --transient         end with the last job, or after 5 s without a first one\n"
    "  --foreground        do not detach; ceded never does\n"
    "  --help, --version\n";

enum {
    OPT_CONFIG = 256,
    OPT_DIR,
    OPT_DEVICE,
    OPT_SOFT,
    OPT_TRANSIENT,
    OPT_FOREGROUND,
    OPT_HELP,
    OPT_VERSION
};

#define STATUS_USAGE 2

static int parse_one(int c, struct options *o)
{
    struct error err = {""};
    switch (c) {
    case OPT_CONFIG:
        o->config = optarg;
        break;
    case OPT_DIR:
        o->dir = optarg;
        break;
    case OPT_DEVICE:
        if (device_list_check(optarg, &err) < 0) {
            fprintf(stderr, "ceded: %s\n", err.text);
            return STATUS_USAGE;
        }
        o->device = optarg;
        break;
    case OPT_SOFT:
        o->soft_socket = optarg;
        break;
    case OPT_TRANSIENT:
        o->transient = true;
        break;
    case OPT_FOREGROUND:
        break;
    case OPT_HELP:
        fputs(usage, stdout);
        return 0;
    case OPT_VERSION:
        printf("ceded %s\n", build_version());
        return 0;
    default:
        fputs("ceded: --help lists the options\n", stderr);
        return STATUS_USAGE;
    }
    return -1;
}

/* chdir("/") comes later, and SIGHUP reads the file again: paths have to be absolute. */
static bool make_absolute(const char **path, char *buf, size_t size)
{
    if (!*path || (*path)[0] == '/')
        return true;
    char cwd[3072];
    bool fits = getcwd(cwd, sizeof(cwd)) && (size_t)snprintf(buf, size, "%s/%s", cwd, *path) < size;
    if (!fits)
        fprintf(stderr, "ceded: cannot make '%s' an absolute path\n", *path);
    *path = buf;
    return fits;
}

int options_parse(int argc, char **argv, struct options *o)
{
    static const struct option longs[] = {
        {"config", required_argument, NULL, OPT_CONFIG},
        {"dir", required_argument, NULL, OPT_DIR},
        {"device", required_argument, NULL, OPT_DEVICE},
        {"socket-soft", required_argument, NULL, OPT_SOFT},
        {"transient", no_argument, NULL, OPT_TRANSIENT},
        {"foreground", no_argument, NULL, OPT_FOREGROUND},
        {"help", no_argument, NULL, OPT_HELP},
        {"version", no_argument, NULL, OPT_VERSION},
        {NULL, 0, NULL, 0},
    };
    optind = 1;
    for (int c; (c = getopt_long(argc, argv, "", longs, NULL)) != -1;) {
        int status = parse_one(c, o);
        if (status >= 0)
            return status;
    }
    if (optind < argc) {
        fprintf(stderr, "ceded: unexpected argument '%s'; --help lists the options\n",
                argv[optind]);
        return STATUS_USAGE;
    }
    bool absolute = make_absolute(&o->config, o->paths[0], sizeof(o->paths[0])) &&
                    make_absolute(&o->dir, o->paths[1], sizeof(o->paths[1])) &&
                    make_absolute(&o->soft_socket, o->paths[2], sizeof(o->paths[2]));
    return absolute ? -1 : 1;
}

void options_start_again(const struct options *o)
{
    const char *argv[12] = {"ceded"}, *with[][2] = {{"--config", o->config},
                                                    {"--dir", o->dir},
                                                    {"--device", o->device},
                                                    {"--socket-soft", o->soft_socket}};
    size_t n = 1;
    for (size_t i = 0; i < ARRAY_SIZE(with); i++) {
        if (with[i][1]) {
            argv[n++] = with[i][0];
            argv[n++] = with[i][1];
        }
    }
    execv("/proc/self/exe", (char *const *)(uintptr_t)argv);
}
