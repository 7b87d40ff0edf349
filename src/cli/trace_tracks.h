/* What ceded reports (lib/trace_proto.h), as tracks of a Perfetto file: for each GPU who had its
 * engine, for each job its states, decisions, numbers and requests. Takes events in any order and
 * believes them nothing: a daemon of a user may be their sender. Its memory does not grow. */
#ifndef CEDE_CLI_TRACE_TRACKS_H
#define CEDE_CLI_TRACE_TRACKS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "cli/perfetto/writer.h"
#include "lib/trace_proto.h"

struct tracks;

/* jobs: those to show, as `cede ps --json` has them; NULL: all. p stays the caller's. NULL: no
 * memory. */
struct tracks *tracks_new(struct perfetto *p, const json_t *jobs);
void tracks_free(struct tracks *t);
void tracks_take(struct tracks *t, const struct trace_event *ev);
/* Whatever is open ends there, or where the last event was. */
void tracks_end(struct tracks *t, uint64_t now_ns);
/* So many events were lost, so far; cut: by ceded, which sends no more. */
uint64_t tracks_lost(const struct tracks *t, bool *cut);
/* What ceded has said last, for a person; NULL: nothing. */
const char *tracks_note(const struct tracks *t);

#endif
