/* Fuzz target for scenario files: an accepted one can be expanded and keyed at every point, and
 * everything that follows from its results works too (shares, targets, rows, figures), whether all
 * cells are missing or all are there with made-up numbers. A refused one gets a message. The file
 * is one in memory; no process is started, and there is no other I/O. */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench/cell.h"
#include "bench/figures.h"
#include "bench/result.h"
#include "bench/scenario.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok)
{
    if (!ok)
        abort();
}

/* The same metrics for every role; 0 is among the values, as that is what divisions stumble on. */
static json_t *made_up_cell(const struct scenario *s, size_t point)
{
    json_t *roles = json_object();
    for (size_t i = 0; i < s->nroles; i++)
        json_object_set_new(roles, s->roles[i].name,
                            json_pack("{s:f, s:f, s:f, s:[[f,i]]}", "rate", (double)point, "p99_us",
                                      (double)(point + i), "cpu", 0.0, "histogram", 1.0, 1));
    return json_pack("{s:s, s:s, s:o, s:o}", "config", "c", "status", "ok", "point",
                     point_json(&s[point]), "roles", roles);
}

static void use_results(const struct scenario *s, bool filled)
{
    struct result r;
    char line[SCENARIO_TEXT];
    require(result_init(&r, s, 2, true) == 0);
    for (size_t i = 0; filled && i < r.repeats * r.slots * r.points; i++) {
        size_t point = i % r.points, slot = i / r.points % r.slots;
        json_t *cell = made_up_cell(s, point);
        result_put(&r, i / r.points / r.slots, slot, point, cell);
        json_array_append_new(r.cells, cell);
    }
    json_t *o = result_json(&r);
    require(json_is_array(json_object_get(o, "rows")));
    json_object_set(o, "cells", r.cells);
    for (const char *at = NULL; (at = scenario_line(s->figures, at, line, sizeof(line)));) {
        char *text = NULL;
        require(figure_known(line));
        require(figure_script(o, line, &text, NULL) != -EINVAL);
        free(text);
    }
    json_decref(o);
    result_free(&r);
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
            struct session x = {.s = &s[p], .config = &s[p].configs[c]};
            char *key = session_key(&x);
            require(key);
            free(key);
        }
    }
    use_results(s, false);
    use_results(s, true);
    free(s);
    return 0;
}
