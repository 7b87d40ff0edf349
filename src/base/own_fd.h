/* A descriptor of a library inside a program, which may close what it did not open and get the
 * number for something else: it is compared with what it was before it is used. libcede and the
 * gate contain this file too, so it needs libc alone. */
#ifndef CEDE_BASE_OWN_FD_H
#define CEDE_BASE_OWN_FD_H

#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

struct own_fd {
    int fd; /* -1: none */
    dev_t dev;
    ino_t ino;
};

static inline void own_fd_set(struct own_fd *o, int fd)
{
    struct stat st = {0};
    fstat(fd, &st);
    *o = (struct own_fd){.fd = fd, .dev = st.st_dev, .ino = st.st_ino};
}

static inline bool own_fd_intact(const struct own_fd *o)
{
    struct stat st;
    return o->fd >= 0 && fstat(o->fd, &st) == 0 && st.st_dev == o->dev && st.st_ino == o->ino;
}

static inline void own_fd_close(struct own_fd *o)
{
    if (own_fd_intact(o))
        close(o->fd);
    o->fd = -1;
}

#endif
