/* The devices that a journal is about, by the driver's name and address that it holds: "soft" at
 * "/a", or "multi" at "soft*1@/a,gate*4". Pure. */
#ifndef CEDE_RECOVERY_ADDRESS_H
#define CEDE_RECOVERY_ADDRESS_H

#include <stdbool.h>

#define ADDRESS_SEVERAL "multi"
#define ADDRESS_TEXT    288

/* "soft@/a": the same in one word, as an address of several has it. */
void address_text(const char *driver, const char *where, char out[ADDRESS_TEXT]);
/* Indices of devices mean the same in both, as far as both go. */
bool address_same(const char *driver, const char *where, const char *driver2, const char *where2);
/* Some device may be in both, of two that are not in one directory: each has a gate of its own. */
bool address_overlap(const char *driver, const char *where, const char *driver2,
                     const char *where2);

#endif
