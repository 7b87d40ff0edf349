/* The protocol between a gate, which delays submissions inside a program, and the daemon's driver
 * for it (src/gpu/gate): a SOCK_SEQPACKET socket and two pages. The daemon writes the control page,
 * which the program can only read. The program writes its slot, and the daemon trusts nothing in it
 * that could hurt others. Only builds of one version share the layouts, so each side checks the
 * other's version first. */
#ifndef CEDE_BASE_GATE_PROTO_H
#define CEDE_BASE_GATE_PROTO_H

#include <stdatomic.h>
#include <stdint.h>

#define GATE_MAGIC   0x45544147U /* GATE */
#define GATE_VERSION 3U
#define GATE_DEVICES 8U    /* devices of one program */
#define GATE_PAGE    65536 /* bytes of either page: a multiple of every architecture's page */
#define GATE_HIP_ID  "hip" /* the id of all AMD GPUs of a HIP program, which count as one device */

enum gate_state {
    GATE_ACTIVE = 1, /* the program counts its work: another one may want the device */
    GATE_CLOSED = 2, /* the program must not submit anything new */
};

struct gate_control {
    _Atomic uint32_t any;  /* a device is active; while 0, a submission reads nothing else */
    _Atomic uint32_t beat; /* changes about once per second while the daemon lives */
    struct {
        _Atomic uint32_t state;    /* enum gate_state; a futex */
        _Atomic uint32_t limit_us; /* work that may be queued; 0: any amount */
    } device[GATE_DEVICES];
};

struct gate_slot {
    struct {
        _Atomic uint32_t wants;   /* the program has work queued, or waits to queue some */
        _Atomic uint32_t whole;   /* a kernel ran in one piece that should have been cut */
        _Atomic uint64_t busy_ns; /* device time since the program began */
        _Atomic uint64_t ended; /* changes when work ends; without that, `wants` is not believed */
    } device[GATE_DEVICES];
};

enum gate_type {
    GATE_HELLO = 1, /* magic, version; the answer is GATE_WELCOME with both pages' descriptors */
    GATE_WELCOME,
    GATE_DEVICE, /* device, level, name, id: the program has begun to use this device */
    GATE_DEMAND, /* device: its `wants` has changed; only the first 8 bytes are sent */
};

struct gate_msg {
    uint32_t type, device;
    uint32_t magic, version;
    uint32_t level; /* enum device_level */
    uint32_t spare;
    char name[64]; /* for people */
    char id[64];   /* the same in every program that uses this device */
};

#endif
