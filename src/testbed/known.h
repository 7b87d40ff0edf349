/* What is known of a driver's controls before anything is measured: the table of docs/drivers.md.
 * Decides nothing: an unknown driver is measured, not refused. */
#ifndef CEDE_TESTBED_KNOWN_H
#define CEDE_TESTBED_KNOWN_H

enum evidence {
    EVIDENCE_NONE, /* neither read nor run */
    EVIDENCE_READ, /* the controls are the same in the published kernel modules */
    EVIDENCE_RUN,  /* the controls' effect was measured */
};

/* Of a driver's version ("580.159.04") and a GPU's name; chip NULL or "": not known, so no run on
 * that chip is claimed. */
enum evidence known_driver(const char *version, const char *chip);
const char *evidence_name(enum evidence e); /* "unknown", "read", "run" */

#endif
