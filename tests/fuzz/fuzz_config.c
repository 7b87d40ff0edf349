/* Fuzz target for the configuration file: what is accepted is fit for use, and what is refused is
 * told with file and line and leaves the output alone. Looks up users and groups, no other I/O. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "control/config.h"
#include "control/proto.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok)
{
    if (!ok)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct config c = {.nrules = 7777};
    struct error err = {""};
    unsigned line;
    if (config_parse("f", (const char *)data, size, &c, &err) < 0) {
        require(sscanf(err.text, "f:%u: ", &line) == 1 && line >= 1);
        require(c.nrules == 7777);
        return 0;
    }
    const struct param *what;
    require(params_check(&c.params, &what) == 0);
    require(c.nrules <= CONFIG_RULES_MAX && c.device[0] && c.policy[0]);
    for (size_t i = 0; i < c.nrules; i++) {
        const struct rule *r = &c.rules[i];
        const struct request *q = &r->request;
        require(q->has_class && (unsigned)q->class < CLASS_COUNT && r->title[0]);
        require(!q->has_weight || (q->weight >= WEIGHT_MIN && q->weight <= WEIGHT_MAX));
        require(r->has_uid || r->exe[0] || r->cgroup[0] || r->container[0]);
        require(!q->name[0] || proto_name_ok(q->name));
        /* Patterns of strangers against names of strangers: has to end. */
        (void)rule_matches(r, &(struct rule_facts){0, "/usr/bin/aaaaaaaaaaaaaaaaaaaaaaaaab",
                                                   "/a.slice/docker-0123456789abcdef.scope"});
    }
    config_free(&c);
    return 0;
}
