/* How long commands take, learnt from those that have ended. A key is what tells commands of
 * different length apart: a kernel and its size, a kind of copy and its bytes. Not thread-safe: the
 * caller has a lock. */
#ifndef CEDE_GATE_ESTIMATE_H
#define CEDE_GATE_ESTIMATE_H

#include <stdint.h>

uint64_t estimate_key(uint64_t a, uint64_t b, uint64_t c);
/* In ns; 0: not known yet. */
uint64_t estimate_of(uint64_t key);
void estimate_set(uint64_t key, uint64_t ns); /* above 0 */
/* One more command has taken so long. */
void estimate_learn(uint64_t key, uint64_t ns);

#endif
