/* Makes tracks of a Perfetto file from ceded's events (base/trace_proto.h): for each GPU the job
 * that had its engine, for each job its states, decisions, figures and requests. Events may come in
 * any order and are not trusted, as a user's daemon may send them. Memory is bounded. */
#ifndef CEDE_CLI_TRACE_TRACKS_H
#define CEDE_CLI_TRACE_TRACKS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/trace_proto.h"
#include "cli/perfetto/writer.h"

struct tracks;

/* jobs: the jobs to show, as in `cede ps --json`; NULL: all. p stays the caller's. Returns NULL
 * without memory. */
struct tracks *tracks_new(struct perfetto *p, const json_t *jobs);
void tracks_free(struct tracks *t);
void tracks_take(struct tracks *t, const struct trace_event *ev);
/* Ends all open slices at now_ns, or at the last event if that is later. */
void tracks_end(struct tracks *t, uint64_t now_ns);
/* The number of events lost so far; cut: ceded has cut the trace off and sends no more. */
uint64_t tracks_lost(const struct tracks *t, bool *cut);
/* ceded's last note for the user; NULL: none. */
const char *tracks_note(const struct tracks *t);

#endif
