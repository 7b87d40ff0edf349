/* See owner.h. */
#include "libcede/owner.h"

/* initial-exec: other models call the dynamic linker, and libcede needs libc alone. */
_Thread_local const struct owner_frame *cede_owner_frames
    __attribute__((tls_model("initial-exec")));
