typedef int stub_driver;
