/* Libraries that `cede run` puts into programs through LD_PRELOAD. */
#ifndef CEDE_CLI_PRELOAD_H
#define CEDE_CLI_PRELOAD_H

/* Where there is such a device file and the library, puts the library in front of what LD_PRELOAD
 * holds, once. Changes nothing else; 0 or -ENOMEM. */
int preload_add(const char *device, const char *library);

#endif
