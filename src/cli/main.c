/* One program under several names: picks what to be from argv[0] or the first argument. */
#include <stdio.h>
#include <string.h>

#include "device/soft/server.h"
#include "load/load.h"

static const struct {
    const char *name;
    int (*main)(int argc, char **argv);
} programs[] = {
    {"cede-load", load_main},
    {"cede-softgpu", soft_server_main},
};

int main(int argc, char **argv)
{
    const char *base = strrchr(argv[0], '/');
    base = base ? base + 1 : argv[0];
    for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++) {
        if (strcmp(base, programs[i].name) == 0)
            return programs[i].main(argc, argv);
        if (argc > 1 && strcmp(argv[1], programs[i].name + 5) == 0)
            return programs[i].main(argc - 1, argv + 1);
    }
    fprintf(stderr, "cede: unknown command\n");
    return 2;
}
