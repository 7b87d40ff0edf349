typedef int stub_load_soft;
