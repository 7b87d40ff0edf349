/* `cede kube-agent`: reports to ceded which control group is which pod of this node. It needs only
 * ceded's socket and the right to list pods. Every failure is tried again; ceded keeps what was
 * reported. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agents/kubernetes/agent.h"
#include "agents/kubernetes/answers.h"
#include "agents/kubernetes/api.h"
#include "api/client.h"
#include "base/cli_error.h"
#include "base/json_text.h"

#define ACCOUNT_DIR   "/var/run/secrets/kubernetes.io/serviceaccount"
#define BODY_MAX      (32U << 20) /* bytes of a page or an event; a pod has 1.5 MiB at most */
#define PAGE_PODS     20          /* per page of the API server; a kubelet sends all at once */
#define PAGES_MAX     100
#define LIST_S        30
#define WATCH_S       300
#define BACKOFF_MAX_S 30
#define RECONNECT_NS  (900 * NSEC_PER_MSEC)
#define CLAIM_MAX     (256U << 10) /* bytes of a claim */
#define CLAIM_S       5
#define CLAIMS_NS     NSEC_PER_SEC /* for claims, each time */
#define CLAIM_WAIT_NS                                                                              \
    (30 * NSEC_PER_SEC)     /* until a claim that could not be read is asked for again */
#define POD_NS NSEC_PER_SEC /* between two reports of a pod, however often its owner changes it */

static const char help[] =
    "usage: cede kube-agent [--node NAME] [--url URL] [OPTION...]\n"
    "\n"
    "Reports the pods of this node to ceded, so that rules can match pod, namespace, "
    "PriorityClass\n"
    "and labels and annotations that begin with cede.io/, and what KAI-Scheduler, HAMi or "
    "NVIDIA's\n"
    "DRA driver promised a pod. Runs until ended.\n"
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
    bool watching, fresh;                                        /* fresh: a new list is needed */
    bool failed_api, failed_ceded, failed_claims, refused, full; /* these messages were printed */
    uint64_t connect_at_ns; /* time of the next attempt to connect */
    uint64_t claims_at_ns;  /* when the API server may be asked for claims again */
    char claim[CLAIM_MAX];
    size_t nclaim;
    char *body; /* a page, or the events that have come */
    size_t n, size;
    struct kube_page page;
};

/* Prints a failure once, until the call has succeeded again. */
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
    kube_pods_send_again(&a->pods); /* it may be another ceded, which knows no pods */
    return true;
}

/* False: ceded does not answer, or refuses a report that it may take later. */
static bool agent_report(struct agent *a, struct kube_pod *pod)
{
    struct request r = {.op = OP_IDENTITY};
    for (unsigned i = 0; kube_pod_cgroup(pod, a->driver, a->cgroup_root, i, r.cgroup); i++) {
        struct error err = {""};
        _cleanup_json_ json_t *reply = NULL;
        r.nfacts = pod->gone ? 0 : kube_pod_facts(pod, r.facts);
        const int code = client_call(&a->client, &r, &reply, &err);
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
    pod->reported_ns = monotonic_ns();
    if (pod->gone)
        *pod = (struct kube_pod){.uid = ""};
    return true;
}

static bool agent_report_all(struct agent *a, bool gone)
{
    const uint64_t now = monotonic_ns();
    for_each (p, a->pods.v, a->pods.end) {
        const bool due = gone || !p->reported_ns || now - p->reported_ns >= POD_NS;
        if (p->uid[0] && !p->sent && p->gone == gone && due && !agent_report(a, p))
            return false;
    }
    return true;
}

/* ---- claims ---- */

static bool take_claim(void *arg, const char *bytes, size_t n)
{
    struct agent *a = arg;
    if (n > CLAIM_MAX - a->nclaim)
        return false;
    memcpy(a->claim + a->nclaim, bytes, n);
    a->nclaim += n;
    return true;
}

static void no_tick(void *arg)
{
    (void)arg;
}

/* Asks for what a pod's claims got, while another call to the API server goes on. */
static int agent_get_claims(struct agent *a, struct kube_pod *pod, struct error *err)
{
    struct kube_api api = a->api;
    struct promise p = {.class = ""};
    char path[2048];
    int r = 0;
    api.take = take_claim;
    api.tick = no_tick;
    for (unsigned i = 0; i < pod->claims.n && r == 0; i++) {
        const char *name = pod->claims.name[i];
        snprintf(path, sizeof(path), "/apis/resource.k8s.io/v1/namespaces/%s/resourceclaims/%s",
                 pod->claims.namespace, name);
        a->nclaim = 0;
        r = kube_api_get(&api, path, CLAIM_S, err);
        if (r == 0)
            r = kube_claim_read((struct span){a->claim, a->nclaim}, &p);
        if (r == -EPROTO || r == -ECANCELED || r == -EAGAIN)
            error_set(err, r, "%s: the claim %s/%s %s", api.base, pod->claims.namespace, name,
                      r == -EAGAIN ? "has no devices yet" : "cannot be read");
    }
    if (r == 0)
        kube_pod_claimed(pod, &p);
    return r;
}

/* A claim that cannot be read, whose name its pod's creator chose, holds up no other pod's. */
static void agent_claims(struct agent *a)
{
    const uint64_t now = monotonic_ns();
    for (unsigned i = 0; i < a->pods.end && now >= a->claims_at_ns && !a->kubelet; i++) {
        struct kube_pod *pod = &a->pods.v[i];
        struct error err = {""};
        if (!pod->uid[0] || pod->gone || !pod->claims.n || pod->claims_read ||
            now < pod->claims_at_ns)
            continue;
        const int r = agent_get_claims(a, pod, &err);
        pod->claims_at_ns = monotonic_ns() + CLAIM_WAIT_NS;
        if (r < 0)
            agent_failed(&a->failed_claims, &err);
        a->failed_claims &= r < 0;
        if (r == -ETIMEDOUT)
            a->claims_at_ns = pod->claims_at_ns;
        if (monotonic_ns() - now >= CLAIMS_NS)
            break;
    }
}

static void agent_tick(void *arg)
{
    struct agent *a = arg;
    if (!ceded_lives(a))
        return;
    agent_claims(a);
    /* Pods that are gone are reported first, as that makes room. */
    if (agent_report_all(a, true))
        agent_report_all(a, false);
}

/* ---- from the API ---- */

/* The result r of reading an answer, with -ENOSPC, which is printed once, taken for success. */
static int agent_took(struct agent *a, int r)
{
    if (r == -ENOSPC && !a->full) {
        a->full = true;
        cli_error("more than %d pods: some are not reported", KUBE_PODS_MAX);
    }
    return r == -ENOSPC ? 0 : r;
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
        const struct span event = {from, (size_t)(line - from)};
        if (agent_took(a, kube_event_read(&a->pods, a->node, event)) < 0)
            a->fresh = true;
        from = new = line + 1;
    }
    a->n = (size_t)(end - from);
    if (from != a->body)
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
    url_escape(a->page.next, next, sizeof(next));
    snprintf(path, sizeof(path), "/api/v1/pods?fieldSelector=spec.nodeName%%3D%s&limit=%d%s%s",
             node, PAGE_PODS, *next ? "&continue=" : "", next);
    int r = agent_get(a, a->kubelet ? "/pods" : path, LIST_S, err);
    if (r < 0)
        return r;
    r = agent_took(a, kube_list_read(&a->pods, a->node, (struct span){a->body, a->n}, &a->page));
    if (r == -EMSGSIZE)
        error_set(err, r, "%s: the token for the next page of a list is too long", a->api.base);
    else if (r < 0)
        error_set(err, r, "%s answers no list of pods", a->api.base);
    return r;
}

/* Reads all pages of the list, since only a complete list shows which pods are gone. */
static int agent_list(struct agent *a, struct error *err)
{
    a->watching = a->fresh = false;
    a->page.next[0] = '\0';
    kube_pods_begin(&a->pods);
    int r = agent_page(a, err);
    for (unsigned pages = 1; r == 0 && a->page.next[0] && pages < PAGES_MAX; pages++)
        r = agent_page(a, err);
    if (r == 0 && a->page.next[0])
        r = error_set(err, -E2BIG, "%s: more than %d pages of pods", a->api.base, PAGES_MAX);
    if (r == 0)
        kube_pods_end(&a->pods);
    agent_tick(a);
    return r;
}

static int agent_watch(struct agent *a, struct error *err)
{
    char path[2048], node[800], version[200];
    url_escape(a->node, node, sizeof(node));
    url_escape(a->page.version, version, sizeof(version));
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
        if (a->once)
            return cli_error("%s", r < 0 ? err.text : "no pod was reported: ceded does not answer");
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

/* Sets the server's base URL. url: --url, which ends in /pods for a kubelet; NULL: not given. */
static int agent_url(struct agent *a, const char *url, char out[static 512])
{
    static const char kubelet[] = "/pods";
    const char *host = getenv("KUBERNETES_SERVICE_HOST"), *port = getenv("KUBERNETES_SERVICE_PORT");
    const bool v6 = host && strchr(host, ':');
    int length = 0;
    if (url)
        length = snprintf(out, 512, "%s", url);
    else if (host && port)
        length = snprintf(out, 512, "https://%s%s%s:%s", v6 ? "[" : "", host, v6 ? "]" : "", port);
    else
        return cli_usage(
            "kube-agent",
            "kube-agent: not in a pod (KUBERNETES_SERVICE_HOST is not set): give --url");
    if (length >= 512)
        return cli_usage("kube-agent", "kube-agent: the API server's URL is longer than 511 bytes");
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
    static char base[512]; /* static, because `a`, which is static, points to it */
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
    const struct command_line line = {
        .program = "cede kube-agent", .help = help, .no_operands = true};
    int status = options_read(argc, argv, &line, options, ARRAY_SIZE(options));
    if (status != OPTIONS_GO_ON)
        return status;
    if (a.cgroup_root[0] && a.cgroup_root[0] != '/')
        return cli_usage("kube-agent", "kube-agent: --cgroup-root: a path from / is needed");
    status = agent_url(&a, url, base);
    if (status != CLI_OK)
        return status;
    if (kube_api_open(&err) == 0)
        return agent_run(&a);
    return cli_error("%s", err.text);
}
