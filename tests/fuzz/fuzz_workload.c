/* Fuzz target for the reader of control groups' paths and for sacct's times: whatever they get,
 * what they say is of the promised form. Touches nothing outside. */
#include <errno.h>

#include "acct/times.h"
#include "fuzz.h"
#include "who/workload.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct workload w;
    struct error err = {""};
    int64_t t = 0;
    char *text = fuzz_text(data, size);
    if (!text)
        return 0;
    workload_read(text, &w);
    require(!w.container[0] || strspn(w.container, "0123456789abcdef") == sizeof(w.container) - 1);
    require(!w.pod[0] || strspn(w.pod, "0123456789abcdefABCDEF-") == strlen(w.pod));
    require(!w.unit[0] || (strchr(w.unit, '.') && !strchr(w.unit, '/')));
    require(w.slurm_job <= UINT64_MAX >> 1);
    int r = acct_time(text, 1781521655, &t, &err);
    require(r == 0 || (r == -EINVAL && err.text[0]));
    free(text);
    return 0;
}
