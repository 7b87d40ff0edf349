typedef int stub_static;
