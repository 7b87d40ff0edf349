/* Writes a trace for ui.perfetto.dev: tracks, and the events on them (perfetto.proto). Packets are
 * written whole and in bounded memory, so that the file is a trace at any time. Knows nothing of
 * jobs or GPUs. Not thread-safe.
 *
 * After a failure to write nothing more is written; perfetto_flush() reports the failure. */
#ifndef CEDE_CLI_PERFETTO_WRITER_H
#define CEDE_CLI_PERFETTO_WRITER_H

#include <stddef.h>
#include <stdint.h>

#include "base/util.h"

struct perfetto;

/* Opens the file, whose former contents are lost (base/out_file.h). */
int perfetto_open(const char *path, struct perfetto **out, struct error *err);
/* Writes the buffered packets. If that fails, the file is cut to its length after the last flush.
 * 0, or -errno, which every later call returns too. */
int perfetto_flush(struct perfetto *p, struct error *err);
void perfetto_close(struct perfetto *p); /* does not flush; NULL is allowed */

/* Describes a track. uuid: its number, not 0; parent 0: none. unit: NULL for a track of slices and
 * instants; else that of a counter, "bytes" or any other. */
void perfetto_track(struct perfetto *p, uint64_t uuid, uint64_t parent, const char *name,
                    const char *unit);

/* An argument of an event: text, or if that is NULL a number. */
struct perfetto_arg {
    const char *name, *text;
    uint64_t number;
};
struct perfetto_event {
    uint64_t at_ns; /* CLOCK_MONOTONIC */
    uint64_t track;
    const char *name;
    uint64_t flow; /* joins events of the same number; 0: none */
    const struct perfetto_arg *args;
    size_t nargs;
};
#define PERFETTO_ARGS_MAX 8
void perfetto_begin(struct perfetto *p, const struct perfetto_event *ev);
void perfetto_end(struct perfetto *p, uint64_t track, uint64_t at_ns);
void perfetto_instant(struct perfetto *p, const struct perfetto_event *ev);
void perfetto_value(struct perfetto *p, uint64_t track, uint64_t at_ns, double value);

#endif
