/* See options.h. */
#include "daemon/options.h"

#include <string.h>

#include "api/rules/rule_lint.h"
#include "base/child.h"
#include "base/log.h"
#include "base/options.h"
#include "base/util.h"
#include "base/version.h"
#include "daemon/config.h"
#include "gpu/registry.h"

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
    "  --check             read the configuration, say what is wrong in it, and end\n"
    "  --foreground        do not detach; ceded never does\n"
    "  --help, --version\n";

static int read_device(void *to, const char *name, const char *text, struct error *err)
{
    *(const char **)to = text;
    return device_list_check(text, err);
}

/* Paths have to be absolute, as the daemon changes to "/" and reads its file again at SIGHUP. */
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

/* ceded --check. Returns the exit status. */
static int config_check(const char *given)
{
    struct error err = {""};
    struct config c;
    const char *file = given ? given : CONFIG_FILE;
    int r = config_read(file, given != NULL, &c, &err);
    if (r < 0) {
        fprintf(stderr, "ceded: %s\n", err.text);
        return error_may_pass(r) ? 1 : 2;
    }
    log_open("ceded", LOG_WARNING);
    unsigned idle = rules_warn(&(struct rule_list){.rules = c.rules, .n = c.nrules}, file);
    if (idle)
        printf("%s: no errors, but %u of %zu rules never match\n", file, idle, c.nrules);
    else
        printf("%s: no errors\n", file);
    config_free(&c);
    return 0;
}

int options_parse(int argc, char **argv, struct options *o)
{
    bool foreground, version = false, check = false;
    const struct option_row rows[] = {
        {"config", .text = &o->config},
        {"dir", .text = &o->dir},
        {"device", .read = read_device, .to = &o->device},
        {"socket-soft", .text = &o->soft_socket},
        {"transient", .flag = &o->transient},
        {"foreground", .flag = &foreground},
        {"check", .flag = &check},
        {"version", .flag = &version},
    };
    const struct command_line line = {.program = "ceded", .help = usage};
    int status = options_read(argc, argv, &line, rows, ARRAY_SIZE(rows));
    if (status != OPTIONS_GO_ON)
        return status;
    if (optind < argc)
        return options_wrong("ceded", "unexpected argument '%s'", argv[optind]);
    if (version) {
        printf("ceded %s\n", build_version());
        return 0;
    }
    bool absolute = make_absolute(&o->config, o->paths[0], sizeof(o->paths[0])) &&
                    make_absolute(&o->dir, o->paths[1], sizeof(o->paths[1])) &&
                    make_absolute(&o->soft_socket, o->paths[2], sizeof(o->paths[2]));
    return !absolute ? 1 : check ? config_check(o->config) : OPTIONS_GO_ON;
}

void options_start_again(const struct options *o)
{
    const char *argv[12] = {"ceded"}, *with[][2] = {{"--config", o->config},
                                                    {"--dir", o->dir},
                                                    {"--device", o->device},
                                                    {"--socket-soft", o->soft_socket}};
    size_t n = 1;
    if (o->transient)
        argv[n++] = "--transient";
    for (size_t i = 0; i < ARRAY_SIZE(with); i++) {
        if (with[i][1]) {
            argv[n++] = with[i][0];
            argv[n++] = with[i][1];
        }
    }
    (void)child_become(CHILD_SELF, argv);
}
