/* What checks of drivers found, kept for later starts: one small file in the state directory, by
 * release of the driver, name of the GPU and version of cede. What is damaged, or is not this
 * user's, counts as nothing. */
#ifndef CEDE_DAEMON_FINDINGS_H
#define CEDE_DAEMON_FINDINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/util.h"

#define FINDINGS_FILE "drivers.json"

struct finding {
    char driver[32], chip[64];
    uint32_t off;  /* enum gpu_caps that had no effect */
    char why[160]; /* "": nothing is off */
};

/* The names of capabilities that a check is about, "timeslices, suspension"; "nothing". */
void finding_names(uint32_t caps, char *buf, size_t size);

/* Fills in the rest of f, of which driver and chip are given. False: nothing is kept of it. */
bool findings_find(const char *dir, struct finding *f);
/* Keeps one more, in place of what was kept of the same. */
int findings_keep(const char *dir, const struct finding *f, struct error *err);

#endif
