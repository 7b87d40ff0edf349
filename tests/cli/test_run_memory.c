/* How `cede run --memory` waits for room, and what it says. The daemon is a stand-in. */
#include "harness.h"

#define ADDED OK ",'job':{'number':12,'room':false}}"
#define PAGE  OK ",'more':false,'jobs':[]}"
#define WAITS OK ",'jobs':[{'number':12,'room':false}]}"
#define ROOM  OK ",'jobs':[{'number':12,'room':true}]}"

#define JOB(number, uid) "{'number':" #number ",'name':'job" #number "','uid':" #uid ","
/* A job in line for GPU 1, one that holds memory, and one that memory is reserved for. */
#define IN_LINE(number, uid, place)                                                                \
    JOB(number, uid) "'room':false,'memory':{'gpu':1,'place':" #place "}},"
#define HOLDS(number, uid, gpus) JOB(number, uid) "'gpus':" gpus ",'memory_bytes':7},"
#define RESERVED(number, uid)    JOB(number, uid) "'room':true,'memory':{'gpu':1}}"

/* clang-format off */
#define CROWD OK ",'more':false,'jobs':[" IN_LINE(12, 5, 3) IN_LINE(11, 5, 2) IN_LINE(10, 6, 1) \
    IN_LINE(9, 6, 0) IN_LINE(13, 5, 4) HOLDS(4, 5, "[0,1]") HOLDS(3, 6, "[1]") HOLDS(2, 5, "[0]") \
    RESERVED(1, 5) "],'unmanaged':[{'gpus':[1]},{'gpus':[0]}]}"

static const struct talk talks[] = {
    {"run -clatency --memory=3G@1 true", {ADDED, PAGE, WAITS, ROOM}, 0, "",
     "cede: waiting for 3.0 GiB on GPU 1, at most 120 s\n", NULL},
    {"run -cbatch --memory=3G@1 true", {ADDED, CROWD, ROOM}, 0, "",
     "cede: waiting for 3.0 GiB on GPU 1; before it: #11 job11, 2 other jobs; memory is held or "
     "reserved by: #4 job4, #1 job1, 1 other job; 1 program of no job uses that GPU\n", NULL},
    {"run --memory=3G@1 true",
     {ADDED, OK ",'more':false,'jobs':[{'number':12,'room':false,'memory':{'gpu':1,'place':0,"
                "'infeasible':true}}],'unmanaged':[{'gpus':[1]},{'gpus':[1]}]}", ROOM}, 0, "",
     "cede: waiting for 3.0 GiB on GPU 1; that is more than there is if all jobs end, so "
     "others go first; 2 programs of no job use that GPU\n", NULL},
    {"run -clatency --memory=3G@1 true",
     {ADDED, OK ",'more':false,'jobs':[" IN_LINE(12, 5, 0) JOB(4, 5) "'gpus':[1],'memory_bytes':7,"
                "'swap_error':'no host memory'}]}", ROOM}, 0, "",
     "cede: waiting for 3.0 GiB on GPU 1, at most 120 s; memory is held or reserved by: #4 job4; "
     "#4: no host memory\n", NULL},
    {"run -q --memory=3G@1 true", {ADDED, WAITS, ROOM}, 0, "", "", NULL},
    /* There is room; a scheduler of before knows of none; somebody has detached it. */
    {"run --memory=3G true", {OK ",'job':{'number':12,'room':true}}"}, 0, "", "", NULL},
    {"run --memory=3G true", {OK ",'job':{'number':12}}"}, 0, "", "", NULL},
    {"run -q --memory=3G true", {ADDED, WAITS, PAGE}, 0, "", "", NULL},
    /* The time is over. */
    {"run -clatency --memory=3G --wait=1ms true", {ADDED, PAGE, WAITS, OK ",'job':{}}"}, 0, "",
     "cede: 'true' runs anyway: 3.0 GiB were not free on GPU 0", NULL},
    {"run --strict -cbatch --memory=3G --wait=0 false", {ADDED, OK ",'job':{}}"}, 1, "",
     "cede: 'false' was not run: 3.0 GiB were not free", NULL},
    /* That it starts without room the daemon is told, so that nobody waits behind it. */
    {"run -cbatch --memory=3G --wait=0 true", {ADDED, OK ",'job':{'number':12}}"}, 0, "",
     "cede: 'true' runs anyway",
     "'run':true,'memory_bytes':3221225472 'run':true,'started':true,'memory_bytes':3221225472"},
    /* It cannot be, or is not to be. */
    {"run --memory=3G true", {NO(22) "'there is no GPU 7'}"}, 2, "",
     "cede: 'true' was not run: there is no GPU 7", NULL},
    {"run -cbatch --memory=3G true", {NO(122) "'too many wait'}"}, 1, "",
     "cede: 'true' was not run: too many wait", NULL},
};
/* clang-format on */

TEST_TALKS(talks)
