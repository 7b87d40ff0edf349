/* See fabric.h. Nothing changes between two events of any engine, so it is enough to compare at
 * each event which ranks run. */
#include "device/soft/fabric.h"

/* Each collective whose ranks all run goes on, each other one waits. */
static void fabric_couple(struct fabric *f)
{
    struct softgpu_rank v[FABRIC_ENGINES][SOFTGPU_STREAMS];
    uint32_t n[FABRIC_ENGINES];
    for (uint32_t i = 0; i < f->n; i++)
        n[i] = softgpu_ranks(f->engines[i], v[i]);
    for (uint32_t i = 0; i < f->n; i++) {
        for (uint32_t k = 0; k < n[i]; k++) {
            uint32_t present = 0;
            for (uint32_t j = 0; j < f->n; j++) {
                for (uint32_t l = 0; l < n[j]; l++)
                    present += v[j][l].collective == v[i][k].collective;
            }
            softgpu_meet(f->engines[i], v[i][k].kernel, present >= v[i][k].ranks);
        }
    }
}

uint64_t fabric_next_event_ns(struct fabric *f)
{
    uint64_t next = SOFTGPU_NEVER;
    fabric_couple(f);
    for (uint32_t i = 0; i < f->n; i++) {
        uint64_t t = softgpu_next_event_ns(f->engines[i]);
        next = t < next ? t : next;
    }
    return next;
}

void fabric_advance(struct fabric *f, uint64_t to_ns)
{
    for (uint64_t t; (t = fabric_next_event_ns(f)) <= to_ns && t != SOFTGPU_NEVER;) {
        for (uint32_t i = 0; i < f->n; i++)
            softgpu_advance(f->engines[i], t);
    }
    for (uint32_t i = 0; i < f->n; i++)
        softgpu_advance(f->engines[i], to_ns);
    fabric_couple(f);
}
