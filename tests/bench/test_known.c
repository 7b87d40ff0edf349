/* What cede claims to know of a driver: never a run on a chip that was not measured. */
#include "../test.h"
#include "base/util.h"
#include "doctor/known.h"

TEST(table)
{
    static const struct {
        const char *version, *chip;
        enum evidence e;
    } t[] = {
        {"580.159.04", "NVIDIA H200", EVIDENCE_RUN},
        {"580.159.04", "NVIDIA H100 80GB HBM3", EVIDENCE_RUN},
        {"570.1", "NVIDIA H100 80GB HBM3", EVIDENCE_READ},
        {"580.159.04", "NVIDIA A100", EVIDENCE_READ},
        {"580.159.04", NULL, EVIDENCE_READ},
        {"580.159.04", "", EVIDENCE_READ},
        {"515.76", "NVIDIA H200", EVIDENCE_READ},
        {"595.45", "NVIDIA H200", EVIDENCE_READ},
        {"514.1", "NVIDIA H200", EVIDENCE_NONE},
        {"596.1", "NVIDIA H200", EVIDENCE_NONE},
        {"5800.1", "NVIDIA H200", EVIDENCE_NONE},
        {"", "NVIDIA H200", EVIDENCE_NONE},
        {"unknown", "NVIDIA H200", EVIDENCE_NONE},
        {"580", "NVIDIA H200", EVIDENCE_NONE},
        {"-580.1", "NVIDIA H200", EVIDENCE_NONE},
        {"99999999999999999999999.1", NULL, EVIDENCE_NONE},
    };
    for (size_t i = 0; i < ARRAY_SIZE(t); i++)
        assert_int_equal(known_driver(t[i].version, t[i].chip), t[i].e);
}
