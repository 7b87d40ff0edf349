/* What is known of a driver's controls before anything is measured: the table of docs/drivers.md.
 * An unknown driver is measured, not refused. */
#ifndef CEDE_DOCTOR_KNOWN_H
#define CEDE_DOCTOR_KNOWN_H

enum evidence {
    EVIDENCE_NONE, /* neither read nor run */
    EVIDENCE_READ, /* the controls are the same in the published kernel modules */
    EVIDENCE_RUN,  /* the controls' effect was measured */
};

/* The evidence for a driver's version ("580.159.04") on a GPU's model. chip NULL or "": the model
 * is not known, and only rows for any chip count. */
enum evidence known_driver(const char *version, const char *chip);

#endif
