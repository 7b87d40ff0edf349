typedef int stub_core;
