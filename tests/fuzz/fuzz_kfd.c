/* The parsers of AMD's sysfs: a node's properties and single numbers. */
#include "fuzz.h"
#include "gpu/amd/kfd.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    if (!text)
        return 0;
    struct kfd_gpu g = {.gpu_id = 1};
    kfd_parse_node(text, &g);
    unsigned domain, bus, slot, function;
    if (sscanf(g.info.bus_id, "%4x:%2x:%2x.%1x", &domain, &bus, &slot, &function) != 4 ||
        strlen(g.info.bus_id) != 12 || (g.info.caps & ~(uint32_t)GPU_CAP_SUSPEND))
        abort();
    uint64_t number;
    if (kfd_parse_number(text, &number) == 0 && strspn(text, "0123456789\n") != strlen(text))
        abort();
    free(text);
    return 0;
}
