/* For tests of the whole on the software GPU: real ceded, restorer, verbs and loads in a directory
 * of the test's own, and what can be seen of them from outside. Every call here fails the test when
 * it cannot do its work; what is asserted about cede stands in the tests. Built on the verbs'
 * harness (tests/cli), which ends whatever a failed test leaves behind. */
#ifndef CEDE_TESTS_E2E_FIXTURE_H
#define CEDE_TESTS_E2E_FIXTURE_H

#include <jansson.h>

#include "../cli/harness.h"
#include "../descriptors.h"
#include "../sanitized.h"

#include "device/ops.h"

#define SLICE_DEFAULT_US 2048

/* True as soon as the condition is; false after 40 s of looking. */
#define EVENTUALLY(condition)                                                                      \
    ({                                                                                             \
        int eventually_ = 8000; /* 40 s: ceded tries again after up to 30 */                       \
        while (!(condition) && --eventually_ > 0)                                                  \
            nap_ms(5);                                                                             \
        eventually_ > 0;                                                                           \
    })
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

/* Set-up and tear-down of each test: a directory and a software GPU in it. */
int e2e_begin(void **state);
int e2e_end(void **state);
#define e2e(t) cmocka_unit_test_setup_teardown(t, e2e_begin, e2e_end)
/* In place of cmocka_run_group_tests(), where tests mostly wait: each in a process of its own, all
 * at the same time. Returns how many failed. */
int e2e_at_once(const struct CMUnitTest *tests, size_t n);
pid_t gpu_pid(void);
/* Another one in its place, started so. */
void replace_gpu(const char *const argv[]);
/* One with so much memory, in place of the one that is there. */
void small_gpu(const char *bytes);
/* Before e2e_begin(): "nvidia" for a GPU of this machine instead of a software GPU. */
void use_driver(const char *name);
/* Where the daemon works; the test's directory if it did not say otherwise. */
const char *cede_home(void);
void set_cede_home(const char *dir);
/* What configure() writes from now on; soft at the beginning of each test. */
void set_device(const char *list);
/* What configure() writes from now on; no at the beginning of each test. */
void set_accounts(bool kept);
/* A pid as an argument; four may be in use at once. */
const char *pid_text(pid_t pid);

/* Starts a program; its output goes to NAME.out and NAME.err in the directory. */
pid_t spawn(const char *name, const char *const argv[]);
#define SPAWN(name, ...) spawn(name, (const char *const[]){__VA_ARGS__, NULL})
/* What is in the file FILE of the directory now; overwritten by the next. */
const char *contents(const char *file);
/* Waits for a child's end; as from status_of(). */
int await_child(pid_t pid);

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

/* One message to the daemon, without the verbs. NULL: there is none, or it did not answer. */
json_t *ask(const char *text);
/* The job of that name as the daemon has it; NULL if it has none. The caller's reference. */
json_t *job_named(const char *name);
bool job_gone(const char *name);
/* A value of it, "" or 0 if there is none. */
bool job_is(const char *name, const char *key, const char *value);
long long job_int(const char *name, const char *key);

/* A load in a process of its own: role latency or batch, then options of cede-load. Kernels of 2 ms
 * for batch unless the options say otherwise; --verify always. */
pid_t load_start(const char *name, const char *const role_and_more[]);
#define LOAD(name, ...) load_start(name, (const char *const[]){__VA_ARGS__, NULL})
/* Asks it to end, which it has to do well and with its work verified; its final object, the
 * caller's. */
json_t *load_end(const char *name, pid_t pid);
json_t *load_final(const char *name);

/* What a driver that has just come sees of these processes. */
bool all_have_contexts(const pid_t *v, size_t n);
bool all_slices_default(const pid_t *v, size_t n);
uint64_t odd_slice(const pid_t *v, size_t n); /* the first that is not; 0: none */
/* Waits until each has done work on the GPU since the call. */
void await_progress(const pid_t *v, size_t n);
/* Work of each in GPU seconds over the next `ms`. */
void measure(const pid_t *v, size_t n, unsigned ms, double *busy);

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
