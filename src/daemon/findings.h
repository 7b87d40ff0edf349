/* Results of checks of drivers, kept for later starts: one small file in the state directory, whose
 * key is the driver's release, the GPU's name and cede's version. A file that is damaged, or not
 * this user's, is ignored. */
#ifndef CEDE_DAEMON_FINDINGS_H
#define CEDE_DAEMON_FINDINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"

#define FINDINGS_FILE "drivers.json"

struct finding {
    char driver[32], chip[64];
    uint32_t off;  /* enum gpu_caps: controls that had no effect */
    char why[160]; /* "": nothing is off */
};

/* The names of the capabilities in caps, as "timeslices, suspension"; "nothing" for none. */
void finding_names(uint32_t caps, char *buf, size_t size);

/* Completes f, whose driver and chip the caller sets. False: there is no finding about them. */
bool findings_find(const char *dir, struct finding *f);
/* Adds a finding to the file; it replaces one about the same driver and chip. */
int findings_keep(const char *dir, const struct finding *f, struct error *err);

#endif
