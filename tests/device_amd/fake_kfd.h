/* A stand-in for AMD's compute driver: a sysfs tree in a directory of its own, and the ioctls with
 * the checks, states and races that the kernel's source has. It checks every argument it gets. */
#ifndef FAKE_KFD_H
#define FAKE_KFD_H

#include "gpu/amd/kfd.h"

struct fake_queue {
    uint32_t number, gpu_id, type;
    bool there, suspended, is_new, stuck; /* stuck: the hardware does not answer */
};
struct fake_process {
    struct proc_id id;
    bool alive, foreign_tracer, debugged, by_us, traced;
    uint32_t runtime_state;
    struct fake_queue queues[16];
};
struct fake_kfd {
    struct kfd_io io;
    char root[64];
    uint32_t minor;
    struct fake_process processes[4];
    unsigned traps, enables, disables; /* calls */
    /* Called once, before the next SUSPEND_QUEUES is carried out. */
    void (*race)(struct fake_kfd *k);
};

void fake_kfd_init(struct fake_kfd *k); /* GPUs 0x1111 (bus 0x23) and 0x2222 (bus 0x03) */
void fake_kfd_free(struct fake_kfd *k);

struct fake_process *fake_process(struct fake_kfd *k, unsigned i, pid_t pid, uint64_t start);
struct fake_queue *fake_queue(struct fake_kfd *k, struct fake_process *p, uint32_t number,
                              uint32_t gpu_id, uint32_t type);
struct fake_queue *fake_queue_at(struct fake_process *p, uint32_t number); /* NULL: none */
void fake_queue_destroy(struct fake_kfd *k, struct fake_process *p, struct fake_queue *q);
void fake_exit(struct fake_kfd *k, struct fake_process *p);
/* What the kernel does when the process that enabled debug mode dies. */
void fake_we_die(struct fake_kfd *k);

void fake_write(const struct fake_kfd *k, const char *text, const char *fmt, ...) PRINTF_LIKE(3, 4);

#endif
