/* CUDA_VISIBLE_DEVICES: which GPUs a list means, what is refused, and what is written for a choice.
 */
#include "../test.h"
#include "api/visible_devices.h"

#define A "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"
#define B "GPU-89b00000-d72c-4106-c12f-20bd9faed9f6"

/* The second is divided; the last two have one name, which means none. */
static const struct gpu_info several[] = {
    {.uuid = A, .caps = GPU_CAP_PLACE},        {.uuid = "GPU-divided"},
    {.uuid = B, .caps = GPU_CAP_PLACE},        {.uuid = "SOFT-0", .caps = GPU_CAP_PLACE},
    {.uuid = "soft-0", .caps = GPU_CAP_PLACE},
};

static const struct gpu_info *infos = several;
static unsigned ngpus;

static unsigned gpus(struct device_driver *d)
{
    return ngpus;
}

static int info(struct device_driver *d, unsigned gpu, struct gpu_info *out)
{
    *out = infos[gpu];
    return 0;
}

static const struct device_ops ops = {.gpus = gpus, .info = info};
static struct device_driver driver = {&ops};

TEST(lists)
{
    static const struct {
        const char *list;
        unsigned wanted;
        int code;
        uint32_t mask;
        const char *says; /* the names, or what is wrong */
    } rows[] = {
        {NULL, 2, 0, 5, A "," B},
        {NULL, 3, -E2BIG, 0, "3 GPUs are wanted, and there are 2 (" A ", " B ")"},
        {"1", 1, 0, 4, "1"}, /* counted over those that can be chosen */
        {"1,0", 2, 0, 5, "1,0"},
        {"GPU-89B, gpu-893", 1, 0, 5, "GPU-89B,gpu-893"},
        {B, 1, 0, 4, B},
        {"", 1, -E2BIG, 0, "1 GPU is wanted, and CUDA_VISIBLE_DEVICES lists 0"},
        {"0", 2, -E2BIG, 0, "2 GPUs are wanted, and CUDA_VISIBLE_DEVICES lists 1 (0)"},
        {"2", 1, -EINVAL, 0, "lists 2, and the GPUs that can be chosen are 0 to 1"},
        {"-1", 1, -EINVAL, 0, "lists '-1', which is no GPU here"},
        {"0,", 1, -EINVAL, 0, "lists '', which is no GPU here"},
        {",,", 1, -EINVAL, 0, "lists '', which is no GPU here"},
        {"GPU-89", 1, -EINVAL, 0, "lists 'GPU-89', with which several GPUs begin"},
        {"GPU-divided", 1, -EINVAL, 0, "lists 'GPU-divided', which is no GPU here"},
        {A "x", 1, -EINVAL, 0, "which is no GPU here"},
        {A A, 1, -EINVAL, 0, "which is no GPU here"},
        {"SOFT-0", 1, -EINVAL, 0, "lists 'SOFT-0', which is no GPU here"},
        {"\033[2J", 1, -EINVAL, 0, "lists '?[2J', which is no GPU here"},
        {"MIG-GPU-8932f937/1/0", 1, -EINVAL, 0, "an instance of a GPU"},
        {"0,GPU-893", 1, -EINVAL, 0, "lists GPU 0 twice ('GPU-893')"},
        {"0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0", 1, -EINVAL, 0, "twice"},
    };
    ngpus = sizeof(several) / sizeof(several[0]);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct visible v;
        struct error err = {""};
        char names[200] = "";
        int code = visible_read(&driver, rows[i].list, rows[i].wanted, &v, &err);
        if (code == 0)
            visible_write(&v, rows[i].mask, names, sizeof(names));
        if (code != rows[i].code || (code == 0 && visible_mask(&v) != rows[i].mask) ||
            (code == 0 ? strcmp(names, rows[i].says) != 0 : !strstr(err.text, rows[i].says)))
            fail_msg("row %zu: %d '%s' '%s'", i, code, err.text, names);
    }
}

/* One of them, in the words of the list. */
TEST(choice)
{
    struct visible v;
    char names[100], small[8];
    ngpus = 3;
    assert_int_equal(visible_read(&driver, "GPU-89b,0", 1, &v, NULL), 0);
    visible_write(&v, 1, names, sizeof(names));
    assert_string_equal(names, "0");
    visible_write(&v, 4, names, sizeof(names));
    assert_string_equal(names, "GPU-89b");
    visible_write(&v, 2, names, sizeof(names));
    assert_string_equal(names, "");
    visible_write(&v, 5, small, sizeof(small));
    assert_string_equal(small, "GPU-89b");
}

/* Of a whole name it does not matter that others begin with it. */
TEST(whole_names)
{
    static const struct gpu_info numbered[] = {
        {.uuid = "SOFT-10", .caps = GPU_CAP_PLACE},
        {.uuid = "SOFT-1", .caps = GPU_CAP_PLACE},
        {.uuid = "SOFT-11", .caps = GPU_CAP_PLACE},
    };
    struct visible v;
    ngpus = 3;
    infos = numbered;
    assert_int_equal(visible_read(&driver, "soft-1", 1, &v, NULL), 0);
    assert_int_equal(visible_mask(&v), 2);
    assert_int_equal(visible_read(&driver, "SOFT-11,SOFT-1,SOFT-10", 3, &v, NULL), 0);
    assert_int_equal(visible_mask(&v), 7);
    assert_int_equal(visible_read(&driver, "SOFT-", 1, &v, NULL), -EINVAL);
}

TEST(none)
{
    struct visible v;
    struct error err = {""};
    ngpus = 0;
    assert_int_equal(visible_read(&driver, NULL, 1, &v, &err), -ENOTSUP);
    assert_non_null(strstr(err.text, "no GPU here can be chosen"));
}
