/* Compares the devices of journals by the driver's name and address in them: "soft" at "/a", or
 * "multi" at "soft*1@/a,gate*4". Pure. */
#ifndef CEDE_JOURNAL_ADDRESS_H
#define CEDE_JOURNAL_ADDRESS_H

#include <stdbool.h>

#define ADDRESS_SEVERAL "multi"
#define ADDRESS_TEXT    288

/* Joins name and address as in an address of several drivers: "soft@/a". */
void address_text(const char *driver, const char *where, char out[ADDRESS_TEXT]);
/* Whether an index that both have means the same device in both. */
bool address_same(const char *driver, const char *where, const char *driver2, const char *where2);
/* Whether a device may be in both, of two directories; gates are not, because each directory has
 * its own. */
bool address_overlap(const char *driver, const char *where, const char *driver2,
                     const char *where2);

#endif
