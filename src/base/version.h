/* The version of this build. */
#ifndef CEDE_BASE_VERSION_H
#define CEDE_BASE_VERSION_H

/* The release and, if known, the commit that it was built from: "0.1.0-g18f2fb0", with "-dirty"
 * behind it if files differed from the commit; "0.1.0" from a tarball. */
const char *build_version(void);

#endif
