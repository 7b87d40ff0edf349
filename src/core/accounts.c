/* Accounts: which jobs share one, and the terms that the configuration gives to named ones. Also
 * checks that floors can be kept together. See model.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/model.h"

static void account_emit(struct model *m, uint32_t slot)
{
    const struct model_account *a = &m->accounts[slot];
    model_emit(m, (struct sched_event){.type = EV_ACCOUNT,
                                       .account = slot,
                                       .weight = a->weight ? a->weight : WEIGHT_DEFAULT,
                                       .gpu_min = a->gpu_min / 100.0,
                                       .gpu_max = a->gpu_max / 100.0});
}

static uint32_t account_find(const struct model *m, const char *name, uid_t uid)
{
    for (uint32_t i = 0; i < m->accounts_end; i++) {
        const struct model_account *a = &m->accounts[i];
        if (a->used && strcmp(a->name, name) == 0 && (*name || a->uid == uid))
            return i;
    }
    return SLOT_NONE;
}

/* There are as many slots as jobs and names together, so a free one always exists. The hand goes
 * round, so that an account without jobs keeps its slot, and its history, as long as possible. */
static uint32_t account_slot(struct model *m)
{
    for (;; m->account_hand++) {
        uint32_t i = m->account_hand % MODEL_ACCOUNTS;
        if (!m->accounts[i].jobs && !m->accounts[i].weight) {
            m->account_hand = i + 1;
            m->accounts_end = i >= m->accounts_end ? i + 1 : m->accounts_end;
            return i;
        }
    }
}

uint32_t model_account(struct model *m, const char *name, uid_t uid)
{
    uint32_t slot = account_find(m, name, uid);
    if (slot != SLOT_NONE)
        return slot;
    slot = account_slot(m);
    struct model_account *a = &m->accounts[slot];
    *a = (struct model_account){.used = true, .uid = uid};
    snprintf(a->name, sizeof(a->name), "%s", name);
    account_emit(m, slot);
    return slot;
}

void model_accounts_forget(struct model *m)
{
    for (uint32_t i = 0; i < m->accounts_end; i++) {
        struct model_account *a = &m->accounts[i];
        if (!a->weight)
            continue;
        a->weight = a->gpu_min = a->gpu_max = 0;
        account_emit(m, i);
    }
}

void model_account_set(struct model *m, const char *name, const struct job_terms *terms)
{
    uint32_t slot = model_account(m, name, 0);
    struct model_account *a = &m->accounts[slot];
    a->weight = terms->weight;
    a->gpu_min = terms->gpu_min;
    a->gpu_max = terms->gpu_max;
    account_emit(m, slot);
}

/* ---- floors ---- */

/* The sum of floors of an account's jobs on a GPU, without job `but` and with `more` added, or the
 * account's own floor if that is larger. */
static uint32_t promised(const struct model *m, uint32_t account, unsigned gpu, uint32_t but,
                         uint32_t more)
{
    uint32_t sum = more;
    for_each_job (m, j) {
        if (j->account == account && model_job_slot(m, j) != but && j->rec.gpu_min &&
            (model_job_gpus(m, j) >> gpu & 1))
            sum += j->rec.gpu_min;
    }
    uint32_t own = m->accounts[account].gpu_min;
    return sum > own ? sum : own;
}

int model_floors_check(const struct model *m, uint32_t job, const char *account, uid_t uid,
                       const struct job_terms *terms, struct error *err)
{
    uint32_t own = account_find(m, account, uid), least = UINT32_MAX;
    unsigned where = 0;
    const uint32_t on = job == SLOT_NONE ? 0 : model_job_gpus(m, &m->jobs[job]);
    if (!terms->gpu_min)
        return 0;
    if (own != SLOT_NONE && m->accounts[own].gpu_max && terms->gpu_min > m->accounts[own].gpu_max)
        return error_set(err, -ERANGE, "gpu-min %u%%: account %s has %u%% of a GPU at most",
                         terms->gpu_min, account, m->accounts[own].gpu_max);
    for (unsigned d = 0; d < m->ngpus; d++) {
        uint32_t others = 0, sum;
        for (uint32_t i = 0; i < m->accounts_end; i++)
            others += i != own && m->accounts[i].used ? promised(m, i, d, job, 0) : 0;
        sum =
            others + (own == SLOT_NONE ? terms->gpu_min : promised(m, own, d, job, terms->gpu_min));
        uint32_t left = terms->gpu_min + 100 < sum ? 0 : terms->gpu_min + 100 - sum;
        if ((on >> d & 1) && sum > 100)
            return error_set(err, -ERANGE,
                             "gpu-min %u%%: %u%% of GPU %u is promised to others, so %u%% is left",
                             terms->gpu_min, sum - terms->gpu_min, d, left);
        where = sum < least ? d : where;
        least = sum < least ? sum : least;
    }
    if (!on && least != UINT32_MAX && least > 100)
        return error_set(
            err, -ERANGE,
            "gpu-min %u%%: no GPU has so much left; of GPU %u, which has most, %u%% is "
            "promised to others",
            terms->gpu_min, where, least - terms->gpu_min);
    return 0;
}
