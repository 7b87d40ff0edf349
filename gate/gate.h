/* The gate: a program's own side of being scheduled, where its device offers no control from
 * outside. It holds submissions while the daemon has closed a device to this program, and keeps
 * what is queued on an open one short. Knows no API; the libraries around it (opencl/, hip/) call
 * it for each submission. In gate, the gate is always this; devices are open or closed.
 *
 * Lives inside other people's programs: it never ends them, never prints, never touches errno,
 * signals or locale, and lets everything pass when there is no daemon, or it dies, or hangs. All
 * functions may be called by any thread. */
#ifndef CEDE_GATE_GATE_H
#define CEDE_GATE_GATE_H

#include <stdbool.h>
#include <stdint.h>

#include "gate/page.h" /* gate_active() */

/* This program uses a device: its number, or -1 if there are too many. Asks for the daemon, the
 * first time for up to 0.1 s. id: the same in every program that uses this device; level:
 * device_level. */
int gate_device_add(const char *name, const char *id, unsigned level);

/* Whether work on this device is counted and may have to wait. */
bool gate_device_active(int device);

/* Returns when it is this program's turn. */
void gate_pass(int device);

/* A kernel that should have been cut runs in one piece: from now on the device's level is less. */
void gate_whole(int device);

/* What may be queued by time; UINT64_MAX: any amount. */
uint64_t gate_limit_ns(int device);

/* This thread begins (1) or ends (-1) to run a callback of the program, which the device may wait
 * for: nothing that it submits is held. Returns whether it runs one. */
bool gate_callback(int change);

/* Returns when this program may submit work of about est_ns, which then counts as queued.
 * flush (may be NULL) hands to the device what was submitted and not flushed: called at most once,
 * before waiting. */
void gate_admit(int device, uint64_t est_ns, void (*flush)(void *), void *arg);
/* That work has ended, or was never submitted (ns 0); it took ns. Never waits for the device. */
void gate_done(int device, uint64_t est_ns, uint64_t ns);

/* Layers that keep count themselves: this much is queued now; some of it has ended. A program that
 * wants a device and ends nothing is not believed for long. */
void gate_queued(int device, uint64_t ns);
void gate_ended(int device);

/* Host events that queued work may wait for: +1 one more, -1 one less. Returns how many there are.
 */
int gate_host_waits(int change);
/* Before one of them comes true: returns when it is this program's turn on every device. */
void gate_pass_all(void);

#endif
