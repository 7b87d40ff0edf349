typedef int stub_rm;
