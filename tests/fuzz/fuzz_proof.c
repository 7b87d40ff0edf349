/* Fuzz target for the proof that a kernel may be cut: any text gets an answer, a refusal comes with
 * a reason, and a call that tells the whole range, put where nothing can hide it, is seen. */
#include "fuzz.h"
#include "gate/opencl/proof.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char tail[] = "\nvoid whole(void) { get_global_size(0); }\n"
                               "#define k whole()\n";
    struct proof p;
    const uint8_t *zero = memchr(data, 0, size); /* source, 0, options */
    size_t n = zero ? (size_t)(zero - data) : size;
    char *source = malloc(n + sizeof(tail)), *options = strndup("", 0);
    require(source && options);
    memcpy(source, data, n);
    source[n] = '\0';
    if (zero) {
        free(options);
        options = strndup((const char *)zero + 1, size - n - 1);
        require(options);
    }
    proof_of(source, options, "k", &p);
    require(p.sliceable == !p.reason[0]);
    require(memchr(p.reason, 0, sizeof(p.reason)));
    if (p.sliceable) { /* so it ends outside of comments, quotes and continued lines */
        memcpy(source + n, tail, sizeof(tail));
        proof_of(source, options, "k", &p);
        require(!p.sliceable || (n && source[n - 1] == '\\'));
    }
    free(source);
    free(options);
    return 0;
}
