/* See api.h. The numbers are libcurl's ABI (curl/curl.h), the same in all releases of version 7 and
 * 8. */
#include "agents/kubernetes/api.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#define OPT_WRITEDATA         10001
#define OPT_URL               10002
#define OPT_ERRORBUFFER       10010
#define OPT_WRITEFUNCTION     20011
#define OPT_HTTPHEADER        10023
#define OPT_NOPROGRESS        43
#define OPT_FAILONERROR       45
#define OPT_XFERINFODATA      10057
#define OPT_CAINFO            10065
#define OPT_CONNECTTIMEOUT_MS 156
#define OPT_TIMEOUT_MS        155
#define OPT_NOSIGNAL          99
#define OPT_PROXY             10004
#define OPT_XFERINFOFUNCTION  20219
#define INFO_RESPONSE_CODE    0x200002
#define E_WRITE_ERROR         23
#define E_TIMED_OUT           28
#define CONNECT_MS            5000
#define ERROR_SIZE            256
#define TOKEN_MAX             16384

static struct curl {
    void *(*init)(void);
    int (*setopt)(void *c, int option, ...);
    int (*perform)(void *c);
    int (*getinfo)(void *c, int info, ...);
    void (*cleanup)(void *c);
    const char *(*text)(int code);
    void *(*append)(void *list, const char *text);
    void (*free_all)(void *list);
} curl;

int kube_api_open(struct error *err)
{
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};
    const struct {
        const char *name;
        void *to;
    } wanted[] = {
        {"curl_easy_init", &curl.init},       {"curl_easy_setopt", &curl.setopt},
        {"curl_easy_perform", &curl.perform}, {"curl_easy_getinfo", &curl.getinfo},
        {"curl_easy_cleanup", &curl.cleanup}, {"curl_easy_strerror", &curl.text},
        {"curl_slist_append", &curl.append},  {"curl_slist_free_all", &curl.free_all},
    };
    void *lib = NULL;
    for (size_t i = 0; i < ARRAY_SIZE(names) && !lib; i++)
        lib = dlopen(names[i], RTLD_NOW | RTLD_LOCAL); /* never closed */
    if (!lib)
        return error_set(err, -ENOENT, "libcurl.so.4 cannot be opened: install libcurl4");
    for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
        void *symbol = dlsym(lib, wanted[i].name);
        if (!symbol)
            return error_set(err, -ENOENT, "libcurl has no %s: install libcurl4", wanted[i].name);
        memcpy(wanted[i].to, &symbol, sizeof(symbol));
    }
    return 0;
}

static size_t on_bytes(char *bytes, size_t size, size_t n, void *arg)
{
    const struct kube_api *api = arg;
    return api->take(api->arg, bytes, size * n) ? size * n : 0;
}

static int on_progress(void *arg, int64_t a, int64_t b, int64_t c, int64_t d)
{
    const struct kube_api *api = arg;
    api->tick(api->arg);
    return 0;
}

/* The file is read for each request, because Kubernetes replaces it about once per hour. */
static int read_token(const char *path, char header[static TOKEN_MAX], struct error *err)
{
    static const char name[] = "Authorization: Bearer ";
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const size_t at = sizeof(name) - 1;
    memcpy(header, name, at);
    const ssize_t n = fd < 0 ? -1 : read(fd, header + at, TOKEN_MAX - at - 1);
    if (n < 0)
        return error_set(err, -errno, "cannot read the token %s: %s", path, strerror(errno));
    header[at + (size_t)n] = '\0';
    header[at + strcspn(header + at, "\r\n")] = '\0';
    return 0;
}

static int api_status(const struct kube_api *api, void *c, int code, const char *text,
                      struct error *err)
{
    long status = 0;
    curl.getinfo(c, INFO_RESPONSE_CODE, &status);
    if (code == 0 && status == 200)
        return 0;
    if (code == E_WRITE_ERROR)
        return -ECANCELED;
    if (status == 401 || status == 403)
        return error_set(err, -EACCES,
                         "%s answers %ld: the service account may not list pods, or not get "
                         "resourceclaims (see agents/kubernetes)",
                         api->base, status);
    if (status && status != 200)
        return error_set(err, -EIO, "%s answers %ld", api->base, status);
    return error_set(err, code == E_TIMED_OUT ? -ETIMEDOUT : -EIO, "%s: %s", api->base,
                     *text ? text : curl.text(code));
}

int kube_api_get(const struct kube_api *api, const char *path, unsigned max_s, struct error *err)
{
    char url[2048], header[TOKEN_MAX], text[ERROR_SIZE] = "";
    const bool tls = strncmp(api->base, "https://", 8) == 0;
    void *headers = NULL;
    int r = 0;
    if (snprintf(url, sizeof(url), "%s%s", api->base, path) >= (int)sizeof(url))
        return error_set(err, -ENAMETOOLONG, "the address %s is too long", api->base);
    if (tls && api->token_file && (r = read_token(api->token_file, header, err)) < 0)
        return r;
    void *c = curl.init();
    if (!c)
        return error_set(err, -ENOMEM, "out of memory");
    if (tls && api->token_file)
        headers = curl.append(NULL, header);
    curl.setopt(c, OPT_URL, url);
    curl.setopt(c, OPT_NOSIGNAL, 1L);
    curl.setopt(c, OPT_PROXY, "");
    curl.setopt(c, OPT_FAILONERROR, 1L);
    curl.setopt(c, OPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    curl.setopt(c, OPT_TIMEOUT_MS, (long)max_s * 1000);
    curl.setopt(c, OPT_ERRORBUFFER, text);
    curl.setopt(c, OPT_HTTPHEADER, headers);
    if (api->ca)
        curl.setopt(c, OPT_CAINFO, api->ca);
    curl.setopt(c, OPT_WRITEFUNCTION, on_bytes);
    curl.setopt(c, OPT_WRITEDATA, api);
    curl.setopt(c, OPT_XFERINFOFUNCTION, on_progress);
    curl.setopt(c, OPT_XFERINFODATA, api);
    curl.setopt(c, OPT_NOPROGRESS, 0L);
    r = api_status(api, c, curl.perform(c), text, err);
    curl.cleanup(c);
    curl.free_all(headers);
    return r;
}
