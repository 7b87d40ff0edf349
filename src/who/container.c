/* Reads the files of container runtimes about a container: see container.h. The files are root's,
 * but their contents come from users and may be anything.
 *
 * containerd   /run/containerd/io.containerd.runtime.v2.task/NAMESPACE/ID/config.json
 * CRI-O        /run/containers/storage/overlay-containers/ID/userdata/config.json
 * Podman       /var/lib/containers/storage/overlay-containers/containers.json
 * Docker       /var/lib/docker/containers/ID/config.v2.json
 *
 * /var/lib/docker is another directory if "data-root" in /etc/docker/daemon.json says so, and
 * /var/lib/containers/storage if graphroot in /etc/containers/storage.conf does. */
#include "who/container.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <string.h>
#include <sys/stat.h>

#include "base/json_text.h"
#include "base/util.h"

#define FILE_MAX  (1U << 20) /* larger files are ignored: JSON takes forty times that in memory */
#define LIST_MAX  65536U
#define STORE_MAX 240 /* bytes of a path */

/* Adds the fact if it is wanted and not there yet. */
static void put_fact(const char *name, const char *value, struct pairs wanted,
                     struct identify_answer *out)
{
    size_t n = out->n;
    if (!value || !*value || strlen(value) > 1023 || !pairs_get(wanted, name) ||
        pairs_get((struct pairs){out->text, out->n}, name))
        return;
    (void)pairs_put(out->text, sizeof(out->text), &n, name, value);
    out->n = (uint32_t)n;
}

void container_oci(const char *text, size_t n, struct pairs wanted, struct identify_answer *out)
{
    static const struct {
        const char *annotation, *fact;
    } known[] = {
        {"io.kubernetes.cri.sandbox-name", "pod"},
        {"io.kubernetes.cri.sandbox-namespace", "namespace"},
        {"io.kubernetes.cri.container-name", "container_name"},
        {"io.kubernetes.cri.image-name", "image"},
        {"io.kubernetes.pod.name", "pod"}, /* CRI-O */
        {"io.kubernetes.pod.namespace", "namespace"},
        {"io.kubernetes.container.name", "container_name"},
        {"io.kubernetes.cri-o.ImageName", "image"},
        {"nerdctl/name", "container_name"},
    };
    _cleanup_json_ json_t *o = json_loadb(text, n, 0, NULL);
    const json_t *annotations = json_object_get(o, "annotations");
    for (size_t i = 0; i < ARRAY_SIZE(known); i++)
        put_fact(known[i].fact, json_get_text(annotations, known[i].annotation), wanted, out);
}

void container_docker(const char *text, size_t n, struct pairs wanted, struct identify_answer *out)
{
    _cleanup_json_ json_t *o = json_loadb(text, n, 0, NULL);
    const char *name = json_get_text(o, "Name"); /* "/web" */
    put_fact("container_name", name && *name == '/' ? name + 1 : name, wanted, out);
    put_fact("image", json_get_text(json_object_get(o, "Config"), "Image"), wanted, out);
}

void container_list(const char *text, size_t n, const char *id, struct pairs wanted,
                    struct identify_answer *out)
{
    _cleanup_json_ json_t *all = json_loadb(text, n, 0, NULL);
    for (size_t i = 0; i < min_u64(json_array_size(all), LIST_MAX); i++) {
        const json_t *entry = json_array_get(all, i);
        const char *this = json_get_text(entry, "id"), *more = json_get_text(entry, "metadata");
        if (!this || strcmp(this, id) != 0)
            continue;
        put_fact("container_name",
                 json_string_value(json_array_get(json_object_get(entry, "names"), 0)), wanted,
                 out);
        _cleanup_json_ json_t *m = more ? json_loads(more, 0, NULL) : NULL; /* JSON in a string */
        put_fact("container_name", json_get_text(m, "name"), wanted, out);
        put_fact("image", json_get_text(m, "image-name"), wanted, out);
        break;
    }
}

/* Reads the whole file, malloc'd, if only root can have written it. NULL: it says nothing; *failed
 * is set if it may be readable later. */
static char *container_file(const char *root, const char *path, size_t *n, int *failed)
{
    char name[512];
    struct stat st;
    if ((size_t)snprintf(name, sizeof(name), "%s%s", root, path) >= sizeof(name))
        return NULL;
    _cleanup_close_ int fd = open(name, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | O_NOFOLLOW);
    if (fd < 0 && error_may_pass(-errno))
        *failed = -errno;
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_mode & 022 ||
        (st.st_uid != 0 && st.st_uid != geteuid()) || st.st_size <= 0 || st.st_size > FILE_MAX)
        return NULL;
    char *text = malloc((size_t)st.st_size);
    if (text && read_full(fd, text, (size_t)st.st_size) == 0) {
        *n = (size_t)st.st_size;
        return text;
    }
    *failed = text ? *failed : -ENOMEM;
    free(text);
    return NULL;
}

/* Gets the value of a line `graphroot = "/path"` in TOML. Without one, out stays as it is. */
static void graphroot_of(char *text, size_t n, char *out, size_t size)
{
    char *line, *rest = text;
    text[n - 1] = '\0'; /* a newline */
    while ((line = strsep(&rest, "\n"))) {
        line += strspn(line, " \t");
        if (strncmp(line, "graphroot", 9) != 0 || line[9 + strspn(line + 9, " \t")] != '=')
            continue;
        line = strchr(line, '=') + 1;
        line += strspn(line, " \t\"'");
        snprintf(out, size, "%.*s", (int)strcspn(line, "\"'# \t"), line);
    }
}

/* Gets the directories in which Docker and Podman keep their containers. */
static void container_stores(const char *root, char docker[static STORE_MAX],
                             char podman[static STORE_MAX], int *failed)
{
    size_t n;
    snprintf(docker, STORE_MAX, "/var/lib/docker");
    snprintf(podman, STORE_MAX, "/var/lib/containers/storage");
    _cleanup_free_ char *daemon = container_file(root, "/etc/docker/daemon.json", &n, failed);
    json_t *o = daemon ? json_loadb(daemon, n, 0, NULL) : NULL;
    const char *at = json_get_text(o, "data-root");
    if (at && *at == '/')
        snprintf(docker, STORE_MAX, "%s", at);
    json_decref(o);
    _cleanup_free_ char *storage = container_file(root, "/etc/containers/storage.conf", &n, failed);
    char graph[STORE_MAX] = "";
    if (storage)
        graphroot_of(storage, n, graph, sizeof(graph));
    if (*graph == '/')
        memcpy(podman, graph, sizeof(graph));
}

int container_read(const char *root, const char *id, struct pairs wanted,
                   struct identify_answer *out)
{
    int failed = 0;
    char docker[STORE_MAX], podman[STORE_MAX], path[STORE_MAX + 256];
    if (strspn(id, "0123456789abcdef") != strlen(id) || !*id)
        return 0;
    container_stores(root, docker, podman, &failed);
    const struct {
        const char *store, *before, *after;
        void (*parse)(const char *text, size_t n, struct pairs wanted, struct identify_answer *out);
    } of_one[] = {
        {"/run/containerd", "/io.containerd.runtime.v2.task/k8s.io/", "/config.json",
         container_oci},
        {"/run/containerd", "/io.containerd.runtime.v2.task/default/", "/config.json",
         container_oci},
        {"/run/containers/storage", "/overlay-containers/", "/userdata/config.json", container_oci},
        {podman, "/overlay-containers/", "/userdata/config.json", container_oci},
        {docker, "/containers/", "/config.v2.json", container_docker},
    };
    const struct {
        const char *store, *after;
    } lists[] = {
        {podman, "/overlay-containers/containers.json"},
        {"/run/containers/storage", "/overlay-containers/volatile-containers.json"},
        {podman, "/overlay-containers/volatile-containers.json"},
    };
    size_t n = 0;
    for (size_t i = 0; i < ARRAY_SIZE(of_one); i++) {
        snprintf(path, sizeof(path), "%s%s%.64s%s", of_one[i].store, of_one[i].before, id,
                 of_one[i].after);
        _cleanup_free_ char *text = container_file(root, path, &n, &failed);
        if (text)
            of_one[i].parse(text, n, wanted, out);
    }
    for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
        snprintf(path, sizeof(path), "%s%s", lists[i].store, lists[i].after);
        _cleanup_free_ char *text = container_file(root, path, &n, &failed);
        if (text)
            container_list(text, n, id, wanted, out);
    }
    return failed;
}
