/* Programs that talk to the gate's driver as they like, and a loop that watches its descriptors. */
#ifndef CEDE_TESTS_DEVICE_GATE_FIXTURE_H
#define CEDE_TESTS_DEVICE_GATE_FIXTURE_H

#include <sys/types.h>

#include "../test.h"
#include "base/gate_proto.h"
#include "gpu/ops.h"

extern struct device_driver *d; /* opened by begin(), listening */
extern char path[64];

int begin(void **state);
int end(void **state);

/* How many processes it lists; all are this one. */
size_t processes(void);
int connect_raw(void);
bool closed(int fd);

struct pages {
    int fd, control_fd, slot_fd;
    const struct gate_control *control;
    struct gate_slot *slot;
};
struct pages welcomed(void);
void leave(struct pages *p);
void say_device(struct pages *p, unsigned number, const char *name);
struct group_list scan(pid_t pid);
int demand(void); /* the last that was reported; -1: nothing */

void loop_begin(void);
void loop_end(void);
int loop_turn(void); /* how many descriptors were readable */

#endif
