typedef int stub_load;
