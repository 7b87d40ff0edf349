/* Which build this is: the only place that says so. */
#ifndef CEDE_LIB_VERSION_H
#define CEDE_LIB_VERSION_H

/* The release, and the commit that it was built from where that is known: "0.1.0-g18f2fb0", with
 * "-dirty" after it if files differed from the commit; "0.1.0" from a tarball. */
const char *build_version(void);

#endif
