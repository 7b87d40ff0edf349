/* How many rows users have on a day. Rows are on root's disk, and a user can have jobs come and go
 * by the thousand: what one has beyond ACCT_ROWS_PER_DAY is one row for that day, which sums it up.
 * Root's own are not counted. Knows neither queue nor disk. */
#ifndef CEDE_ACCT_DAYS_H
#define CEDE_ACCT_DAYS_H

#include "acct/row.h"

#define ACCT_ROWS_PER_DAY 2000 /* of about 730 bytes */
#define ACCT_DAYS         64   /* users at once */
#define DAY_S             86400

/* A user and an account. */
struct acct_day {
    bool used, changed; /* since the sum was last put */
    uid_t user;         /* by whom limits are counted (lib/account.h) */
    int64_t day;
    uint32_t rows;
    uint64_t jobs; /* that the sum is of */
    struct acct_row sum;
};

struct acct_days {
    struct acct_day v[ACCT_DAYS];
    bool changed;  /* a sum may have, since all were put */
    uint64_t sums; /* so far */
    /* Takes a sum that has changed. */
    void (*put)(void *arg, const struct acct_row *sum);
    void *arg;
};

/* The user's, of this day. Of more users than there is room for the one with the fewest rows is
 * forgotten. */
struct acct_day *acct_day_of(struct acct_days *d, uid_t user, const char *account, int64_t day);
/* Whether the user may have one more row; it is counted. */
bool acct_day_takes(struct acct_day *d);
/* The row is a part of the sum, of which it is not yet; first: of its job nothing is. */
void acct_day_add(struct acct_days *all, struct acct_day *d, const struct acct_row *r, bool first);
/* Puts all sums that have changed. */
void acct_days_put(struct acct_days *d);

#endif
