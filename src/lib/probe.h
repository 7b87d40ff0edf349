/* Static probes (USDT) of the provider "cede", for bpftrace and SystemTap: PROBE(name, ...) is one
 * nop and a note in the binary that has where it is and where its arguments are. Arguments are
 * values that are there anyway: nothing is computed for a probe. Built without <sys/sdt.h> (Debian:
 * systemtap-sdt-dev), there are none. docs/observe.md lists them. */
#ifndef CEDE_LIB_PROBE_H
#define CEDE_LIB_PROBE_H

#if defined(__has_include) && __has_include(<sys/sdt.h>)
#define SDT_USE_VARIADIC
#include <sys/sdt.h>
#define PROBE(name, ...) STAP_PROBEV(cede, name, __VA_ARGS__)
#else
int probe_arguments(int first, ...); /* only looked at by the compiler */
#define PROBE(name, ...) ((void)sizeof(probe_arguments(0, __VA_ARGS__)))
#endif

#endif
