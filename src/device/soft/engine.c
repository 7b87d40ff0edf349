typedef int stub_engine;
