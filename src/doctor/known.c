/* See known.h. */
#include "doctor/known.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

/* The first row that fits counts. chip: part of the GPU's name; NULL: any. */
static const struct {
    unsigned long first, last; /* branches */
    const char *chip;
    enum evidence evidence;
} known[] = {
    {580, 580, "H200", EVIDENCE_RUN},
    {580, 580, "H100", EVIDENCE_RUN},
    {515, 595, NULL, EVIDENCE_READ},
};

enum evidence known_driver(const char *version, const char *chip)
{
    char *end;
    if (version[0] < '0' || version[0] > '9')
        return EVIDENCE_NONE;
    unsigned long branch = strtoul(version, &end, 10);
    if (*end != '.')
        return EVIDENCE_NONE;
    for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
        bool fits = !known[i].chip || (chip && strstr(chip, known[i].chip));
        if (fits && branch >= known[i].first && branch <= known[i].last)
            return known[i].evidence;
    }
    return EVIDENCE_NONE;
}
