/* The AMD driver against a stand-in for the kernel: discovery, suspension, and everything that can
 * come in between. It proves nothing about hardware. */
#include <linux/kfd_ioctl.h>

#include "../test.h"
#include "base/gate_proto.h"
#include "fake_kfd.h"
#include "gpu/gate/gate.h"
#include "gpu/mux.h"

/* The declarations in kfd.h are the header's. */
#define SAME(a, b)             _Static_assert((uint32_t)(a) == (uint32_t)(b), #b) /* enums differ */
#define SAME_SIZE(a, b)        _Static_assert(sizeof(struct a) == sizeof(struct b), #b)
#define SAME_PLACE(a, x, b, y) _Static_assert(offsetof(struct a, x) == offsetof(struct b, y), #y)
SAME(KFD_IOC_VERSION, AMDKFD_IOC_GET_VERSION);
SAME_SIZE(kfd_version, kfd_ioctl_get_version_args);
SAME(KFD_IOC_UPDATE_QUEUE, AMDKFD_IOC_UPDATE_QUEUE);
SAME_SIZE(kfd_update_queue, kfd_ioctl_update_queue_args);
SAME_PLACE(kfd_update_queue, ring, kfd_ioctl_update_queue_args, ring_base_address);
SAME_PLACE(kfd_update_queue, number, kfd_ioctl_update_queue_args, queue_id);
SAME_PLACE(kfd_update_queue, ring_size, kfd_ioctl_update_queue_args, ring_size);
SAME_PLACE(kfd_update_queue, percentage, kfd_ioctl_update_queue_args, queue_percentage);
SAME_PLACE(kfd_update_queue, priority, kfd_ioctl_update_queue_args, queue_priority);
SAME(KFD_IOCTL_MAJOR_VERSION, 1);
#ifdef AMDKFD_IOC_DBG_TRAP /* 1.13 */
SAME(KFD_IOC_TRAP, AMDKFD_IOC_DBG_TRAP);
SAME_SIZE(kfd_trap, kfd_ioctl_dbg_trap_args);
SAME_SIZE(kfd_runtime, kfd_runtime_info);
SAME_SIZE(kfd_queue_entry, kfd_queue_snapshot_entry);
SAME_PLACE(kfd_trap, enable, kfd_ioctl_dbg_trap_args, enable);
SAME_PLACE(kfd_trap, enable.runtime, kfd_ioctl_dbg_trap_args, enable.rinfo_ptr);
SAME_PLACE(kfd_trap, enable.runtime_size, kfd_ioctl_dbg_trap_args, enable.rinfo_size);
SAME_PLACE(kfd_trap, enable.event_fd, kfd_ioctl_dbg_trap_args, enable.dbg_fd);
SAME_PLACE(kfd_trap, suspend.queues, kfd_ioctl_dbg_trap_args, suspend_queues.queue_array_ptr);
SAME_PLACE(kfd_trap, suspend.count, kfd_ioctl_dbg_trap_args, suspend_queues.num_queues);
SAME_PLACE(kfd_trap, suspend.grace, kfd_ioctl_dbg_trap_args, suspend_queues.grace_period);
SAME_PLACE(kfd_trap, resume.queues, kfd_ioctl_dbg_trap_args, resume_queues.queue_array_ptr);
SAME_PLACE(kfd_trap, resume.count, kfd_ioctl_dbg_trap_args, resume_queues.num_queues);
SAME_PLACE(kfd_trap, snapshot.entries, kfd_ioctl_dbg_trap_args, queue_snapshot.snapshot_buf_ptr);
SAME_PLACE(kfd_trap, snapshot.count, kfd_ioctl_dbg_trap_args, queue_snapshot.num_queues);
SAME_PLACE(kfd_queue_entry, number, kfd_queue_snapshot_entry, queue_id);
SAME_PLACE(kfd_runtime, state, kfd_runtime_info, runtime_state);
SAME(KFD_TRAP_ENABLE, KFD_IOC_DBG_TRAP_ENABLE);
SAME(KFD_TRAP_DISABLE, KFD_IOC_DBG_TRAP_DISABLE);
SAME(KFD_TRAP_SUSPEND_QUEUES, KFD_IOC_DBG_TRAP_SUSPEND_QUEUES);
SAME(KFD_TRAP_RESUME_QUEUES, KFD_IOC_DBG_TRAP_RESUME_QUEUES);
SAME(KFD_TRAP_QUEUE_SNAPSHOT, KFD_IOC_DBG_TRAP_GET_QUEUE_SNAPSHOT);
SAME(KFD_RUNTIME_ENABLED, DEBUG_RUNTIME_STATE_ENABLED);
SAME(KFD_RUNTIME_BUSY, DEBUG_RUNTIME_STATE_ENABLED_BUSY);
SAME(KFD_QUEUE_ERROR, KFD_DBG_QUEUE_ERROR_MASK);
SAME(KFD_QUEUE_INVALID, KFD_DBG_QUEUE_INVALID_MASK);
SAME(KFD_EXCEPTION_NEW, KFD_EC_MASK(EC_QUEUE_NEW));
#endif

struct world {
    struct fake_kfd k;
    struct device_driver *d;
    struct fake_process *p;
    struct fake_queue *a, *b, *copy;
    struct group_list groups;
    const struct device_group *all[8];
    struct error err;
};

static void rescan(struct world *w)
{
    w->groups.n = 0;
    assert_int_equal(w->d->ops->scan(w->d, w->p->id, &w->groups, &w->err), 0);
    for (size_t i = 0; i < w->groups.n; i++)
        w->all[i] = &w->groups.v[i];
}

static int set_up(void **state)
{
    struct world *w = calloc(1, sizeof(*w));
    fake_kfd_init(&w->k);
    w->p = fake_process(&w->k, 0, 700, 7);
    w->a = fake_queue(&w->k, w->p, 3, 0x1111, KFD_COMPUTE);
    w->b = fake_queue(&w->k, w->p, 11, 0x1111, KFD_COMPUTE);
    w->copy = fake_queue(&w->k, w->p, 0, 0x1111, KFD_SDMA);
    assert_int_equal(kfd_driver_open(&w->k.io, &w->d, &w->err), 0);
    rescan(w);
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    device_close(w->d);
    group_list_free(&w->groups);
    fake_kfd_free(&w->k);
    free(w);
    return 0;
}

#define WORLD_TEST(name) TEST_IN(name, struct world *w, set_up, tear_down)

static int suspend(struct world *w)
{
    w->err.text[0] = '\0';
    return w->d->ops->set_running(w->d, w->all, w->groups.n, false, &w->err);
}

static int resume_first(struct world *w, size_t n)
{
    return w->d->ops->set_running(w->d, w->all, n, true, &w->err);
}

static int resume(struct world *w)
{
    return resume_first(w, w->groups.n);
}

/* The three queues of the first process on GPU 0. */
static void is_suspended(const struct world *w, bool suspended)
{
    assert_int_equal(w->a->suspended, suspended);
    assert_int_equal(w->b->suspended, suspended);
    assert_int_equal(w->copy->suspended, suspended);
}

WORLD_TEST(test_gpus)
{
    struct gpu_info a, b;
    assert_int_equal(w->d->ops->gpus(w->d), 2);
    assert_int_equal(w->d->ops->info(w->d, 0, &a), 0);
    assert_int_equal(w->d->ops->info(w->d, 1, &b), 0);
    assert_int_equal(w->d->ops->info(w->d, 2, &b), -EINVAL);
    assert_string_equal(a.bus_id, "0000:23:00.0");
    assert_string_equal(a.name, "AMD gfx90a");
    assert_string_equal(a.uuid, "GPU-1122334455667788");
    assert_true(a.memory_bytes == 68702699520ULL);
    assert_int_equal(a.caps, GPU_CAP_SUSPEND);
    assert_string_equal(b.bus_id, "0001:03:00.0");
    assert_string_equal(b.name, "AMD gfx1100");
    assert_int_equal(b.caps, 0); /* its firmware cannot */
}

WORLD_TEST(test_scan)
{
    fake_queue(&w->k, w->p, 5, 0x2222, KFD_SDMA_XGMI);
    fake_queue(&w->k, w->p, 6, 0x1111, KFD_HIQ);     /* the kernel's own */
    fake_queue(&w->k, w->p, 7, 0x9999, KFD_COMPUTE); /* a GPU that is kept from us */
    fake_write(&w->k, "nonsense\n", "proc/700/queues/8/gpuid");
    fake_write(&w->k, "4369\n", "proc/700/queues/9x/gpuid");
    rescan(w);
    assert_int_equal(w->groups.n, 1); /* on the other GPU there is a copy queue only */
    assert_int_equal(w->groups.v[0].kind, GROUP_COMPUTE);
    assert_int_equal(w->groups.v[0].gpu, 0);
    static const uint32_t numbers[] = {0, 3, 11};
    assert_int_equal(w->groups.v[0].nchannels, 3);
    assert_memory_equal(w->groups.v[0].channels, numbers, sizeof(numbers));
    fake_queue(&w->k, w->p, 2, 0x2222, KFD_COMPUTE);
    rescan(w);
    assert_int_equal(w->groups.n, 2);
    assert_int_equal(w->groups.v[1].gpu, 1);
    assert_int_equal(w->groups.v[1].nchannels, 2);
    assert_true(w->groups.v[0].key != w->groups.v[1].key);
    struct proc_id earlier = {.pid = 700, .start_ticks = 6}, none = {.pid = 701, .start_ticks = 1};
    assert_int_equal(w->d->ops->scan(w->d, earlier, &w->groups, &w->err), -ESRCH);
    assert_int_equal(w->d->ops->scan(w->d, none, &w->groups, &w->err), -ESRCH);
    assert_int_equal(w->groups.n, 2);
}

WORLD_TEST(processes_and_memory)
{
    _cleanup_(pid_list_free) struct pid_list pids = {0};
    _cleanup_(usage_list_free) struct usage_list usage = {0};
    fake_process(&w->k, 1, 800, 8); /* has opened the device and no more */
    fake_write(&w->k, "4096\n", "proc/700/vram_4369");
    fake_write(&w->k, "0\n", "proc/700/vram_8738");
    assert_int_equal(w->d->ops->processes(w->d, &pids, &w->err), 0);
    assert_int_equal(pids.n, 1);
    assert_int_equal(pids.v[0], 700);
    assert_int_equal(w->d->ops->usage(w->d, &usage, &w->err), 0);
    assert_int_equal(usage.n, 1);
    assert_int_equal(usage.v[0].memory_bytes, 4096);
    assert_int_equal(usage.v[0].gpu, 0);
    assert_true(usage.v[0].busy < 0);
}

WORLD_TEST(suspend_resume)
{
    struct fake_process *other = fake_process(&w->k, 1, 800, 8);
    struct fake_queue *theirs = fake_queue(&w->k, other, 3, 0x1111, KFD_COMPUTE);
    struct fake_queue *second = fake_queue(&w->k, w->p, 21, 0x2222, KFD_COMPUTE);
    rescan(w);
    assert_int_equal(w->groups.n, 2);
    assert_int_equal(suspend(w), 0);
    is_suspended(w, true);
    assert_true(second->suspended);
    assert_false(theirs->suspended);
    assert_int_equal(suspend(w), 0); /* idempotent */
    assert_int_equal(w->k.enables, 1);
    assert_int_equal(resume_first(w, 1), 0);
    is_suspended(w, false);
    assert_true(second->suspended && w->p->debugged);
    rescan(w);
    assert_false(w->a->suspended); /* a scan keeps what is suspended, and only that */
    assert_int_equal(resume(w), 0);
    assert_false(second->suspended);
    assert_false(w->p->debugged); /* nothing is left behind */
    unsigned traps = w->k.traps;
    assert_int_equal(resume(w), 0);
    assert_int_equal(w->k.traps, traps);
}

/* Two processes in one call: each has its own controls, and one that refuses keeps none from the
 * other. */
WORLD_TEST(two_processes)
{
    struct fake_process *other = fake_process(&w->k, 1, 800, 8);
    struct fake_queue *theirs = fake_queue(&w->k, other, 3, 0x1111, KFD_COMPUTE);
    assert_int_equal(w->d->ops->scan(w->d, other->id, &w->groups, &w->err), 0);
    assert_int_equal(w->groups.n, 2);
    w->all[0] = &w->groups.v[0];
    w->all[1] = &w->groups.v[1];
    assert_int_equal(suspend(w), 0);
    assert_true(w->a->suspended && theirs->suspended);
    assert_int_equal(resume(w), 0);
    assert_false(w->a->suspended || theirs->suspended);
    w->p->foreign_tracer = true;
    assert_int_equal(suspend(w), -EIO); /* not -EPERM: something was done */
    assert_true(!w->a->suspended && theirs->suspended);
    assert_int_equal(resume(w), 0);
    other->foreign_tracer = true;
    assert_int_equal(suspend(w), -EPERM);
    assert_false(w->a->suspended || theirs->suspended);
}

WORLD_TEST(timeslice)
{
    assert_int_equal(w->d->ops->set_timeslice(w->d, w->all[0], 1000, &w->err), -ENOTSUP);
    assert_int_equal(w->k.traps, 0);
}

WORLD_TEST(old_kernel)
{
    struct gpu_info info;
    device_close(w->d);
    w->k.minor = KFD_DEBUG_MINOR - 1;
    assert_int_equal(kfd_driver_open(&w->k.io, &w->d, &w->err), 0);
    assert_int_equal(w->d->ops->info(w->d, 0, &info), 0);
    assert_int_equal(info.caps, 0);
    assert_int_equal(suspend(w), -ENOTSUP);
    assert_int_equal(w->k.traps, 0);
}

WORLD_TEST(refusals)
{
    w->p->foreign_tracer = true;
    assert_int_equal(suspend(w), -EPERM);
    assert_int_equal(w->k.traps, 0); /* the debugger's session is not touched */
    w->p->foreign_tracer = false;

    w->p->debugged = true; /* it debugs itself */
    assert_int_equal(suspend(w), -EPERM);
    assert_non_null(strstr(w->err.text, "debugger"));
    assert_true(w->p->debugged);
    w->p->debugged = false;

    static const struct {
        uint32_t state;
        const char *text;
    } states[] = {{KFD_RUNTIME_DISABLED, "announced"},
                  {KFD_RUNTIME_BUSY, "one process at a time"},
                  {KFD_RUNTIME_ERROR, "set up"},
                  {99, "unknown"}};
    for (size_t i = 0; i < ARRAY_SIZE(states); i++) {
        w->p->runtime_state = states[i].state;
        assert_int_equal(suspend(w), -EPERM);
        assert_non_null(strstr(w->err.text, states[i].text));
        assert_false(w->p->debugged);
    }
    w->p->runtime_state = KFD_RUNTIME_ENABLED;
    assert_int_equal(suspend(w), 0);
}

/* A debugger came after we suspended: what was asked runs, and so does the rest. */
WORLD_TEST(debugger_comes_later)
{
    fake_queue(&w->k, w->p, 21, 0x2222, KFD_COMPUTE);
    rescan(w);
    assert_int_equal(suspend(w), 0);
    w->p->foreign_tracer = true;
    assert_int_equal(resume_first(w, 1), 0);
    is_suspended(w, false);
    assert_false(w->p->debugged);
}

static void destroy_b(struct fake_kfd *k)
{
    struct fake_process *p = &k->processes[0];
    fake_queue_destroy(k, p, fake_queue_at(p, 11));
}

static void replace_b(struct fake_kfd *k)
{
    destroy_b(k);
    fake_queue(k, &k->processes[0], 11, 0x1111, KFD_COMPUTE);
}

static void create_another(struct fake_kfd *k)
{
    fake_queue(k, &k->processes[0], 12, 0x1111, KFD_COMPUTE);
}

WORLD_TEST(races)
{
    /* A queue goes between list and suspend: the others are suspended. */
    w->k.race = destroy_b;
    assert_int_equal(suspend(w), 0);
    assert_true(w->a->suspended && w->copy->suspended);
    rescan(w);
    assert_int_equal(w->groups.v[0].nchannels, 2);
    assert_int_equal(resume(w), 0);
    assert_false(w->p->debugged);

    /* Its number is used again, by a queue that the kernel calls new. */
    w->b = fake_queue(&w->k, w->p, 11, 0x1111, KFD_COMPUTE);
    w->k.race = replace_b;
    assert_int_equal(suspend(w), 0);
    assert_true(w->b->suspended);
    assert_int_equal(resume(w), 0);

    /* One comes: it is suspended in the same call. */
    w->k.race = create_another;
    assert_int_equal(suspend(w), 0);
    for (size_t i = 0; i < 4; i++)
        assert_true(w->p->queues[i].there && w->p->queues[i].suspended);

    /* One comes later: the next scan suspends it. */
    struct fake_queue *late = fake_queue(&w->k, w->p, 13, 0x1111, KFD_COMPUTE);
    struct fake_queue *elsewhere = fake_queue(&w->k, w->p, 14, 0x2222, KFD_COMPUTE);
    rescan(w);
    assert_true(late->suspended);
    assert_false(elsewhere->suspended);
    assert_int_equal(w->k.enables, 3);
    assert_int_equal(resume(w), 0);
    assert_false(w->p->debugged || late->suspended);
}

/* Everything is gone before the first look. */
WORLD_TEST(no_queues)
{
    fake_queue_destroy(&w->k, w->p, w->a);
    fake_queue_destroy(&w->k, w->p, w->b);
    fake_queue_destroy(&w->k, w->p, w->copy);
    assert_int_equal(suspend(w), -ENOENT);
    assert_false(w->p->debugged);
    assert_int_equal(resume(w), 0);
}

WORLD_TEST(hardware_error)
{
    w->a->stuck = w->b->stuck = w->copy->stuck = true;
    assert_int_equal(suspend(w), -EIO);
    assert_false(w->p->debugged);
    w->a->stuck = w->copy->stuck = false;
    assert_int_equal(suspend(w), -EIO);
    assert_non_null(strstr(w->err.text, "queue 11"));
    assert_true(w->a->suspended && w->copy->suspended && !w->b->suspended);
    assert_int_equal(resume(w), 0);
    assert_false(w->a->suspended || w->copy->suspended || w->p->debugged);
}

WORLD_TEST(target_dies)
{
    assert_int_equal(suspend(w), 0);
    fake_exit(&w->k, w->p);
    unsigned traps = w->k.traps;
    assert_int_equal(suspend(w), -ESRCH);
    /* Somebody else gets the pid, and is debugged by somebody: not our affair. */
    struct fake_process *q = fake_process(&w->k, 1, 700, 99);
    q->debugged = true;
    assert_int_equal(resume(w), 0);
    w->d->ops->forget(w->d, 700);
    assert_int_equal(w->k.traps, traps);
    assert_true(q->debugged);
    w->p = &w->k.processes[0];
}

static void exit_700(struct fake_kfd *k)
{
    fake_exit(k, &k->processes[0]);
}

WORLD_TEST(target_dies_meanwhile)
{
    w->k.race = exit_700;
    assert_true(suspend(w) < 0);
    assert_int_equal(suspend(w), -ESRCH);
    assert_int_equal(resume(w), 0);
}

/* The program replaced itself: queues and debug mode are new. */
WORLD_TEST(exec)
{
    assert_int_equal(suspend(w), 0);
    w->p->debugged = false;
    for (size_t i = 0; i < 3; i++)
        w->p->queues[i].suspended = false;
    assert_int_equal(suspend(w), 0);
    assert_true(w->a->suspended && w->b->suspended && w->p->debugged);
    w->p->debugged = false;
    assert_int_equal(resume_first(w, 1), 0);
}

/* kill -9 of the daemon: the kernel undoes; a restorer's driver finds nothing to do. */
WORLD_TEST(we_die)
{
    struct device_driver *restorer;
    assert_int_equal(suspend(w), 0);
    fake_we_die(&w->k);
    assert_false(w->a->suspended);
    assert_int_equal(kfd_driver_open(&w->k.io, &restorer, &w->err), 0);
    unsigned traps = w->k.traps;
    assert_int_equal(restorer->ops->set_running(restorer, w->all, w->groups.n, true, &w->err), 0);
    assert_int_equal(w->k.traps, traps);
    device_close(restorer);
}

WORLD_TEST(close_and_forget)
{
    assert_int_equal(suspend(w), 0);
    w->d->ops->forget(w->d, 700);
    assert_false(w->p->debugged || w->a->suspended);
    assert_int_equal(suspend(w), 0);
    device_close(w->d);
    assert_false(w->p->debugged || w->a->suspended || w->b->suspended);
    assert_int_equal(kfd_driver_open(&w->k.io, &w->d, &w->err), 0);
}

/* Beside a driver that suspends queues the HIP gate does not schedule, or a job that has one's turn
 * would wait for the other's. */
WORLD_TEST(hip_gate)
{
    for (int can = 0; can < 2; can++) {
        struct mux_part parts[2] = {{.ops = &device_amd, .gpus = 2}, {.ops = &device_gate}};
        struct device_driver *both;
        w->k.minor = can ? KFD_DEBUG_MINOR : KFD_DEBUG_MINOR - 1;
        assert_int_equal(kfd_driver_open(&w->k.io, &parts[0].driver, &w->err), 0);
        assert_int_equal(device_gate.open(NULL, &parts[1].driver, &w->err), 0);
        assert_int_equal(mux_new(parts, 2, &both, &w->err), 0);
        const char *left_out = ((struct gate_driver *)parts[1].driver)->left_out;
        if (can)
            assert_string_equal(left_out, GATE_HIP_ID);
        else
            assert_null(left_out);
        device_close(both);
    }
}

WORLD_TEST(no_gpu)
{
    struct device_driver *d;
    struct kfd_io io = w->k.io;
    io.sysfs = "/nowhere";
    assert_int_equal(kfd_driver_open(&io, &d, &w->err), -ENODEV);
}
