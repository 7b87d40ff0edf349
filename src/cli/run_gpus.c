/* See run_gpus.h. */
#include "cli/run_gpus.h"

#include <errno.h>
#include <string.h>

#include "base/json_text.h"
#include "cli/cli.h"

#define VARIABLE "CUDA_VISIBLE_DEVICES"

int place_ask(struct request *r, struct error *err)
{
    const char *list = getenv(VARIABLE);
    if (!r->gpus || !list)
        return 0;
    if (strlen(list) >= sizeof(r->visible))
        return error_set(err, -EINVAL, VARIABLE " is longer than %d bytes", VISIBLE_MAX - 1);
    snprintf(r->visible, sizeof(r->visible), "%s", list);
    r->has_visible = true;
    return 0;
}

void place_enter(const struct request *r, const json_t *reply, bool quiet)
{
    const char *list = json_get_text(reply, "visible");
    const char *now = getenv(VARIABLE);
    if (!r->gpus || !list || (now && strcmp(now, list) == 0))
        return;
    if (r->has_visible && !quiet)
        cli_error("note: of " VARIABLE "=%s the program gets %s", r->visible, list);
    setenv(VARIABLE, list, 1);
}

bool place_impossible(const struct request *r, int code)
{
    return r->gpus && (code == -E2BIG || code == -EINVAL);
}

bool place_drop(struct request *r, int code, const struct error *err)
{
    const bool older = code == -EINVAL && strstr(err->text, "unknown field");
    if (!r->gpus || !(older || code == -ENOTSUP))
        return false;
    r->gpus = 0;
    r->has_visible = false;
    return true;
}
