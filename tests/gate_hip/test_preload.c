/* LD_PRELOAD as `cede run` sets it: only where there is a device, keeping what is there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above
#include <cmocka.h>

#include <stdlib.h>

#include "cli/preload.h"

/* Any files do: /bin/sh for the library, /dev/null for the device. */
static void test_preload(void **state)
{
    static const struct {
        const char *before, *device, *library, *after;
    } cases[] = {
        {NULL, "/dev/null", "/bin/sh", "/bin/sh"},
        {"", "/dev/null", "/bin/sh", "/bin/sh"},
        {"/lib/a.so", "/dev/null", "/bin/sh", "/bin/sh:/lib/a.so"},
        {"a.so b.so", "/dev/null", "/bin/sh", "/bin/sh:a.so b.so"},
        {"/lib/a.so:/bin/sh", "/dev/null", "/bin/sh", "/lib/a.so:/bin/sh"},
        {"/bin/shell /bin/sh ", "/dev/null", "/bin/sh", "/bin/shell /bin/sh "},
        {"/bin/shell", "/dev/null", "/bin/sh", "/bin/sh:/bin/shell"},
        {"/lib/a.so", "/no/device", "/bin/sh", "/lib/a.so"},
        {NULL, "/no/device", "/bin/sh", NULL},
        {NULL, "/dev/null", "/no/library.so", NULL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (cases[i].before)
            setenv("LD_PRELOAD", cases[i].before, 1);
        else
            unsetenv("LD_PRELOAD");
        assert_int_equal(preload_add(cases[i].device, cases[i].library), 0);
        const char *after = getenv("LD_PRELOAD");
        if (cases[i].after)
            assert_string_equal(after ? after : "(none)", cases[i].after);
        else
            assert_null(after);
    }
    unsetenv("LD_PRELOAD");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_preload)};
    return cmocka_run_group_tests_name("preload", tests, NULL, NULL);
}
