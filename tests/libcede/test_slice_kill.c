/* A long computation that is killed at 200 random moments, most of them near a checkpoint being
 * written: whatever is found afterwards is bit by bit what an undisturbed run has at that element,
 * and so is the result. CEDE_KILL_SEED takes other moments. */
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../random.h"
#include "cede/slice.h"
#include "fixture.h"

#define COUNT 500000U
#define KILLS 200U

/* Depends on every element, and on their order. */
struct sums {
    uint64_t chain;
    double sum;
};

static char dir[64], path[96];
static struct sums expected[COUNT + 1];

static struct sums next_of(struct sums s, uint64_t i)
{
    for (int k = 0; k < 50; k++)
        s.chain = (s.chain ^ i) * 6364136223846793005U + 1442695040888963407U;
    s.sum += 1 / (double)(1 + s.chain % 1000);
    return s;
}

/* ---- the program that is killed -------------------------------------------------------------- */

struct program {
    struct sums sums;
    struct cede_checkpoint checkpoint;
};

static int launch(void *arg, uint64_t first, uint64_t count, void *stream)
{
    struct program *p = arg;
    for (uint64_t i = first; i < first + count; i++)
        p->sums = next_of(p->sums, i);
    return 0;
}

static int save(void *arg, uint64_t done)
{
    struct program *p = arg;
    return cede_checkpoint_write(&p->checkpoint, done, &p->sums, sizeof(p->sums));
}

static int compute(void)
{
    struct program p = {.checkpoint = {.path = path, .work = COUNT}};
    struct cede_slice_progress at = {.done = 0};
    const struct cede_slice_config c =
        CONFIG(slice, .flags = CEDE_SLICE_NO_GPU, .count = COUNT, .target_us = 5,
               .checkpoint_us = 50, .arg = &p, .launch = launch, .save = save);
    int r = cede_checkpoint_read(&p.checkpoint, &at.done, &p.sums, sizeof(p.sums));
    if (r < 0 && r != -ENOENT)
        return 1;
    return cede_slice_run(&c, &at) == 0 ? 0 : 2;
}

/* ---- the test -------------------------------------------------------------------------------- */

/* What the file has is right. Returns how much is done. */
static uint64_t look(void)
{
    struct cede_checkpoint c = {.path = path, .work = COUNT};
    struct sums found;
    uint64_t done = 0;
    memset(&found, 0, sizeof(found));
    int r = cede_checkpoint_read(&c, &done, &found, sizeof(found));
    if (r != 0 && r != -ENOENT)
        fail_msg("%s", c.error);
    assert_true(done <= COUNT);
    assert_memory_equal(&found, &expected[done], sizeof(found));
    return done;
}

/* True: the moment came before the end. */
static bool killed_after(uint64_t us)
{
    int status = 0;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(compute());
    }
    usleep((useconds_t)us);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status))
        assert_int_equal(WEXITSTATUS(status), 0);
    return WIFSIGNALED(status);
}

TEST(killed)
{
    unsigned kills = 0, finished = 0, resumed = 0;
    uint64_t before = 0, most_us = 5000;
    while (kills < KILLS || !finished) {
        bool was_killed = killed_after(rnd(most_us));
        uint64_t done = look();
        assert_true(done >= before);
        kills += was_killed;
        resumed += done > before && before > 0;
        most_us = done > before ? 5000 : 2 * most_us; /* a slow machine gets somewhere, too */
        before = done;
        if (!was_killed) {
            assert_int_equal(done, COUNT);
            finished++;
            OK(unlink(path));
            before = 0;
        }
    }
    printf("%u killed, %u of them went on from a checkpoint, %u finished\n", kills, resumed,
           finished);
    assert_true(resumed > KILLS / 10);
}

int main(void)
{
    const char *seed = getenv("CEDE_KILL_SEED");
    state = seed ? strtoull(seed, NULL, 10) : 1;
    for (uint64_t i = 0; i < COUNT; i++)
        expected[i + 1] = next_of(expected[i], i);
    /* In memory, if that is there: syncs take long on a busy disk. */
    snprintf(dir, sizeof(dir), "%s/cede-test-kill-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (!mkdtemp(dir))
        return 1;
    snprintf(path, sizeof(path), "%s/state", dir);
    int failed = test_run(NULL, NULL);
    char cmd[96];
    snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
    return system(cmd) || failed;
}
