/* Fuzz target for messages: what is accepted is within the documented ranges, and says the same
 * when it is written out and read again; what is refused comes with a reason. No I/O. */
#include "api/proto.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct request a, b;
    struct error err = {""};
    if (proto_parse((const char *)data, size, &a, &err) < 0) {
        require(err.text[0] != '\0' && !a.op && !a.given);
        for (const char *p = err.text; *p; p++)
            require((unsigned char)*p >= ' ' && (unsigned char)*p < 0x7f);
        return 0;
    }
    require(a.pid >= 0 && a.number <= INT64_MAX);
    require(!(a.given & TERM(weight)) || (a.weight >= WEIGHT_MIN && a.weight <= WEIGHT_MAX));
    require((unsigned)a.class < CLASS_COUNT);
    require((unsigned)a.preempt < PREEMPT_COUNT && a.min_speed <= 100 &&
            (unsigned)a.memory_over < MEMORY_OVER_COUNT && a.memory_max_mib <= MEMORY_MAX_MIB);
    if (a.link) {
        require(a.memory_bytes <= MEMORY_MAX_BYTES && a.wait_us <= ACQUIRE_WAIT_US && !a.pid);
        return 0;
    }
    require(!a.name[0] || proto_name_ok(a.name));
    if (a.op == OP_IDENTITY)
        require(a.cgroup[0] == '/' && pairs_valid((struct pairs){a.facts, a.nfacts}));
    else if (a.op != OP_PS && a.op != OP_POLICY && a.op != OP_TRACE && a.op != OP_RULES &&
             a.op != OP_YIELD && a.op != OP_ACQUIRE)
        require(a.pid || a.number || a.name[0]);

    char *text = proto_format(&a);
    require(text && proto_parse(text, strlen(text), &b, NULL) == 0);
    require(a.has_owner == b.has_owner && a.owner == b.owner);
    require(a.op == b.op && a.pid == b.pid && a.number == b.number && strcmp(a.name, b.name) == 0 &&
            a.given == b.given && memcmp(&a.terms, &b.terms, sizeof(a.terms)) == 0 &&
            a.memory_bytes == b.memory_bytes && a.gpu == b.gpu && a.release == b.release &&
            a.run == b.run);
    require(strcmp(a.cgroup, b.cgroup) == 0 && a.nfacts == b.nfacts &&
            memcmp(a.facts, b.facts, a.nfacts) == 0);
    free(text);
    return 0;
}
