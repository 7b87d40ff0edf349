/* `cede kube-agent`: reports to ceded which control group is which pod of this node. Needs the
 * socket of ceded and the right to list pods, nothing else. Whatever fails is tried again; what
 * ceded was told stays. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/client.h"
#include "kube/api.h"
#include "kube/pods.h"
#include "lib/json_text.h"

#define ACCOUNT_DIR   "/var/run/secrets/kubernetes.io/serviceaccount"
#define BODY_MAX      (32U << 20) /* of a page, or an event; a pod has 1.5 MiB at most */
#define PAGE_PODS     20          /* of the API server; the kubelet sends all */
#define PAGES_MAX     1000
#define LIST_S        30
#define WATCH_S       300
#define BACKOFF_MAX_S 30
#define RECONNECT_NS  (900 * NSEC_PER_MSEC)

static const char help[] =
    "usage: cede kube-agent [--node NAME] [--url URL] [OPTION...]\n"
    "\n"
    "Reports the pods of this node to ceded, so that rules can match pod, namespace, "
    "PriorityClass\n"
    "and labels and annotations that begin with cede.io/. Runs until ended.\n"
    "\n"
    "      --node NAME           this node ($NODE_NAME)\n"
    "      --url URL             https://HOST:PORT of the API server, whose service account's "
    "token\n"
    "                            is sent; with /pods at its end, of the kubelet\n"
    "      --ca FILE             certificates of whoever signed the server's\n"
    "      --token FILE          the token\n"
    "      --cgroup-driver D     systemd, cgroupfs or either (either)\n"
    "      --cgroup-root PATH    the control group above kubepods, such as /kubelet.slice\n"
    "      --interval S          seconds between two questions to a kubelet (2)\n"
    "      --once                report the pods that there are, and end\n"
    "  -h, --help                this text\n";

struct agent {
    struct kube_api api;
    struct client client; /* fd < 0: closed */
    struct kube_pods pods;
    const char *node, *cgroup_root;
    enum kube_driver driver;
    unsigned interval_s;
    bool kubelet, once;
    bool watching, fresh;                         /* fresh: another list is needed */
    bool failed_api, failed_ceded, refused, full; /* was said */
    uint64_t connect_at_ns;                       /* not before */
    char *body;                                   /* of a page, or the events that have come */
    size_t n, size;
    char version[64], next[512];
};

/* Each reason is said once, until it has worked again. */
static void agent_failed(bool *failed, const struct error *err)
{
    if (!*failed)
        cli_error("%s; trying again", err->text);
    *failed = true;
}

/* ---- to ceded ---- */

static bool ceded_lives(struct agent *a)
{
    struct pollfd p = {.fd = a->client.fd, .events = POLLIN};
    if (a->client.fd >= 0 && poll(&p, 1, 0) == 0)
        return true;
    client_close(&a->client);
    if (monotonic_ns() < a->connect_at_ns)
        return false;
    a->connect_at_ns = monotonic_ns() + RECONNECT_NS;
    struct error err = {""};
    if (client_open(&a->client, &err) < 0) {
        agent_failed(&a->failed_ceded, &err);
        a->client.fd = -1;
        return false;
    }
    a->failed_ceded = false;
    kube_pods_send_again(&a->pods); /* it may be another one */
    return true;
}

/* False: ceded is away, or refuses what it may take later. */
static bool agent_report(struct agent *a, struct kube_pod *pod)
{
    struct request r = {.op = OP_IDENTITY};
    for (unsigned i = 0; kube_pod_cgroup(pod, a->driver, a->cgroup_root, i, r.cgroup); i++) {
        struct error err = {""};
        json_t *reply;
        r.nfacts = pod->gone ? 0 : pod->nfacts;
        memcpy(r.facts, pod->facts, r.nfacts);
        int code = client_call(&a->client, &r, &reply, &err);
        json_decref(reply);
        if (code == -EPIPE || code == -ETIMEDOUT || code == -EPROTO) {
            agent_failed(&a->failed_ceded, &err);
            client_close(&a->client);
            return false;
        }
        if (code < 0)
            agent_failed(&a->refused, &err);
        if (code < 0 && code != -EINVAL && !pod->gone)
            return false;
        a->refused &= code < 0;
    }
    pod->sent = true;
    if (pod->gone)
        *pod = (struct kube_pod){.uid = ""};
    return true;
}

static bool agent_report_all(struct agent *a, bool gone)
{
    for (unsigned i = 0; i < a->pods.end; i++) {
        struct kube_pod *p = &a->pods.v[i];
        if (p->uid[0] && !p->sent && p->gone == gone && !agent_report(a, p))
            return false;
    }
    return true;
}

static void agent_tick(void *arg)
{
    struct agent *a = arg;
    if (!ceded_lives(a))
        return;
    /* What is gone first, as it makes room. */
    if (agent_report_all(a, true))
        agent_report_all(a, false);
}

/* ---- from the API ---- */

static void take_pod(struct agent *a, const json_t *o, bool deleted)
{
    struct kube_pod pod;
    const char *node = json_get_text(json_object_get(o, "spec"), "nodeName");
    if (node && a->node && strcmp(node, a->node) != 0)
        return;
    const int r = kube_pod_read(o, &pod);
    if (deleted || r == -ESTALE) {
        kube_pods_remove(&a->pods, pod.uid);
    } else if (r == 0 && kube_pods_put(&a->pods, &pod) < 0 && !a->full) {
        a->full = true;
        cli_error("more than %d pods: some are not reported", KUBE_PODS_MAX);
    }
}

static void take_event(struct agent *a, const char *line, size_t n)
{
    json_t *o = json_loadb(line, n, 0, NULL);
    const char *type = json_get_text(o, "type");
    if (!type || strcmp(type, "ERROR") == 0)
        a->fresh = true; /* what is asked for is too old */
    else
        take_pod(a, json_object_get(o, "object"), strcmp(type, "DELETED") == 0);
    json_decref(o);
}

static bool agent_take(void *arg, const char *bytes, size_t n)
{
    struct agent *a = arg;
    if (n > BODY_MAX - a->n)
        return false;
    if (a->n + n > a->size) {
        const size_t size = min_u64(2 * (a->n + n), BODY_MAX);
        char *body = realloc(a->body, size);
        if (!body)
            return false;
        a->body = body;
        a->size = size;
    }
    memcpy(a->body + a->n, bytes, n);
    const char *from = a->body, *new = a->body + a->n;
    const char *const end = new + n;
    a->n += n;
    if (!a->watching)
        return true;
    for (const char *line; !a->fresh && (line = memchr(new, '\n', (size_t)(end - new)));) {
        take_event(a, from, (size_t)(line - from));
        from = new = line + 1;
    }
    a->n = (size_t)(end - from);
    memmove(a->body, from, a->n);
    agent_tick(a);
    return !a->fresh;
}

static int agent_get(struct agent *a, const char *path, unsigned max_s, struct error *err)
{
    a->n = 0;
    const int r = kube_api_get(&a->api, path, max_s, err);
    if (r == -ECANCELED && !a->fresh)
        return error_set(err, -EMSGSIZE, "%s: an answer of more than %u bytes", a->api.base,
                         BODY_MAX);
    return r;
}

static void url_escape(const char *text, char *out, size_t size)
{
    size_t n = 0;
    for (; *text && n + 4 < size; text++) {
        const bool plain = (*text >= '0' && *text <= '9') || (*text >= 'a' && *text <= 'z') ||
                           (*text >= 'A' && *text <= 'Z') || *text == '-' || *text == '.';
        n += (size_t)snprintf(out + n, size - n, plain ? "%c" : "%%%02X", (unsigned char)*text);
    }
    out[n] = '\0';
}

static int agent_page(struct agent *a, struct error *err)
{
    char path[2048], node[800], next[1600];
    url_escape(a->node ? a->node : "", node, sizeof(node));
    url_escape(a->next, next, sizeof(next));
    snprintf(path, sizeof(path), "/api/v1/pods?fieldSelector=spec.nodeName%%3D%s&limit=%d%s%s",
             node, PAGE_PODS, *next ? "&continue=" : "", next);
    int r = agent_get(a, a->kubelet ? "/pods" : path, LIST_S, err);
    if (r < 0)
        return r;
    json_t *o = json_loadb(a->body ? a->body : "", a->n, 0, NULL), *items, *pod;
    const json_t *meta = json_object_get(o, "metadata");
    const char *version = json_get_text(meta, "resourceVersion");
    const char *more = json_get_text(meta, "continue");
    size_t i;
    items = json_object_get(o, "items");
    const bool none = o && json_is_null(items); /* as Go writes a list of nothing */
    if (!json_is_array(items) && !none)
        r = error_set(err, -EPROTO, "%s answers no list of pods", a->api.base);
    json_array_foreach(items, i, pod)
    {
        take_pod(a, pod, false);
    }
    snprintf(a->version, sizeof(a->version), "%s", version ? version : "");
    snprintf(a->next, sizeof(a->next), "%s", more && strlen(more) < sizeof(a->next) ? more : "");
    if (more && strlen(more) >= sizeof(a->next))
        r = error_set(err, -EPROTO, "%s: the token for the next page of a list is too long",
                      a->api.base);
    json_decref(o);
    return r;
}

/* Only a whole list says which pods are gone. */
static int agent_list(struct agent *a, struct error *err)
{
    a->watching = a->fresh = false;
    a->next[0] = '\0';
    kube_pods_begin(&a->pods);
    int r = agent_page(a, err);
    for (unsigned pages = 1; r == 0 && a->next[0] && pages < PAGES_MAX; pages++)
        r = agent_page(a, err);
    if (r == 0 && !a->next[0])
        kube_pods_end(&a->pods);
    agent_tick(a);
    return r;
}

static int agent_watch(struct agent *a, struct error *err)
{
    char path[2048], node[800], version[200];
    url_escape(a->node, node, sizeof(node));
    url_escape(a->version, version, sizeof(version));
    snprintf(path, sizeof(path),
             "/api/v1/pods?fieldSelector=spec.nodeName%%3D%s&watch=true&timeoutSeconds=%d"
             "&resourceVersion=%s",
             node, WATCH_S, version);
    a->watching = true;
    const int r = agent_get(a, path, WATCH_S + LIST_S, err);
    return r == -ECANCELED || r == -ETIMEDOUT ? 0 : r;
}

static void agent_wait(struct agent *a, unsigned s)
{
    for (unsigned i = 0; i < s; i++) {
        sleep(1);
        agent_tick(a);
    }
}

static int agent_run(struct agent *a)
{
    unsigned backoff_s = 1;
    for (;;) {
        struct error err = {""};
        int r = agent_list(a, &err);
        if (a->once && r == 0 && a->client.fd >= 0)
            return CLI_OK;
        if (a->once) {
            cli_error("%s", r < 0 ? err.text : "no pod was reported: ceded does not answer");
            return CLI_FAILED;
        }
        if (r == 0) {
            a->failed_api = false;
            backoff_s = 1;
        }
        if (r == 0 && !a->kubelet)
            r = agent_watch(a, &err);
        if (r < 0)
            agent_failed(&a->failed_api, &err);
        agent_wait(a, r == 0 ? (a->kubelet ? a->interval_s : 1) : backoff_s);
        backoff_s = r == 0 ? 1 : (unsigned)min_u64(2 * backoff_s, BACKOFF_MAX_S);
    }
}

/* ---- the command line ---- */

static int read_driver(void *to, const char *name, const char *text, struct error *err)
{
    static const char *const names[] = {"either", "systemd", "cgroupfs"};
    for (unsigned i = 0; i < ARRAY_SIZE(names); i++) {
        if (strcmp(text, names[i]) == 0) {
            *(enum kube_driver *)to = (enum kube_driver)i;
            return 0;
        }
    }
    return error_set(err, -EINVAL, "--%s: '%s' is not systemd, cgroupfs or either", name, text);
}

static int read_interval(void *to, const char *name, const char *text, struct error *err)
{
    uint64_t n;
    if (parse_u64(text, 1, 3600, &n) < 0)
        return error_set(err, -EINVAL, "--%s: '%s' is not a number from 1 to 3600", name, text);
    *(unsigned *)to = (unsigned)n;
    return 0;
}

/* url: what was given, which ends in /pods if it is of a kubelet. */
static int agent_url(struct agent *a, const char *url, char out[static 512])
{
    static const char kubelet[] = "/pods";
    const char *host = getenv("KUBERNETES_SERVICE_HOST"), *port = getenv("KUBERNETES_SERVICE_PORT");
    const bool v6 = host && strchr(host, ':');
    if (url)
        snprintf(out, 512, "%s", url);
    else if (host && port)
        snprintf(out, 512, "https://%s%s%s:%s", v6 ? "[" : "", host, v6 ? "]" : "", port);
    else
        return cli_usage("kube-agent", "kube-agent: this is no pod: --url says where to ask");
    if (strncmp(out, "https://", 8) != 0 && strncmp(out, "http://", 7) != 0)
        return cli_usage("kube-agent", "kube-agent: --url: https://HOST:PORT is needed");
    size_t n = strlen(out);
    const size_t k = sizeof(kubelet) - 1;
    a->kubelet = n > k && strcmp(out + n - k, kubelet) == 0;
    out[a->kubelet ? n - k : n] = '\0';
    a->api.base = out;
    if (!a->kubelet && (!a->node || !*a->node))
        return cli_usage("kube-agent", "kube-agent: --node or NODE_NAME is needed");
    return CLI_OK;
}

int kube_agent_main(int argc, char **argv)
{
    static struct agent a;
    static char base[512]; /* a is static too */
    struct error err = {""};
    const char *url = NULL;
    a = (struct agent){.client.fd = -1, .node = getenv("NODE_NAME"), .interval_s = 2};
    a.cgroup_root = "";
    a.api = (struct kube_api){.take = agent_take, .tick = agent_tick, .arg = &a};
    a.api.token_file = access(ACCOUNT_DIR "/token", F_OK) == 0 ? ACCOUNT_DIR "/token" : NULL;
    a.api.ca = access(ACCOUNT_DIR "/ca.crt", F_OK) == 0 ? ACCOUNT_DIR "/ca.crt" : NULL;
    const struct option_row options[] = {
        {"node", .text = &a.node},
        {"url", .text = &url},
        {"ca", .text = &a.api.ca},
        {"token", .text = &a.api.token_file},
        {"cgroup-driver", .read = read_driver, .to = &a.driver},
        {"cgroup-root", .text = &a.cgroup_root},
        {"interval", .read = read_interval, .to = &a.interval_s},
        {"once", .flag = &a.once},
    };
    const struct command_line line = {.program = "cede kube-agent", .help = help};
    int status = options_read(argc, argv, &line, options, ARRAY_SIZE(options));
    if (status != OPTIONS_GO_ON)
        return status;
    if (optind < argc)
        return cli_usage("kube-agent", "kube-agent: unexpected argument '%s'", argv[optind]);
    if (a.cgroup_root[0] && a.cgroup_root[0] != '/')
        return cli_usage("kube-agent", "kube-agent: --cgroup-root: a path from / is needed");
    status = agent_url(&a, url, base);
    if (status != CLI_OK)
        return status;
    if (kube_api_open(&err) == 0)
        return agent_run(&a);
    cli_error("%s", err.text);
    return CLI_FAILED;
}
