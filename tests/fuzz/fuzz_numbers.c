/* Fuzz target for the strict number parsers of base/util.h: what they accept is in range and is
 * what the C library reads; what they refuse leaves the output alone. Touches nothing outside. */
#include <errno.h>

#include "base/util.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char text[64];
    if (size >= sizeof(text))
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';

    const uint64_t lo = 1, hi = 1000000;
    uint64_t u = UINT64_MAX;
    int r = parse_u64(text, lo, hi, &u);
    require(r == 0 || r == -EINVAL || r == -ERANGE);
    if (r == 0)
        require(u >= lo && u <= hi && u == strtoull(text, NULL, 10));
    else
        require(u == UINT64_MAX);

    uint64_t bytes = UINT64_MAX;
    r = parse_bytes(text, 1ULL << 50, &bytes);
    require(r == 0 || r == -EINVAL || r == -ERANGE);
    require(r == 0 ? bytes <= 1ULL << 50 : bytes == UINT64_MAX);

    double d = -1.0;
    r = parse_double(text, 0.0, 1.0, &d);
    require(r == 0 || r == -EINVAL || r == -ERANGE);
    if (r == 0)
        require(d >= 0.0 && d <= 1.0);
    else
        require(d < 0.0);
    return 0;
}
