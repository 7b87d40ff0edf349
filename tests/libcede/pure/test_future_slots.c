/* Which slots of a future map are free, at random against a model that marks slots. */
#include "../../random.h"
#include "../fixture.h"
#include "cede/future.h"
#include "libcede/pure/future_slots.h"

static struct future_slots *slots_of(uint32_t n)
{
    struct future_slots *s = NULL;
    OK(cede_slots_new(n, &s));
    return s;
}

#define SLOTS 64U

/* Slots that somebody has are never handed out; with nothing reserved all are free; positions go
 * on at 0 behind the last. */
TEST(at_random)
{
    for (unsigned run = 0; run < 20; run++) {
        struct future_slots *s = slots_of(SLOTS);
        struct {
            uint32_t at, n;
        } have[SLOTS];
        bool used[SLOTS] = {false};
        unsigned nhave = 0, refused = 0, passes = 0;
        uint32_t last = 0;
        state = run;
        s->head = s->tail = (uint64_t)CEDE_FUTURE_POSITIONS - 2000 + rnd(SLOTS);
        for (unsigned i = 0; i < 3000; i++) {
            uint32_t n = 1 + (uint32_t)rnd(1 + rnd(SLOTS)), at;
            if (rnd(2) && nhave < SLOTS) {
                uint32_t room = slots_free(s);
                int r = cede_slots_reserve(s, n, &at);
                assert_int_equal(r, n <= room ? 0 : -EAGAIN);
                refused += r != 0;
                for (uint32_t k = 0; r == 0 && k < n; k++) {
                    assert_false(used[(at + k) % SLOTS]);
                    used[(at + k) % SLOTS] = true;
                }
                if (r == 0) {
                    passes += at < last;
                    last = at;
                    have[nhave].at = at;
                    have[nhave++].n = n;
                }
            } else if (nhave) {
                unsigned which = (unsigned)rnd(nhave);
                OK(cede_slots_release(s, have[which].at));
                for (uint32_t k = 0; k < have[which].n; k++)
                    used[(have[which].at + k) % SLOTS] = false;
                have[which] = have[--nhave];
                if (nhave == 0)
                    assert_int_equal(slots_free(s), SLOTS);
            }
        }
        assert_true(refused > 0 && passes == 1);
        free(s);
    }
}
