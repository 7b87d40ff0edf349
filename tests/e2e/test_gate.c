/* One daemon over a software GPU and an OpenCL device whose programs hold their own submissions:
 * real OpenCL programs, `cede run`, and everybody killed. Skipped where there is no OpenCL device.
 * How much work a job got is what it reports; nothing here is a time. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"

#include "device/gate/gate.h"

static void configure_both(void)
{
    char path[96];
    snprintf(path, sizeof(path), "%s/cede.conf", harness_dir());
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    fprintf(f, "[daemon]\ndevice = soft,gate\n[policy]\nrotation_us = 100000\n");
    assert_int_equal(fclose(f), 0);
}

#define OPENCL(name, class, ...)                                                                   \
    SPAWN(name, "cede", "run", "--strict", "-c", class, "-n", name, "--", harness_exe(), "load",   \
          __VA_ARGS__, "--device", "opencl", "--verify", "--report", "20")

/* The last number of that name that a load reported. */
static double last_of(const char *name, const char *key)
{
    char file[80], look[32];
    snprintf(file, sizeof(file), "%s.out", name);
    snprintf(look, sizeof(look), "\"%s\":", key);
    const char *text = contents(file), *at = NULL;
    for (const char *p = text; (p = strstr(p, look)); p++)
        at = p;
    return at ? strtod(at + strlen(look), NULL) : 0;
}

/* It gets something done from now on. */
static bool moves(const char *name, const char *key)
{
    double before = last_of(name, key);
    return EVENTUALLY(last_of(name, key) > before + 5);
}

/* What it gets done within so long. */
static double done_in(const char *name, const char *key, unsigned ms)
{
    double before = last_of(name, key);
    nap_ms(ms);
    return last_of(name, key) - before;
}

static bool level_is(const char *name, int level)
{
    json_t *job = job_named(name);
    const json_t *levels = json_object_get(job, "levels");
    bool is =
        json_array_size(levels) == 1 && json_integer_value(json_array_get(levels, 0)) == level;
    json_decref(job);
    return is;
}

static void end_well(const char *name, pid_t pid)
{
    json_t *o = load_end(name, pid);
    assert_true(json_is_true(json_object_get(o, "verified")));
    json_decref(o);
}

/* Each device is scheduled by itself, by one policy. */
static void mixed_devices(void **state)
{
    (void)state;
    configure_both();
    struct ceded d = ceded_start();
    pid_t cl = OPENCL("cl", "batch", "batch", "--kernel-us", "1000"), soft = LOAD("soft", "batch");
    assert_true(EVENTUALLY(all_have_contexts(&soft, 1))); /* before, it has another name */
    CEDE("set", pid_text(soft), "-c", "batch");
    assert_true(EVENTUALLY(level_is("cl", 2) && level_is("soft", 3)));
    assert_true(moves("cl", "kernels"));
    /* A latency job on the OpenCL device: there, and only there, the queue becomes short. */
    pid_t lat = OPENCL("lat", "latency", "latency", "--kernel-us", "2000", "--period-us", "50000");
    assert_true(EVENTUALLY(level_is("lat", 2)));
    assert_true(EVENTUALLY(job_int("cl", "timeslice_us") == 1));
    assert_true(EVENTUALLY(job_int("lat", "timeslice_us") > 100000));
    assert_true(job_int("soft", "timeslice_us") != 1);
    assert_true(moves("cl", "kernels") && moves("lat", "requests"));
    end_well("lat", lat);
    assert_true(EVENTUALLY(job_int("cl", "timeslice_us") > 1));
    end_well("cl", cl);
    end_well("soft", soft);
    ceded_stop(&d);
}

static void paused_and_let_go(void **state)
{
    (void)state;
    configure_both();
    struct ceded d = ceded_start();
    pid_t cl = OPENCL("cl", "batch", "batch", "--kernel-us", "1000");
    assert_true(moves("cl", "kernels"));
    CEDE("pause", "cl");
    done_in("cl", "kernels", 300); /* what was queued, and the report of it */
    assert_true(done_in("cl", "kernels", 300) == 0);
    CEDE("resume", "cl");
    assert_true(moves("cl", "kernels"));
    CEDE("pause", "cl");
    CEDE("set", "cl", "-c", "none");
    assert_true(moves("cl", "kernels"));
    end_well("cl", cl);
    ceded_stop(&d);
}

static pid_t program_of(pid_t runner)
{
    pid_t pid = 0;
    assert_int_equal(children_of(runner, &pid, 1), 1);
    return pid;
}

/* kill -9 of the daemon while it holds a program, of the program that the others wait for, of one
 * that waits. */
static void kills(void **state)
{
    (void)state;
    configure_both();
    struct ceded d = ceded_start();
    pid_t b1 = OPENCL("b1", "batch", "batch", "--kernel-us", "1000"),
          b2 = OPENCL("b2", "batch", "batch", "--kernel-us", "1000"),
          lat = OPENCL("lat", "latency", "latency", "--kernel-us", "2000", "--period-us", "2000");
    assert_true(moves("lat", "requests"));
    CEDE("pause", "b1");
    ceded_kill(&d);
    assert_true(moves("b1", "kernels") && moves("b2", "kernels") && moves("lat", "requests"));

    d = ceded_start(); /* it finds them, and b1 is paused again */
    assert_true(EVENTUALLY(level_is("b1", 2) && level_is("b2", 2) && level_is("lat", 2)));
    assert_true(EVENTUALLY(done_in("b1", "kernels", 300) == 0));
    CEDE("resume", "b1");

    /* It has the device all the time; without it the others get on. First its runner goes. */
    pid_t program = program_of(lat), other = program_of(b1);
    assert_int_equal(kill(lat, SIGKILL), 0);
    assert_int_equal(await_child(lat), 1000 + SIGKILL);
    assert_true(moves("lat", "requests"));
    assert_int_equal(kill(program, SIGKILL), 0);
    assert_int_equal(await_child(program), 1000 + SIGKILL); /* an orphan of ours now */
    assert_true(EVENTUALLY(job_gone("lat")));
    assert_true(moves("b1", "kernels") && moves("b2", "kernels"));

    assert_int_equal(kill(other, SIGKILL), 0);
    assert_int_equal(await_child(b1), 1000 + SIGKILL);
    assert_true(moves("b2", "kernels"));
    end_well("b2", b2);
    ceded_stop(&d);
}

/* A latency program that is stopped (^Z, a debugger) while it wants the device cannot say that it
 * does not. Any want of which nothing comes ends after GATE_FRUITLESS_MAX_NS: this one has to end
 * sooner. */
static void stopped_and_continued(void **state)
{
    (void)state;
    configure_both();
    struct ceded d = ceded_start();
    pid_t low = OPENCL("low", "batch", "batch", "--kernel-us", "1000"),
          lat = OPENCL("lat", "latency", "latency", "--kernel-us", "5000", "--period-us", "1000");
    pid_t program;
    assert_true(moves("lat", "requests"));
    program = program_of(lat);
    for (unsigned i = 0; i < 3; i++) {
        assert_true(EVENTUALLY(job_int("low", "timeslice_us") == 1));
        nap_ms(7 * i); /* in a request, or between two */
        assert_int_equal(kill(program, SIGSTOP), 0);
        assert_true(EVENTUALLY(job_is("lat", "state", "stopped")));
        double before = last_of("low", "kernels");
        uint64_t until = monotonic_ns() + GATE_FRUITLESS_MAX_NS / 2;
        while (last_of("low", "kernels") <= before + 5 && monotonic_ns() < until)
            nap_ms(5);
        assert_true(last_of("low", "kernels") > before + 5);
        assert_int_equal(kill(program, SIGCONT), 0);
        assert_true(moves("lat", "requests"));
        assert_true(EVENTUALLY(job_is("lat", "state", "running")));
    }
    end_well("lat", lat);
    end_well("low", low);
    ceded_stop(&d);
}

static bool opencl_here(void)
{
    char command[4200];
    snprintf(command, sizeof(command),
             "'%s' load batch --device opencl --kernel-us 100 --seconds 0.1 >/dev/null 2>&1",
             getenv("CEDE_EXE"));
    return system(command) == 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {e2e(mixed_devices), e2e(paused_and_let_go), e2e(kills),
                                       e2e(stopped_and_continued)};
    setenv("CEDE_GATE_CPU", "1", 1);
    if (!opencl_here()) {
        fprintf(stderr, "no OpenCL device: apt-get install pocl-opencl-icd\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
