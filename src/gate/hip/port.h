/* What the HIP library asks of the gate: may this program submit now, and how much may be under
 * way. Knows nothing of HIP. Every function answers "go ahead" while no daemon schedules. Called by
 * any thread of the program; must not change errno's meaning, signals or locale, and must come back
 * by itself when the scheduler dies. */
#ifndef CEDE_GATE_HIP_PORT_H
#define CEDE_GATE_HIP_PORT_H

#include <stdbool.h>
#include <stdint.h>

/* A daemon schedules. False: nothing below is called. Relaxed loads. */
bool port_active(void);
/* Returns when this program may submit. */
void port_pass(void);
/* Work of this process that may be queued and not finished; 0: any. */
uint64_t port_limit_ns(void);
/* What is queued and not finished now, by estimate. */
void port_inflight(uint64_t ns);
void port_ended(void); /* some of it has */

#endif
