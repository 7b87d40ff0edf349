/* The gate's port, steered by a file that a test maps (page.h). Without the file: nobody schedules.
 */
#include "gate/hip/port.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "page.h"

static struct page *page;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void map(void)
{
    const char *path = getenv("CEDE_TEST_PAGE");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *p =
        fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    page = p == MAP_FAILED ? NULL : p;
}

bool port_active(void)
{
    pthread_once(&once, map);
    return page && page->active;
}

void port_pass(void)
{
    page->waiting++;
    while (page->closed)
        usleep(200);
    page->waiting--;
    page->passed++;
}

uint64_t port_limit_ns(void)
{
    return page->limit_ns;
}

void port_inflight(uint64_t ns)
{
    page->inflight_ns = ns;
}

void port_ended(void)
{
}
