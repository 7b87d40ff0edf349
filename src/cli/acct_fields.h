/* The fields of `cede acct`, printed as columns, with bars between them, or as JSON. */
#ifndef CEDE_CLI_ACCT_FIELDS_H
#define CEDE_CLI_ACCT_FIELDS_H

#include <jansson.h>
#include <stdbool.h>

#include "acct/row.h"
#include "base/util.h"

#define ACCT_COLUMNS_MAX 64

struct acct_column {
    const struct acct_field *field;
    int width; /* 0: as wide as its contents; < 0: aligned to the left */
};

struct acct_format {
    struct acct_column v[ACCT_COLUMNS_MAX];
    size_t n;
};

/* Reads "JobID,JobName%20,...", in upper or lower case; NULL: the default fields of `by`. 0, or
 * -EINVAL: a field is unknown, or has no meaning in sums by `by`. */
int acct_format_read(const char *text, enum acct_by by, struct acct_format *out, struct error *err);

void acct_print(const struct acct_format *f, const struct acct_row *v, size_t n, bool parsable);
/* All fields that have a meaning in sums by `by`. */
json_t *acct_json(const struct acct_row *row, enum acct_by by);

/* The kind of sums that a word names, such as "user"; ACCT_BY_COUNT: none. */
enum acct_by acct_by_named(const char *word);

#endif
