/* Fuzz target for files of checkpoints: what is accepted is what would be written again, byte by
 * byte; what is refused is named, and changes nothing but the buffer. */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "cede/slice.h"
#include "fuzz.h"

#define HEAD 56 /* bytes in front of the state */
#define MOST 65536

static char path[64];

static void put(const void *data, size_t size)
{
    FILE *f = fopen(path, "we");
    require(f && fwrite(data, 1, size, f) == size);
    require(fclose(f) == 0);
}

static void remove_file(void)
{
    unlink(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static unsigned char state[MOST], again[MOST + HEAD + 1];
    if (!path[0]) {
        snprintf(path, sizeof(path), "/tmp/cede-fuzz-checkpoint-%d", (int)getpid());
        atexit(remove_file);
    }
    if (size > MOST)
        return 0;
    put(data, size);
    size_t bytes = size > HEAD ? size - HEAD : 0;
    uint64_t done = 77;
    struct cede_checkpoint c = {.path = path, .work = 5};
    int r = cede_checkpoint_read(&c, &done, state, bytes);
    if (r < 0) {
        require(r == -EBADMSG || r == -EPROTO || r == -ESTALE);
        require(done == 77 && strstr(c.error, path));
        return 0;
    }
    require(cede_checkpoint_write(&c, done, state, bytes) == 0);
    FILE *f = fopen(path, "re");
    require(f != NULL);
    require(fread(again, 1, sizeof(again), f) == size && memcmp(again, data, size) == 0);
    fclose(f);
    return 0;
}
