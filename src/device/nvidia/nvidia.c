typedef int stub_nvidia;
