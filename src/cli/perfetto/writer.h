/* Writes a trace for ui.perfetto.dev: tracks, and what happens on them (perfetto.proto). Packets go
 * to the file whole and in bounded memory, so that it is a trace whenever it is cut. Knows nothing
 * of jobs or GPUs. Not thread-safe.
 *
 * What cannot be written is remembered: perfetto_flush() reports it, and nothing is written any
 * more. */
#ifndef CEDE_CLI_PERFETTO_WRITER_H
#define CEDE_CLI_PERFETTO_WRITER_H

#include <stddef.h>
#include <stdint.h>

#include "lib/util.h"

struct perfetto;

/* What the file had is lost (lib/out_file.h). */
int perfetto_open(const char *path, struct perfetto **out, struct error *err);
/* To the file, whole packets: if that fails, it ends where it ended after the last flush. 0, or
 * -errno again and again. */
int perfetto_flush(struct perfetto *p, struct error *err);
void perfetto_close(struct perfetto *p); /* without flushing; NULL: nothing */

/* uuid: any number but 0, of which there is one track; parent 0: none. unit NULL: for slices and
 * instants; else of a counter: "bytes", or any other. */
void perfetto_track(struct perfetto *p, uint64_t uuid, uint64_t parent, const char *name,
                    const char *unit);

/* A value that goes with an event: text, or if that is NULL a number. */
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
