/* The client side of the control socket: one request, one reply. Starts no daemon and interprets
 * nothing in messages beyond ok, error and the pages of OP_PS. */
#ifndef CEDE_API_CLIENT_H
#define CEDE_API_CLIENT_H

#include <jansson.h>
#include <sys/types.h>

#include "api/proto.h"
#include "base/trace_proto.h"
#include "base/util.h"

#define CLIENT_TIMEOUT_MS 5000 /* for connecting, sending and the reply, each */

struct client {
    int fd; /* close-on-exec; < 0: closed */
    pid_t daemon_pid;
    uid_t daemon_uid;
    char socket[108];  /* path of the daemon's socket */
    uint64_t until_ns; /* end of all waiting together; 0: only each wait is limited */
};

/* Connects to the first socket of cede_socket_at() on which a daemon answers. A daemon that is
 * neither root's nor the caller's is not trusted (-EPERM), because its answers could be false and
 * it would receive the caller's requests. -ENOENT: no daemon is running. */
int client_open(struct client *c, struct error *err);
/* The same; connecting and all calls together end at until_ns (monotonic_ns()). */
int client_open_until(struct client *c, uint64_t until_ns, struct error *err);
/* Connects to that socket; given: by $CEDE_DIR. -ENOENT, -ENAMETOOLONG, -EPERM, -ETIMEDOUT. */
int client_connect(struct client *c, const char *path, bool given, uint64_t until_ns,
                   struct error *err);
void client_close(struct client *c);
/* `_cleanup_client_ struct client c = {.fd = -1};` is closed at the end of the scope. */
#define _cleanup_client_ _cleanup_(client_close)

/* 0: *reply (the caller's reference) is the daemon's ok. A refusal is returned as the daemon's
 * -errno with its text, a broken or late reply as -EPROTO, -EMSGSIZE or -ETIMEDOUT. Then the
 * connection is unusable, and the daemon will not carry out the request later. -EPIPE: the daemon
 * ended without a reply. Several calls may follow each other. */
int client_call(struct client *c, const struct request *r, json_t **reply, struct error *err);

/* client_call() and client_ps() by a connection for this alone. */
int client_ask(const struct request *r, json_t **reply, struct error *err);
int client_ask_ps(bool brief, json_t **out, struct error *err);

/* The two halves of client_call(), for a caller that receives when the socket is readable. */
int client_send(struct client *c, const struct request *r, struct error *err);
int client_receive(struct client *c, json_t **reply, struct error *err);

/* *job: the job of that number, the caller's reference. -ESRCH: it has ended; else as above. */
int client_job(struct client *c, json_int_t number, json_t **job, struct error *err);

/* *out: jobs and devices in one object, as `cede ps --json` prints it; the caller's reference. */
int client_ps(struct client *c, bool brief, json_t **out, struct error *err);
/* The same with sums of jobs (api/job_sums.h) in place of jobs. */
int client_sums(struct client *c, json_t **out, struct error *err);

/* Adds a reply to r (OP_PS) to *all (NULL: it is the first). True: *r is to be sent again for the
 * next page; false: *all is complete, as from client_ps(). */
bool client_ps_page(json_t **all, json_t *page, struct request *r);

/* Makes the connection a tracer's (api/trace.h). 0 or -errno. */
int client_trace(struct client *c, struct error *err);
/* Takes one message of events that has come; returns their number. -EAGAIN: none has; -EPIPE: the
 * connection has ended; -EPROTO. */
int client_events(const struct client *c, struct trace_event v[static TRACE_BATCH],
                  struct error *err);

#endif
