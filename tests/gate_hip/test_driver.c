/* The HIP gate as it is installed, on the stand-in library, against the daemon's driver: a closed
 * device holds a program, a driver that goes lets it on, and mixes of everything have the results
 * that they have alone. */
#include "../gate/driven.h"
#include "child.h"

static struct child start(const char *what, const char *arg, const char *out, bool gated)
{
    return child_start(getenv("PROG"), what, arg, out, gated);
}

TEST(held_and_let_go)
{
    struct device_driver *d = driver();
    struct child c = start("each", NULL, "/dev/null", true);
    assert_true(child_says(&c, 10000)); /* the first call: it has found the daemon */
    for (int i = 0; i < 10000 && !set(d, c.pid, false, 1000); i++)
        usleep(1000);
    assert_int_equal(write(c.to, "x", 1), 1);
    for (int i = 0; i < 20; i++) {
        set(d, c.pid, false, 1000);
        assert_false(child_says(&c, 10));
    }
    set(d, c.pid, true, 1000);
    assert_true(child_says(&c, 10000));
    set(d, c.pid, false, 1000);
    assert_int_equal(write(c.to, "x", 1), 1);
    assert_false(child_says(&c, 100));
    device_close(d); /* and nobody is there */
    assert_true(child_says(&c, 10000));
    while (write(c.to, "x", 1) == 1 && child_says(&c, 10000))
        ;
    assert_int_equal(child_end(&c), 0);
}

TEST(mixes)
{
    struct device_driver *d = driver();
    char seed[16], out[2][96];
    for (int s = 1; s <= 30; s++) {
        snprintf(seed, sizeof(seed), "%d", s);
        for (int gated = 0; gated < 2; gated++) {
            snprintf(out[gated], sizeof(out[gated]), "%s/out%d", dir, gated);
            struct child c = start("mix", seed, out[gated], gated);
            for (int i = 0;
                 gated &&
                 waitid(P_PID, (id_t)c.pid, &(siginfo_t){0}, WEXITED | WNOHANG | WNOWAIT) == 0 &&
                 kill(c.pid, 0) == 0 && i < 40;
                 i++) {
                set(d, c.pid, i % 3 != 0, i % 2 ? 200 : 5000);
                usleep(1000);
            }
            if (gated)
                set(d, c.pid, true, 0);
            assert_int_equal(child_end(&c), 0);
        }
        same_text(out[0], out[1]);
    }
    device_close(d);
}

int main(void)
{
    if (!make_dir())
        return 1;
    setenv("CEDE_GATE", socket_path, 1);
    return remove_dir(test_run(NULL, NULL));
}
