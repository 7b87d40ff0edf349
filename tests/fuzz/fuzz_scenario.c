/* Fuzz target for scenario files: what is accepted can be expanded and keyed at every point, what
 * is refused is told. The file is one in memory; no other I/O. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench/cell.h"
#include "bench/scenario.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok)
{
    if (!ok)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    struct scenario *s = NULL;
    struct error err = {""};
    int fd = memfd_create("scenario", MFD_CLOEXEC);
    require(fd >= 0 && write_full(fd, data, size) == 0);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int r = scenario_load(path, (struct scenario_how){size & 1, size & 2}, &s, &err);
    close(fd);
    if (r < 0) {
        require(err.text[0] && !s);
        return 0;
    }
    size_t points = scenario_points(s);
    require(points >= 1 && points <= SCENARIO_POINTS && s->nroles >= 1);
    require((s->nconfigs == 0) != (s->nphases == 0));
    for (size_t p = 0; p < points; p++) {
        for (size_t c = 0; c < s->nconfigs; c++) {
            struct session x = {.s = s, .config = &s->configs[c], .point = p};
            char *key = session_key(&x, &err);
            require(key || err.text[0]);
            free(key);
        }
    }
    free(s);
    return 0;
}
