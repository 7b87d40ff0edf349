/* Reads times as sacct(1) of Slurm 23.11 takes them. Reads no clock: relative times are relative to
 * `now`. */
#ifndef CEDE_ACCT_TIMES_H
#define CEDE_ACCT_TIMES_H

#include <stdint.h>
#include <time.h>

#include "base/util.h"

/* Local time:
 *   YYYY-MM-DD[THH:MM[:SS]]  MM/DD[/YY][-HH:MM[:SS]]  MMDD[YY][-HH:MM[:SS]]  HH:MM[:SS][AM|PM]
 *   today, midnight, noon, fika, teatime, tomorrow, now
 *   now+N and now-N with seconds (the default), minutes, hours, days or weeks
 *   uts and the seconds since 1970
 * A day without a time is its midnight; a time without a day is today's. 0 or -EINVAL. */
int acct_time(const char *text, time_t now, int64_t *out, struct error *err);

#endif
