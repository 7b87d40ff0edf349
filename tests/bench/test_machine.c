/* What is asked of NVML, of a stand-in (in LD_LIBRARY_PATH), and which build this is. */
#include "../test.h"
#include "base/version.h"
#include "doctor/machine.h"

TEST(nvml)
{
    struct machine_nvml n;
    struct machine_clocks c;
    machine_ask_nvml(&n);
    assert_true(n.found && n.gpus == 1 && n.mig == 0 && n.exclusive == 0 && n.instances == 0);
    setenv("FAKE_NVML_MIG", "2", 1);
    machine_ask_nvml(&n);
    assert_true(n.found && n.gpus == 1 && n.mig == 1 && n.instances == 2);
    unsetenv("FAKE_NVML_MIG");
    machine_ask_clocks(&c);
    assert_true(c.known && c.sm_mhz == 1000 && c.sm_max_mhz == 1500);
    assert_true(c.memory_mhz == 2000 && c.memory_max_mhz == 2500);
}

/* "0.1.0" or "0.1.0-g18f2fb0", perhaps "-dirty". */
TEST(version)
{
    const char *v = build_version(), *more = v + strspn(v, "0123456789.");
    assert_true(more > v);
    if (*more) {
        assert_memory_equal(more, "-g", 2);
        size_t n = strspn(more + 2, "0123456789abcdef");
        assert_true(n >= 7);
        assert_true(!more[2 + n] || strcmp(more + 2 + n, "-dirty") == 0);
    }
}

/* As /proc/driver/nvidia/gpus/BUS/information has it, or whatever else. */
TEST(firmware)
{
    static const struct {
        const char *text, *is; /* NULL: -EPROTO */
    } t[] = {
        {"Model: \t\t NVIDIA H200\nGPU Firmware: \t 580.159.04\nGPU Excluded:\t No\n",
         "580.159.04"},
        {"GPU Firmware: \t N/A\n", "N/A"},
        {"GPU Firmware: 580.105", "580.105"},
        {"GPU Firmware: \n", NULL},
        {"GPU Firmware: /home/user/x\n", NULL},
        {"GPU Firmware: 1.2.3.4.5\n", NULL},
        {"GPU Firmware: 111111111111111111.1111111111111\n", NULL},
        {"Model: NVIDIA H200\n", NULL},
        {"", NULL},
    };
    for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
        char buf[32] = "";
        assert_int_equal(machine_parse_firmware(t[i].text, buf, sizeof(buf)),
                         t[i].is ? 0 : -EPROTO);
        assert_string_equal(buf, t[i].is ? t[i].is : "");
    }
}
