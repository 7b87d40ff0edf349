/* `cede doctor --report`: the facts that a bug report needs, and none that names a user, a host, a
 * program, a path or one particular GPU. Only facts listed in report.c are shown. */
#ifndef CEDE_DOCTOR_REPORT_H
#define CEDE_DOCTOR_REPORT_H

#include <jansson.h>
#include <stdbool.h>

/* Whether the text of a finding of doctor may be published. */
bool report_may_show(const char *finding);
/* Versions and rights of this machine, an object of strings; NULL: no memory. */
json_t *report_machine(void);
/* Removes texts of errors from the measurements; NULL: there are none. */
void report_clean(json_t *measured);
void report_print(const json_t *report);

#endif
