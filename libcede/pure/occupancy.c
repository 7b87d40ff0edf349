/* See occupancy.h. */
#include "libcede/pure/occupancy.h"

#include <string.h>

#include "base/util.h"

#define WARP           32U
#define PARTITIONS     4U   /* of an SM: each has a quarter of its registers */
#define REGISTERS_UNIT 256U /* given to a warp */
#define WHOLE          1000000U

static uint64_t occupancy_round_up(uint64_t v, uint64_t unit)
{
    return (v + unit - 1) / unit * unit;
}

static uint64_t occupancy_warp_registers(uint32_t registers)
{
    return occupancy_round_up((uint64_t)registers * WARP, REGISTERS_UNIT);
}

static uint64_t occupancy_block_shared(const struct sm_limits *sm, uint32_t shared_bytes)
{
    return occupancy_round_up((uint64_t)shared_bytes + sm->reserved_bytes,
                              sm->major && sm->major < 8 ? 256 : 128);
}

static uint64_t occupancy_warps(uint32_t threads)
{
    return occupancy_round_up(threads, WARP) / WARP;
}

uint32_t cede_occupancy_blocks(const struct sm_limits *sm, uint32_t threads, uint32_t registers,
                               uint32_t shared_bytes, enum cede_limit *limit)
{
    uint64_t warps = occupancy_warps(threads), each = occupancy_warp_registers(registers);
    uint64_t shared = occupancy_block_shared(sm, shared_bytes);
    uint64_t room[CEDE_LIMIT_BLOCKS + 1];
    memset(room, 0xff, sizeof(room)); /* no limit */
    room[CEDE_LIMIT_THREADS] = warps ? sm->threads / WARP / warps : 0;
    if (sm->blocks)
        room[CEDE_LIMIT_BLOCKS] = sm->blocks;
    if (sm->registers && each && warps)
        room[CEDE_LIMIT_REGISTERS] = sm->registers / PARTITIONS / each * PARTITIONS / warps;
    if (sm->block_registers && each * occupancy_round_up(warps, PARTITIONS) > sm->block_registers)
        room[CEDE_LIMIT_REGISTERS] = 0;
    if (sm->shared_bytes && shared)
        room[CEDE_LIMIT_SHARED] = sm->shared_bytes / shared;
    *limit = CEDE_LIMIT_THREADS;
    for (unsigned i = CEDE_LIMIT_REGISTERS; i < ARRAY_SIZE(room); i++) {
        if (room[i] < room[*limit])
            *limit = i;
    }
    return (uint32_t)room[*limit];
}

uint32_t cede_occupancy_share(const struct sm_limits *sm, uint32_t sms, uint64_t blocks,
                              uint32_t threads, uint32_t registers, uint32_t shared_bytes)
{
    const struct {
        uint64_t taken, of;
    } r[] = {{occupancy_warps(threads) * WARP, sm->threads},
             {occupancy_warps(threads) * occupancy_warp_registers(registers), sm->registers},
             {shared_bytes ? occupancy_block_shared(sm, shared_bytes) : 0, sm->shared_bytes}};
    double share = 0;
    for (unsigned i = 0; sms && i < ARRAY_SIZE(r); i++) {
        double v = r[i].of ? (double)blocks * (double)r[i].taken / ((double)r[i].of * sms) : 0;
        share = v > share ? v : share;
    }
    return share < 1 ? (uint32_t)(share * WHOLE) : WHOLE;
}
