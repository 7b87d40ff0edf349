/* Limits the rows of a user per day, because rows are on root's disk and a user can start thousands
 * of jobs. Jobs beyond ACCT_ROWS_PER_DAY are summed up in one row for that day. Root's rows are not
 * limited. Knows neither queue nor disk. */
#ifndef CEDE_ACCT_DAYS_H
#define CEDE_ACCT_DAYS_H

#include "acct/row.h"

#define ACCT_ROWS_PER_DAY 2000 /* of about 730 bytes */
#define ACCT_DAYS         64   /* pairs of user and account */
#define DAY_S             86400

/* The day of one user in one account. */
struct acct_day {
    bool used, changed; /* changed: since the sum was last put */
    uid_t user;         /* the uid for which limits are counted (base/principal.h) */
    int64_t day;
    uint32_t rows;
    uint64_t jobs; /* number of jobs in the sum */
    struct acct_row sum;
};

struct acct_days {
    struct acct_day v[ACCT_DAYS];
    bool changed;  /* some sum may have changed since all were put */
    uint64_t sums; /* number of sums so far */
    /* Called with each sum that has changed. */
    void (*put)(void *arg, const struct acct_row *sum);
    void *arg;
};

/* The entry of a user and account for this day. If there is no room, the entry with the fewest rows
 * is dropped. */
struct acct_day *acct_day_of(struct acct_days *d, uid_t user, const char *account, int64_t day);
/* Whether the user may have one more row, which is then counted. */
bool acct_day_takes(struct acct_day *d);
/* Adds a row to the sum. first: the sum has nothing of the row's job yet. */
void acct_day_add(struct acct_days *all, struct acct_day *d, const struct acct_row *r, bool first);
/* Puts all sums that have changed. */
void acct_days_put(struct acct_days *d);

#endif
