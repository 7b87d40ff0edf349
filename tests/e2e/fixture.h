/* For tests of the whole on the software GPU: real ceded, restorer, verbs and loads in a directory
 * of the test's own, and what can be seen of them from outside. Every call here fails the test when
 * it cannot do its work; what is asserted about cede stands in the tests. Built on the verbs'
 * harness (tests/cli), which ends whatever a failed test leaves behind. */
#ifndef CEDE_TESTS_E2E_FIXTURE_H
#define CEDE_TESTS_E2E_FIXTURE_H

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <jansson.h>

#include "../cli/harness.h"
#include "../descriptors.h"
#include "../sanitized.h"
#include "../test.h"

#include "gpu/ops.h"

#define SLICE_DEFAULT_US 2048

/* True as soon as the condition is; false after 60 s of looking. */
#define EVENTUALLY(condition)                                                                      \
    ({                                                                                             \
        int eventually_ = 12000; /* 60 s: ceded tries again after up to 40 */                      \
        while (!(condition) && --eventually_ > 0)                                                  \
            nap_ms(5);                                                                             \
        eventually_ > 0;                                                                           \
    })
/* Fails the test where the condition does not come true. */
#define AWAIT(condition)                                                                           \
    do {                                                                                           \
        if (!EVENTUALLY(condition))                                                                \
            fail_msg("60 s have passed without: %s", #condition);                                  \
    } while (0)
void nap_ms(unsigned ms);

/* Numbers for random moments and bytes: the same in every run. */
struct rng {
    uint64_t state;
};
uint64_t rng_below(struct rng *r, uint64_t n);

/* Runs a verb; it has to end with status 0. The result is overwritten by the next. */
extern struct result result;
#define CEDE(...)                                                                                  \
    do {                                                                                           \
        RUN(&result, "cede", __VA_ARGS__);                                                         \
        if (result.status)                                                                         \
            fail_msg("status %d: %s%s", status_of(result.status), result.out, result.err);         \
    } while (0)
/* Runs a verb that has to end with that status and an error with `says` in it. */
#define FAILS(code, says, ...)                                                                     \
    do {                                                                                           \
        RUN(&result, "cede", __VA_ARGS__);                                                         \
        if (status_of(result.status) != (code) || !strstr(result.err, says))                       \
            fail_msg("status %d: %s", status_of(result.status), result.err);                       \
    } while (0)

/* Set-up and tear-down of each test: a directory, a software GPU in it, and configure(20, ""). The
 * ceded that was started last is stopped, if it still runs, and has to end with status 0. */
int e2e_begin(void **state);
int e2e_end(void **state);
#define e2e(t)    cmocka_unit_test_setup_teardown(t, e2e_begin, e2e_end)
#define E2E(name) TEST_WITH(name, e2e_begin, e2e_end)
/* In place of test_run(), where tests mostly wait: each in a process of its own, all at the same
 * time. Returns how many failed. */
int e2e_at_once(void);
pid_t gpu_pid(void);
/* Another one in its place, with these options of `cede softgpu`. */
pid_t replace_gpu(const char *const options[]);
#define REPLACE_GPU(...) replace_gpu((const char *const[]){__VA_ARGS__, NULL})
/* One more, at the path that CEDE_SOFT_SOCKET names. */
pid_t another_gpu(const char *name, const char *const options[]);
#define ANOTHER_GPU(name, ...) another_gpu(name, (const char *const[]){__VA_ARGS__, NULL})
/* One with so much memory, in place of the one that is there. */
void small_gpu(const char *bytes);
/* Before e2e_begin(): "nvidia" for a GPU of this machine instead of a software GPU. */
void use_driver(const char *name);
extern const char *e2e_driver; /* that name, or "soft" */
/* Where the daemon works; the test's directory if it did not say otherwise. */
const char *cede_home(void);
void set_cede_home(const char *dir);
/* What configure() writes from now on; soft at the beginning of each test. */
void set_device(const char *list);
/* What configure() writes from now on; no at the beginning of each test. */
void set_accounts(bool kept);
/* A pid as an argument, and the path of a file in the test's directory; four of each may be in use
 * at once. */
const char *pid_text(pid_t pid);
const char *in_dir(const char *name);
/* Makes an empty file in the test's directory: a program may wait for it. */
void touch(const char *name);

/* Starts a program; its output goes to NAME.out and NAME.err in the directory. */
pid_t spawn(const char *name, const char *const argv[]);
#define SPAWN(name, ...) spawn(name, (const char *const[]){__VA_ARGS__, NULL})
/* Waits until a program has written a number to that file of the directory. */
pid_t pid_in(const char *file);
/* A child that does that, until it or this process is killed. */
pid_t in_a_child(void (*what)(void));
/* What is in the file FILE of the directory now; overwritten by the next. */
const char *contents(const char *file);
/* Waits for a child's end; as from status_of(). */
int await_child(pid_t pid);
/* kill -9, and waits until it has ended by that. */
void slay_child(pid_t pid);

struct ceded {
    pid_t pid, restorer;
};
/* Writes the configuration file: turns of rotation_ms each, and what `more` adds. */
void configure(unsigned rotation_ms, const char *more);
/* Starts a daemon in the directory and waits until it answers. Says what it says to ceded.err. */
struct ceded ceded_start(void);
/* 0 unless it has one. */
pid_t restorer_of(pid_t ceded);
/* kill -9, and waits until the restorer has done its work and ended. */
void ceded_kill(struct ceded *d);
/* kill -9 of both, and nothing is done between the one and the other. */
void ceded_kill_both(struct ceded *d);
/* As by `systemctl stop`: has to end with status 0. */
void ceded_stop(struct ceded *d);
/* Children of a process; returns how many, the first of them in v. */
size_t children_of(pid_t pid, pid_t *v, size_t n);
struct named {
    size_t n, living;
    pid_t pid; /* of a living one; 0: there is none */
};
/* Its children of that name (comm), of the first 64 of all. */
struct named children_named(pid_t parent, const char *name);

/* A connection to the daemon, SOCK_NONBLOCK or 0; -1: there is none. */
int connect_raw(int flags);
/* One message to the daemon, without the verbs. NULL: there is none, or it did not answer. */
json_t *ask(const char *text);
json_t *ask_jobs(void);
/* The job of that name as the daemon has it; NULL if it has none. The caller's reference. */
json_t *job_named(const char *name);
bool job_gone(const char *name);
/* The value at a path such as "mps.unit" or "gpus.0"; NULL if there is none. */
json_t *value_at(json_t *o, const char *path);
/* A value of the job, "" or 0 if there is none; false counts as 0, true as 1. */
bool job_is(const char *name, const char *path, const char *value);
long long job_int(const char *name, const char *path);
double job_number(const char *name, const char *path);
/* How long the array there is. */
size_t job_count(const char *name, const char *path);

/* A load in a process of its own: role latency or batch, then options of cede-load. Kernels of 2 ms
 * for batch unless the options say otherwise; --verify always. */
pid_t load_start(const char *name, const char *const role_and_more[]);
#define LOAD(name, ...) load_start(name, (const char *const[]){__VA_ARGS__, NULL})
/* Programs that are started from now on are clients of the MPS server of that name, or of none. */
void mps_server(const char *name);
/* Asks it to end, which it has to do well and with its work verified; its final object, the
 * caller's. */
json_t *load_end(const char *name, pid_t pid);
json_t *load_final(const char *name);
/* One of each name, which have their contexts on the GPU: "lat" is a latency program, the others
 * are batch programs. Then jobs of those classes. */
void loads_start(size_t n, const char *const names[], pid_t pids[]);
void become_jobs(size_t n, const char *const names[], const pid_t pids[]);
/* load_end() of each. */
void loads_end(size_t n, const char *const names[], const pid_t pids[]);
/* A batch load under `cede run` on the software GPU, in a job of that name; options of cede-load.
 */
pid_t job_start(const char *name, const char *class, const char *const more[]);
#define JOB(name, class, ...) job_start(name, class, (const char *const[]){__VA_ARGS__, NULL})
/* The only program of a runner. */
pid_t program_below(pid_t runner);

/* What a driver that has just come sees of these processes. */
bool all_have_contexts(const pid_t *v, size_t n);
bool all_slices_default(const pid_t *v, size_t n);
uint64_t odd_slice(const pid_t *v, size_t n); /* the first that is not; 0: none */
/* Waits until each has done work on the GPU since the call. */
void await_progress(const pid_t *v, size_t n);
/* Work of each in GPU seconds over the next `ms`. */
void measure(const pid_t *v, size_t n, unsigned ms, double *busy);

/* Some of that many attempts has to be right. */
void in_some_attempt(int attempts, bool (*is_right)(void));

/* Group records of the journal, and those of them that are suspended; 0 without a journal. */
unsigned records(unsigned *suspended);
/* Records of moves of GPU memory; 0 without a journal. swapper: of one that is alive, or 0; may be
 * NULL. */
unsigned swap_records(pid_t *swapper);
bool somebody_suspended(void);
bool suspended(pid_t pid);
/* None of these programs is suspended, and stays so for a while. Until ceded has looked at a group
 * it is on record as suspended: that is waited for. */
bool runs_on(const pid_t *v, size_t n);

#endif
