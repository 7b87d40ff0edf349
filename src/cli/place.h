/* `cede run --gpus`: GPUs that the daemon chooses for the program, which learns them by its
 * CUDA_VISIBLE_DEVICES. */
#ifndef CEDE_CLI_PLACE_H
#define CEDE_CLI_PLACE_H

#include <stdbool.h>

#include <jansson.h>

#include "control/proto.h"

/* What the variable says now, into a request that asks for GPUs. -EINVAL: it is too long. */
int place_ask(struct request *r, struct error *err);
/* Sets the variable to what was chosen, for this process and what it starts. Says what becomes of
 * one that was set, unless quiet. */
void place_enter(const struct request *r, const json_t *reply, bool quiet);
/* Whether a refusal is about the GPUs that were asked for, which nobody can have. */
bool place_impossible(const struct request *r, int code);
/* Whether that daemon chooses no GPUs for anybody: it is an older one, or has none to choose.
 * The request asks for none from now on. */
bool place_drop(struct request *r, int code, const struct error *err);

#endif
