typedef int stub_nvml;
