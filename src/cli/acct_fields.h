/* The fields of `cede acct`: as columns, with bars between, and as JSON. */
#ifndef CEDE_CLI_ACCT_FIELDS_H
#define CEDE_CLI_ACCT_FIELDS_H

#include <jansson.h>
#include <stdbool.h>

#include "acct/row.h"
#include "lib/util.h"

#define ACCT_COLUMNS_MAX 64

struct acct_column {
    const struct acct_field *field;
    int width; /* 0: as wide as what is in it; < 0: to the left */
};

struct acct_format {
    struct acct_column v[ACCT_COLUMNS_MAX];
    size_t n;
};

/* "JobID,JobName%20,..." in any case; NULL: the usual ones of `by`. 0 or -EINVAL: unknown, or it
 * says nothing where rows are summed up by that. */
int acct_format_read(const char *text, enum acct_by by, struct acct_format *out, struct error *err);

void acct_print(const struct acct_format *f, const struct acct_row *v, size_t n, bool parsable);
/* Of all fields that say something there. */
json_t *acct_json(const struct acct_row *row, enum acct_by by);

/* By its word, "user"; ACCT_BY_COUNT: none. */
enum acct_by acct_by_named(const char *word);

#endif
