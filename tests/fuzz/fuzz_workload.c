/* Fuzz target for the reader of control groups' paths and for sacct's times: whatever they get,
 * what they say is of the promised form. Touches nothing outside. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "acct/times.h"
#include "lib/workload.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int ok)
{
    if (!ok)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct workload w;
    struct error err = {""};
    int64_t t = 0;
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    workload_read(text, &w);
    must(!w.container[0] || strspn(w.container, "0123456789abcdef") == sizeof(w.container) - 1);
    must(!w.pod[0] || strspn(w.pod, "0123456789abcdefABCDEF-") == strlen(w.pod));
    must(!w.unit[0] || (strchr(w.unit, '.') && !strchr(w.unit, '/')));
    must(w.slurm_job <= UINT64_MAX >> 1);
    int r = acct_time(text, 1781521655, &t, &err);
    must(r == 0 || (r == -EINVAL && err.text[0]));
    free(text);
    return 0;
}
