/* Static probes (USDT) of the provider "cede", for bpftrace and SystemTap: PROBE(name, ...) is one
 * nop, and a note in the binary that says where it and its arguments are. Arguments must be values
 * that exist anyway, so that nothing is computed for a probe. Without <sys/sdt.h> (Debian:
 * systemtap-sdt-dev) no probe is built. docs/observe.md lists them. */
#ifndef CEDE_BASE_PROBE_H
#define CEDE_BASE_PROBE_H

#if defined(__has_include) && __has_include(<sys/sdt.h>)
#define SDT_USE_VARIADIC
#include <sys/sdt.h>
#define PROBE(name, ...) STAP_PROBEV(cede, name, __VA_ARGS__)
#else
int probe_arguments(int first, ...); /* for the compiler's checks; never called */
#define PROBE(name, ...) ((void)sizeof(probe_arguments(0, __VA_ARGS__)))
#endif

#endif
