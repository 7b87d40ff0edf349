/* Fuzz target for what ceded reads of containers and control groups: files of runtimes, which hold
 * what users wrote, and lines of /proc/PID/cgroup. Touches nothing outside. */
#include "fuzz.h"
#include "who/agent_reports.h"
#include "who/container.h"

#define ID "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct identities *t;
    static struct identify_answer a;
    static const char names[] = "pod\0\0namespace\0\0container_name\0\0image\0";
    const struct pairs wanted = {names, sizeof(names)};
    const char *file = (const char *)data;
    if (!t) {
        t = identities_new();
        require(t && identities_put(t, "/a", (struct pairs){"pod\0x", 6}) == 0 &&
                identities_put(t, "/a/b", (struct pairs){"pod\0y", 6}) == 0);
    }
    a.n = 0;
    container_oci(file, size, wanted, &a);
    container_docker(file, size, wanted, &a);
    container_list(file, size, ID, wanted, &a);
    require(a.n <= sizeof(a.text) && pairs_valid((struct pairs){a.text, a.n}));
    if (pairs_valid((struct pairs){file, size}))
        (void)pairs_get((struct pairs){file, size}, "pod");
    char *text = fuzz_text(data, size);
    if (!text)
        return 0;
    const char *pod = pairs_get(identities_find(t, text, NULL), "pod");
    require(!pod || strstr(text, "/a"));
    free(text);
    return 0;
}
