/* `cede doctor --report`: what a bug report needs and nothing that names a user, a host, a program,
 * a path or one particular GPU. Only what is listed here is shown. */
#ifndef CEDE_CLI_REPORT_H
#define CEDE_CLI_REPORT_H

#include <jansson.h>
#include <stdbool.h>

/* Whether a finding of doctor has text that may be published. */
bool report_may_show(const char *finding);
/* Versions and rights of this machine, an object of strings; NULL: no memory. */
json_t *report_machine(void);
/* Takes texts of errors out of what was measured; NULL: nothing was. */
void report_clean(json_t *measured);
void report_print(const json_t *report);

#endif
