/* Between a program that holds its own submissions (src/gate) and the daemon's driver for it
 * (src/device/gate): a SOCK_SEQPACKET socket and two pages. The daemon writes the control page,
 * which the program can only read; the program writes its slot, of which the daemon trusts
 * nothing that could hurt others. Layouts are shared between builds of one version only:
 * the other side's version is checked first. */
#ifndef CEDE_LIB_GATE_PROTO_H
#define CEDE_LIB_GATE_PROTO_H

#include <stdatomic.h>
#include <stdint.h>

#define GATE_MAGIC   0x45544147U /* GATE */
#define GATE_VERSION 2U
#define GATE_DEVICES 8U    /* of one program */
#define GATE_PAGE    65536 /* bytes of either page: a page on every architecture */

enum gate_state {
    GATE_ACTIVE = 1, /* somebody else may want the device: work is counted */
    GATE_CLOSED = 2, /* nothing new may be submitted */
};

struct gate_control {
    _Atomic uint32_t any;  /* a device is active; all a submission looks at otherwise */
    _Atomic uint32_t beat; /* changes about once a second: the daemon lives */
    struct {
        _Atomic uint32_t state;    /* enum gate_state; a futex */
        _Atomic uint32_t limit_us; /* what may be queued; 0: any amount */
    } device[GATE_DEVICES];
};

struct gate_slot {
    struct {
        _Atomic uint32_t wants;   /* has work queued, or waits to queue some */
        _Atomic uint64_t busy_ns; /* device time, ever */
        _Atomic uint64_t ended;   /* changes when work ends: a want without it is not believed */
    } device[GATE_DEVICES];
};

enum gate_type {
    GATE_HELLO = 1, /* magic, version; answered by GATE_WELCOME with both pages' descriptors */
    GATE_WELCOME,
    GATE_DEVICE, /* device, level, name, id: the program has begun to use it */
    GATE_DEMAND, /* device: its `wants` has changed. Only the first 8 bytes are sent */
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
