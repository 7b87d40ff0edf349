/* Processes and roots that have ended. */
#ifndef CEDE_ENGINE_OBSERVE_EXITS_H
#define CEDE_ENGINE_OBSERVE_EXITS_H

#include "model/model.h"

/* Removes them from the model, those whose pidfd was readable (engine/watch.h). */
void exits_reap(struct model *m);

#endif
