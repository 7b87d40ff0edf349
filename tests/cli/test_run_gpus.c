/* What `cede run --gpus` asks, what becomes of its environment, and what it does with a daemon that
 * chooses no GPUs. The daemon is a stand-in. */
#include "harness.h"

static struct result r;

#define ADDED   OK ",'job':{'number':12}}"
#define CHOSEN  OK ",'job':{'number':12},'visible':'GPU-b'}"
#define WAITS   OK ",'job':{'number':12,'room':false},'visible':'GPU-a'}"
#define ROOM    OK ",'jobs':[{'number':12,'room':true}]}"
#define GONE    OK ",'jobs':[]}"
#define OLD     NO(22) "'unknown field gpus: add takes pid, class'}"
#define NONE    NO(95) "'no GPU here can be chosen'}"
#define TOO_FEW NO(7) "'3 GPUs are wanted'}"
#define UNKNOWN NO(22) "'CUDA_VISIBLE_DEVICES lists 7'}"
#define TWO     "CUDA_VISIBLE_DEVICES=0,1 "
#define SHOW    " sh -c echo${IFS}${CUDA_VISIBLE_DEVICES-unset}" /* of one word */

/* clang-format off */
static const struct talk talks[] = {
    {"run --gpus=1" SHOW, {CHOSEN}, 0, "GPU-b\n", "", NULL},
    {TWO "run --gpus=1" SHOW, {CHOSEN}, 0,
     "GPU-b\n", "cede: note: of CUDA_VISIBLE_DEVICES=0,1 the program gets GPU-b\n", NULL},
    {TWO "run -q --gpus=1" SHOW, {CHOSEN}, 0, "GPU-b\n", "", NULL},
    {"CUDA_VISIBLE_DEVICES=GPU-b run --gpus=1" SHOW, {CHOSEN}, 0, "GPU-b\n", "", NULL},
    {TWO "run -q" SHOW, {CHOSEN}, 0, "0,1\n", "", NULL}, /* nobody asked for it */
    /* While it waits for memory it is given another; unless it was detached meanwhile. */
    {"run -q --gpus=1 --memory=2G" SHOW, {WAITS, ROOM, CHOSEN}, 0, "GPU-b\n", "", NULL},
    {"run -q --gpus=1 --memory=2G" SHOW, {WAITS, GONE, CHOSEN}, 0, "GPU-a\n", "", NULL},
    {"run -q --gpus=1 --memory=2G --wait=0" SHOW, {WAITS, ADDED, CHOSEN}, 0,
     "GPU-b\n", "cede: 'sh' runs anyway: 2.0 GiB were not free on GPU 0", NULL},
    /* One that knows nothing of GPUs, or has none: the job is scheduled all the same. */
    {TWO "run --gpus=1" SHOW, {OLD, ADDED}, 0,
     "0,1\n", "cede: 'sh' runs with no GPU chosen for it: unknown field gpus", NULL},
    {"run --gpus=1" SHOW, {NONE, ADDED}, 0,
     "unset\n", "cede: 'sh' runs with no GPU chosen for it: no GPU here can be chosen\n", NULL},
    {"run --gpus=1 --strict" SHOW, {NONE, ADDED}, 1,
     "", "cede: 'sh' was not run: no GPU here can be chosen\n", NULL},
    {"run --gpus=1 --strict" SHOW, {OLD, ADDED}, 1,
     "", "cede: 'sh' was not run: unknown field", NULL},
    /* It cannot be. */
    {"run --gpus=3" SHOW, {TOO_FEW, ADDED}, 2,
     "", "cede: 'sh' was not run: 3 GPUs are wanted\n", NULL},
    {"CUDA_VISIBLE_DEVICES=7 run --gpus=1" SHOW, {UNKNOWN, ADDED}, 2,
     "", "cede: 'sh' was not run: CUDA_VISIBLE_DEVICES lists 7\n", NULL},
    {"run --gpus=0 true", {NULL}, 2, "", "'0' is not a number of GPUs from 1 to 16, or auto", ""},
    {"run --gpus=17 true", {NULL}, 2, "", "'17' is not a number of GPUs", ""},
    {"run --gpus=all true", {NULL}, 2, "", "'all' is not a number of GPUs", ""},
    {"run --gpus=1 --memory=2G@0 true", {NULL}, 2, "", "leave out its number", ""},
    {"run --gpus=2 --memory=2G true", {NULL}, 2, "", "memory is waited for on one GPU only", ""},
};
/* clang-format on */

TEST_TALKS(talks)

/* The daemon is asked with the list that is set. */
TEST(asks)
{
    setenv("CUDA_VISIBLE_DEVICES", "0, 1", 1);
    pid_t daemon = fake_daemon((uid_t)-1, (const char *const[]){CHOSEN, NULL});
    RUN(&r, "cede", "run", "--gpus", "auto", "true");
    unsetenv("CUDA_VISIBLE_DEVICES");
    char *asked = fake_daemon_end(daemon);
    assert_non_null(strstr(asked, "\"gpus\":1,\"visible\":\"0, 1\""));
    free(asked);

    char list[1100];
    memset(list, '0', sizeof(list) - 1);
    list[sizeof(list) - 1] = '\0';
    setenv("CUDA_VISIBLE_DEVICES", list, 1);
    SAYS(&r, 2, NULL, "CUDA_VISIBLE_DEVICES is longer than 1023 bytes", "cede", "run", "--gpus",
         "1", "true");
    unsetenv("CUDA_VISIBLE_DEVICES");
}
