/* kfd_ioctl.h includes this for its integer types alone, and Debian's linux-libc-dev leaves the
 * real one to libdrm-dev. */
#include <linux/ioctl.h>
#include <linux/types.h>
