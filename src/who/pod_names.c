/* See pod_names.h. */
#include "who/pod_names.h"

#include <stdio.h>
#include <string.h>

/* A longer text is no name of Kubernetes and is left out. */
static void take_name(char *to, size_t size, const char *text)
{
    snprintf(to, size, "%s", text && strlen(text) < size ? text : "");
}

const char *pod_container(struct pairs told, const char *id)
{
    char key[sizeof(CONTAINER_FACT) + CONTAINER_DIGITS];
    snprintf(key, sizeof(key), CONTAINER_FACT "%.*s", CONTAINER_DIGITS, id);
    return strlen(id) >= CONTAINER_DIGITS ? pairs_get(told, key) : NULL;
}

void pod_names_read(struct pairs told, const char *id, struct pod_names *out)
{
    const char *container = pairs_get(told, "container_name");
    take_name(out->namespace, sizeof(out->namespace), pairs_get(told, "namespace"));
    take_name(out->pod, sizeof(out->pod), pairs_get(told, "pod"));
    take_name(out->container, sizeof(out->container),
              container ? container : pod_container(told, id));
}
