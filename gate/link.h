/* The process's connection to the daemon: a socket, the two pages of base/gate_proto.h, and a way
 * to wake the thread that looks after them (gate.c). Knows no devices, work or locks: functions
 * that end in _locked are called by one thread at a time, with the gate's lock.
 */
#ifndef CEDE_GATE_LINK_H
#define CEDE_GATE_LINK_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/gate_proto.h"
#include "base/own_fd.h"

#define LINK_CONNECT_MS 100

/* Where demand and busy time are reported; memory of this process while there is no daemon. */
extern struct gate_slot *link_slot;

/* Reserves the control page's address, once. False: out of memory. */
bool link_reserve(void);

/* What a daemon has answered: a socket and both pages, the caller's. */
struct link_welcome {
    struct own_fd socket, control, slot;
};
/* Asks $CEDE_GATE (set by cede run), else the system's daemon. Waits for its answer for up to
 * LINK_CONNECT_MS: without a lock. False: there is none of this version. */
bool link_ask(struct link_welcome *w);
/* Takes it over and leaves nothing behind; false: its pages cannot be mapped. */
bool link_take_locked(struct link_welcome *w);
/* Afterwards the control page says that no daemon is there. */
void link_drop_locked(void);

/* There is a connection, as far as is known. */
bool link_up_locked(void);
/* And the program has not closed it. */
bool link_intact_locked(void);
/* Without waiting. A full socket is not an error: its reader looks at the slot anyway. */
void link_send_locked(const void *message, size_t bytes);

/* What the background thread sleeps on: the connection and the waker. False: it cannot be woken. */
bool link_watch_locked(struct pollfd p[static 2]);
/* After poll(); drops a connection that has ended. */
void link_look_locked(const struct pollfd p[static 2]);
void link_wake_locked(void);

/* In a child of fork(), whatever its parent's threads were doing: nothing of the parent's is used.
 */
void link_in_child(void);

#endif
