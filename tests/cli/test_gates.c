/* What `cede run` puts into the environment of programs that hold their own submissions. */
#include "../test.h"
#include "base/util.h"
#include "cli/gates.h"

/* Any file does for the library: /bin/sh. */
TEST(test_list_add)
{
    static const struct {
        const char *before, *library, *after;
    } cases[] = {
        {NULL, "/bin/sh", "/bin/sh"},
        {"", "/bin/sh", "/bin/sh"},
        {"/lib/a.so", "/bin/sh", "/bin/sh:/lib/a.so"},
        {"a.so b.so", "/bin/sh", "/bin/sh:a.so b.so"},
        {"/lib/a.so:/bin/sh", "/bin/sh", "/lib/a.so:/bin/sh"},
        {"/bin/shell /bin/sh ", "/bin/sh", "/bin/shell /bin/sh "},
        {"/bin/shell", "/bin/sh", "/bin/sh:/bin/shell"},
        {NULL, "/no/library.so", NULL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        if (cases[i].before)
            setenv("LD_PRELOAD", cases[i].before, 1);
        else
            unsetenv("LD_PRELOAD");
        assert_int_equal(gates_list_add("LD_PRELOAD", ": \t\n", cases[i].library), 0);
        const char *after = getenv("LD_PRELOAD");
        if (cases[i].after)
            assert_string_equal(after ? after : "(none)", cases[i].after);
        else
            assert_null(after);
    }
    unsetenv("LD_PRELOAD");
}
