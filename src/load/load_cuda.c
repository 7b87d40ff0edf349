typedef int stub_load_cuda;
